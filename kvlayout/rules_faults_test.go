package kvlayout

import (
	"slices"
	"testing"
)

// setting is who serves what, by which release, and who moves the bytes how.
type setting struct {
	engine  Engine
	version string
	mover   Mover
	mode    Mode
	model   string
}

// smallestFault is a pair without problems, but for what a rule is on. Its change sets
// what the rule reads of the sides.
type smallestFault struct {
	breaks string
	setting
	change func(p *Pair)
}

// on makes a pair that has nothing wrong, or another fault, one that has the fault.
func (f smallestFault) on(p Pair) Pair {
	m, _ := LookupModel(f.model)
	p.Engine, p.Version, p.Mover, p.Mode, p.Model, p.HasGeometry = f.engine, f.version, f.mover, f.mode, &m, true
	p.Prefill.Version, p.Decode.Version = "", ""
	f.change(&p)
	return p
}

const (
	deepseek = "deepseek-ai/DeepSeek-R1"
	indexing = "deepseek-ai/DeepSeek-V3.2"
	linear   = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
	windows  = "openai/gpt-oss-120b"
)

// smallestFaults has every rule of the catalog.
func smallestFaults() []smallestFault {
	both := func(change func(s *Side)) func(p *Pair) {
		return func(p *Pair) { change(&p.Prefill); change(&p.Decode) }
	}
	layouts := func(prefill, decode Layout) func(p *Pair) {
		return func(p *Pair) { p.Prefill.Layout, p.Decode.Layout, p.Prefill.PCP, p.Decode.PCP = prefill, decode, 0, 0 }
	}
	engine := setting{VLLM, "0.33.0", MoverEngine, Write, deepseek}
	of := func(s setting, model string) setting { s.model = model; return s }
	release := func(s setting, version string) setting { s.version = version; return s }
	reading := func(s setting) setting { s.mode = Read; return s }
	agent := engine
	agent.mover = MoverAgent
	simulator := setting{Simulator, "", MoverAgent, Write, deepseek}
	sglang := setting{SGLang, "0.5.23", MoverEngine, Write, deepseek}
	return []smallestFault{
		{"degrees", agent, func(p *Pair) { p.Decode.Layout.PP = -1 }},
		{"model-geometry", agent, func(p *Pair) { p.Model, p.HasGeometry, p.Decode.Layout.TP = nil, false, 8 }},
		{"heads-tp", agent, layouts(Layout{TP: 3}, Layout{TP: 8})},
		{"kv-heads-tp", of(agent, "microsoft/phi-4"), layouts(Layout{TP: 4}, Layout{TP: 2})},
		{"dcp-tp", agent, layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 3})},
		{"dcp-gqa", of(agent, llama), layouts(Layout{TP: 8, DCP: 2}, Layout{TP: 8, DCP: 2})},
		{"interleave-block", agent, func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 4, Interleave: 48})(p)
			p.Decode.BlockSize = 64
		}},
		{"interleave-unused", agent, layouts(Layout{TP: 8}, Layout{TP: 8, Interleave: 48})},
		{"dp-dense-ports", of(engine, llama), layouts(Layout{TP: 8}, Layout{TP: 4, DP: 2})},
		{"dp-dense", of(agent, llama), layouts(Layout{TP: 8}, Layout{TP: 4, DP: 2})},
		{"ports-dp-tp", engine, layouts(Layout{TP: 8}, Layout{TP: 4, DP: 2})},
		{"gpus-per-pod", agent, layouts(Layout{TP: 8}, Layout{TP: 4, DP: 3})},
		{"tp-multiple", of(agent, "mistralai/Mixtral-8x22B-v0.1"), layouts(Layout{TP: 16}, Layout{TP: 24})},
		{"tp-heads", of(reading(engine), llama), layouts(Layout{TP: 4}, Layout{TP: 8})},
		{"tp-write", release(engine, "0.32.0"), layouts(Layout{TP: 4}, Layout{TP: 8})},
		{"dcp-mix", agent, layouts(Layout{TP: 8, DCP: 4}, Layout{TP: 8, DCP: 2})},
		{"dcp-interleave", agent, layouts(Layout{TP: 8, DCP: 4}, Layout{TP: 8, DCP: 4, Interleave: 64})},
		{"dcp-tp-pair", engine, layouts(Layout{TP: 8, DCP: 4}, Layout{TP: 4, DCP: 4})},
		{"dcp-mla", of(agent, qwen), layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 2})},
		{"dcp-read", reading(agent), layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 8})},
		{"dcp-version", engine, layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 8})},
		{"block-size", agent, func(p *Pair) { p.Prefill.BlockSize, p.Decode.BlockSize = 64, 16 }},
		{"kv-format", sglang, func(p *Pair) { p.Prefill.KVFormat, p.Decode.KVFormat = "trtllm", "aiter" }},
		{"kv-type", agent, func(p *Pair) { p.Prefill.KVType, p.Decode.KVType = BF16, FP8 }},
		{"read-dp-hosts", reading(agent), layouts(Layout{TP: 1, DP: 16, DPLocal: 8}, Layout{TP: 8})},

		{"ep-moe", of(agent, llama), func(p *Pair) { p.Decode.EP = -1 }},
		{"ep-size", agent, func(p *Pair) { p.Decode.EP = 5 }},
		{"all-to-all", agent, func(p *Pair) { p.Decode.AllToAll = "mori" }},
		{"interleave-speculation", agent, func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 4, Interleave: 64})(p)
			both(func(s *Side) { s.Speculation, s.OwnDrafts, s.Attention, s.BlockSize = "mtp", true, "", 64 })(p)
		}},
		{"dcp-backend", agent, func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 4})(p)
			both(func(s *Side) { s.Attention, s.Speculation = "TRITON_ATTN", "" })(p)
		}},
		{"pp-moriio", agent, layouts(Layout{TP: 4, PP: 2}, Layout{TP: 8})},
		{"tp-nodes", agent, both(func(s *Side) { s.Nodes = 2 })},
		{"attention-connector", agent, both(func(s *Side) { s.Attention = "ROCM_ATTN" })},
		{"kernel-block", of(engine, llama), both(func(s *Side) { s.Attention, s.BlockSize = "ROCM_AITER_FA", 64 })},
		{"conv-layout", of(engine, linear), both(func(s *Side) { s.ConvLayout = "SD" })},
		{"block-mamba", of(agent, linear), both(func(s *Side) { s.MambaAlign, s.BatchTokens = true, 1 })},
		{"hybrid-shape", of(engine, linear), both(func(s *Side) { s.Speculation = "eagle3" })},
		{"chunked-attention", of(reading(engine), "meta-llama/Llama-4-Scout-17B-16E-Instruct"), both(func(s *Side) { s.NoHybrid, s.Speculation, s.OwnDrafts = false, "", false })},
		{"sliding-window-write", of(engine, windows), both(func(s *Side) { s.NoHybrid = false })},
		{"interleave-indexer", of(simulator, indexing), func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 4})(p)
			both(func(s *Side) { s.BlockSize = 64 })(p)
		}},
		{"interleave-pieces", release(engine, ""), func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 8, Interleave: 8})(p)
			both(func(s *Side) { s.BlockSize = 64 })(p)
			p.Backend = RDMA
		}},
		{"model-same", agent, func(p *Pair) { p.Prefill.Model, p.Decode.Model = deepseek, llama }},
		{"attention-pair", agent, func(p *Pair) { p.Prefill.Attention, p.Decode.Attention = "ONE", "OTHER" }},
		{"read-dp", release(reading(engine), "0.26.0"), layouts(Layout{TP: 1, DP: 8}, Layout{TP: 8})},
		{"hybrid-write", of(release(engine, "0.32.0"), linear), func(*Pair) {}},
		{"recurrent-tp", of(reading(engine), linear), func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 4})(p)
			both(func(s *Side) { s.BlockSize = 8192 })(p)
		}},
		{"draft-layers", engine, func(p *Pair) { p.Prefill.Speculation, p.Decode.Speculation, p.Decode.OwnDrafts = "eagle3", "", false }},
		{"read-groups", of(reading(engine), windows), both(func(s *Side) { s.NoHybrid = false })},
		{"xgmi-wait", engine, func(p *Pair) { p.Backend = XGMI }},
		{"mixed-versions", of(engine, llama), func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 4})(p)
			p.Prefill.Version, p.Decode.Version = "0.33.0", "0.32.0"
		}},

		{"sglang-decode-cp", sglang, func(p *Pair) { p.Decode.PCP = 2 }},
		{"sglang-cp-dcp", sglang, func(p *Pair) {
			layouts(Layout{TP: 8, DCP: 8}, Layout{TP: 8, DCP: 8})(p)
			p.Prefill.PCP = 2
		}},
		{"sglang-dcp-backend", release(sglang, "0.5.21"), layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 8})},
		{"sglang-sparse-dcp", of(sglang, indexing), layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 8})},
		{"sglang-dcp-heads", of(sglang, "zai-org/GLM-4.7-Flash"), layouts(Layout{TP: 4}, Layout{TP: 8, DP: 2, DCP: 8})},
		{"pp-pair", sglang, layouts(Layout{TP: 4}, Layout{TP: 4, PP: 2})},
		{"sglang-prefill-cp", sglang, func(p *Pair) {
			layouts(Layout{TP: 8}, Layout{TP: 8, DCP: 8})(p)
			p.Prefill.PCP = 2
		}},
		{"sglang-dcp-mla", of(sglang, qwen), layouts(Layout{TP: 8, DCP: 2}, Layout{TP: 8, DCP: 2})},
		{"sglang-window-tp", of(sglang, windows), func(p *Pair) {
			layouts(Layout{TP: 4}, Layout{TP: 8})(p)
			p.Prefill.NoHybrid = false
		}},
		{"sglang-index-tp", of(sglang, "MiniMaxAI/MiniMax-M3"), layouts(Layout{TP: 4}, Layout{TP: 2})},
		{"sglang-state-tp", of(sglang, linear), layouts(Layout{TP: 8}, Layout{TP: 4})},
		{"sglang-head-copies", of(release(sglang, "0.5.20"), "Qwen/Qwen3-30B-A3B"), layouts(Layout{TP: 2}, Layout{TP: 8})},
		{"sglang-heads-tp", of(sglang, llama), layouts(Layout{TP: 4}, Layout{TP: 8})},
		{"sglang-speculation", sglang, func(p *Pair) { p.Prefill.Speculation, p.Decode.Speculation = "", "EAGLE" }},

		{"capacity-length", agent, both(func(s *Side) { s.MaxLength, s.KVBlocks = 4096, 1 })},
		{"capacity-inflight", agent, func(p *Pair) {
			p.Load = Load{Input: 8192, Output: 1024, Concurrency: 64}
			p.Decode.MaxLength, p.Decode.KVBlocks, p.Decode.KVMemory = 4096, 4, 0
		}},
	}
}

// Every rule has a fault that breaks it, and one that refuses refuses that alone.
func TestEveryRuleIsBrokenAlone(t *testing.T) {
	left := map[string]RuleInfo{}
	for _, r := range Rules() {
		left[r.ID] = r
	}
	for _, f := range smallestFaults() {
		info, ok := left[f.breaks]
		if !ok {
			t.Errorf("%s is no rule, or has two faults", f.breaks)
		}
		delete(left, f.breaks)
		problems := found(f.on(plainPair()))
		if at := slices.IndexFunc(problems, func(p Problem) bool { return p.Rule == f.breaks && p.Severity == info.Severity }); at < 0 {
			t.Errorf("%s is not broken: %s", f.breaks, summary(problems))
		}
		for _, p := range problems {
			if p.Severity == Refuse && p.Rule != f.breaks {
				t.Errorf("the fault of %s also breaks %s", f.breaks, p)
			}
		}
	}
	for id := range left {
		t.Errorf("%s has no fault", id)
	}
}

// Whatever else is wrong with a pair, each fault is told, or a rule that its own comes
// after.
func TestFaultsHideNoOther(t *testing.T) {
	all := smallestFaults()
	for _, other := range all {
		for _, f := range all {
			p := f.on(other.on(plainPair()))
			after := found(p)
			at := slices.IndexFunc(rules(), func(r rule) bool { return r.ID == f.breaks })
			if refusedBy(after, rules()[at].after) {
				continue
			}
			if !slices.Contains(verdicts(after)[f.breaks], rules()[at].Severity) {
				t.Errorf("%s is not told beside the fault of %s: %s", f.breaks, other.breaks, summary(after))
			}
		}
	}
}

// What a problem says to set mends the fault and breaks nothing.
func TestFixOfEveryFault(t *testing.T) {
	for _, f := range smallestFaults() {
		p := f.on(plainPair())
		for _, problem := range Compatible(p) {
			if problem.Rule != f.breaks || problem.Set == "" {
				continue
			}
			for _, left := range Compatible(changed(t, p, problem)) {
				if left.Severity == Refuse || left.Rule == problem.Rule {
					t.Errorf("%s\nfixed, it says\n%s", problem, left)
				}
			}
		}
	}
}
