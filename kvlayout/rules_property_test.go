package kvlayout

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// aboutNoSide are the rules on pairs that refuse some equal sides: they are on the
// engine, its release or the mode.
var aboutNoSide = []string{"read-dp-hosts", "hybrid-write", "sglang-dcp-mla", "sglang-index-tp"}

func TestEqualSidesFit(t *testing.T) {
	r := random(t)
	valid := 0
	for range 6000 {
		p := randomPair(r)
		p.Decode = p.Prefill
		if Refused(Check(p, Prefill)) || Refused(Check(p, Decode)) {
			continue
		}
		valid++
		for _, problem := range found(p) {
			if problem.Severity == Refuse && !slices.Contains(aboutNoSide, problem.Rule) {
				t.Fatalf("%+v:\n%s", p, problem)
			}
		}
	}
	if valid < 300 {
		t.Errorf("only %d valid sides", valid)
	}
}

// symmetric are the rules on pairs that say the same of prefill and decode swapped,
// where no rule before them refuses.
var symmetric = []string{
	"tp-multiple", "tp-heads", "dcp-interleave", "dcp-tp-pair", "block-size", "kv-type", "model-same", "attention-pair",
	"recurrent-tp", "sglang-state-tp", "sglang-speculation",
}

func TestSymmetricRules(t *testing.T) {
	r := random(t)
	tried := map[string]bool{}
	for range 12000 {
		p := randomPair(r)
		p.Mover = pick(r, MoverEngine, MoverAgent)
		p.Prefill.Version, p.Decode.Version = "", ""
		swapped := p
		swapped.Prefill, swapped.Decode = p.Decode, p.Prefill
		here, there := verdicts(found(p)), verdicts(found(swapped))
		for _, id := range symmetric {
			for _, way := range here[id] {
				tried[id] = true
				if !slices.Contains(there[id], way) && !suppressed(swapped, id) {
					t.Fatalf("%+v:\n%s %s, and swapped %v", p, way, id, there[id])
				}
			}
		}
	}
	for _, id := range symmetric {
		if !tried[id] {
			t.Errorf("%s was never broken", id)
		}
	}
}

// found is what Compatible finds, but for the choice of fixes, which takes the most time.
func found(p Pair) []Problem {
	_, _, problems := resolve(p)
	return withoutWays(problems)
}

func verdicts(problems []Problem) map[string][]Severity {
	all := map[string][]Severity{}
	for _, p := range problems {
		all[p.Rule] = append(all[p.Rule], p.Severity)
	}
	return all
}

// suppressed says whether a rule before id refuses the pair, so that id is not asked.
func suppressed(p Pair, id string) bool {
	at := slices.IndexFunc(rules(), func(r rule) bool { return r.ID == id })
	return refusedBy(found(p), rules()[at].after)
}

// What a rule finds is told, unless a rule refuses that it comes after: no problem
// hides another otherwise.
func TestOnlyAfterHidesProblems(t *testing.T) {
	r := random(t)
	alone := slices.Clone(rules())
	for i := range alone {
		alone[i].after = nil
	}
	hidden := map[string]bool{}
	for range 4000 {
		p := randomPair(r)
		v := newView(p, pick(r, MoverEngine, MoverAgent))
		told := withoutWays(v.checkAll(rules()))
		if _, broken := verdicts(told)["degrees"]; broken {
			continue // Checks rely on degrees that can be.
		}
		for _, found := range withoutWays(v.checkAll(alone)) {
			if slices.Contains(told, found) {
				continue
			}
			at := slices.IndexFunc(rules(), func(r rule) bool { return r.ID == found.Rule })
			if !refusedBy(told, rules()[at].after) {
				t.Fatalf("%+v:\n%s is not told, and nothing that it comes after", p, found)
			}
			hidden[found.Rule] = true
		}
	}
	t.Logf("hidden at times: %v", slices.Sorted(maps.Keys(hidden)))
}

// withoutWays makes problems comparable.
func withoutWays(problems []Problem) []Problem {
	for i := range problems {
		problems[i].ways = nil
	}
	return problems
}

// fault is a change that breaks rules, of a pair that says nothing of what it changes.
type fault struct {
	breaks string // rules, one of which it breaks where its engine and model fit
	engine Engine // that has the rules, "" any
	change func(p *Pair)
	// clears are rules that need not be broken any more: they read what is changed.
	clears []string
}

func faults() []fault {
	both := func(change func(s *Side)) func(p *Pair) {
		return func(p *Pair) { change(&p.Prefill); change(&p.Decode) }
	}
	drafted := []string{"chunked-attention", "read-groups", "capacity-length", "capacity-inflight"}
	// What needs more memory, or larger blocks, may be no problem before it has none.
	return []fault{
		{"model-same", "", func(p *Pair) { p.Prefill.Model, p.Decode.Model = "example/a", "example/b" }, nil},
		{"model-same", "", func(p *Pair) {
			p.Prefill.Model, p.Decode.Model, p.Prefill.Revision, p.Decode.Revision = "example/a", "example/a", "a", "b"
		}, nil},
		{"attention-pair", "", func(p *Pair) { p.Prefill.Attention, p.Decode.Attention = "ONE", "OTHER" }, []string{"dcp-backend", "interleave-speculation"}},
		{"attention-connector", VLLM, both(func(s *Side) { s.Attention = "ROCM_ATTN" }), []string{"block-size"}},
		{"kv-type", "", func(p *Pair) { p.Prefill.KVType, p.Decode.KVType = BF16, FP8 }, []string{"capacity-length", "capacity-inflight", "block-size", "interleave-pieces", "interleave-block", "kernel-block", "block-mamba"}},
		{"kv-type", VLLM, func(p *Pair) { p.Prefill.ModelType, p.Decode.ModelType = BF16, FP16 }, nil},
		{"kv-format", SGLang, func(p *Pair) { p.Prefill.KVFormat = "trtllm" }, nil},
		{"ep-moe ep-size", "", both(func(s *Side) { s.EP = 5 }), nil},
		{"all-to-all", VLLM, func(p *Pair) { p.Decode.AllToAll = "mori" }, nil},
		{"tp-nodes", VLLM, both(func(s *Side) { s.Nodes = 2 }), []string{"gpus-per-pod"}},
		{"pp-moriio", VLLM, func(p *Pair) { p.Prefill.PCP = 2 }, []string{"dcp-tp", "ports-dp-tp", "dp-dense-ports", "gpus-per-pod", "read-dp-hosts", "ep-size"}},
		{"conv-layout", VLLM, both(func(s *Side) { s.ConvLayout = "SD" }), nil},
		{"block-mamba", VLLM, both(func(s *Side) { s.MambaAlign, s.BatchTokens = true, 1 }), []string{"capacity-length", "capacity-inflight"}},
		{"draft-layers", VLLM, func(p *Pair) { p.Prefill.Speculation = "eagle3" }, drafted},
		{"sglang-speculation", SGLang, func(p *Pair) { p.Decode.Speculation = "EAGLE" }, drafted},
		{"sglang-decode-cp", SGLang, func(p *Pair) { p.Decode.PCP = 2 }, nil},
		{"sglang-prefill-cp sglang-cp-dcp", SGLang, func(p *Pair) { p.Prefill.PCP = 2 }, nil},
		{"capacity-length", "", both(func(s *Side) { s.MaxLength, s.KVBlocks = 4096, 1 }), nil},
		{"capacity-inflight", "", func(p *Pair) {
			p.Load = Load{Input: 8192, Output: 1024, Concurrency: 64}
			p.Decode.MaxLength, p.Decode.KVBlocks = 4096, 4
		}, nil},
		{"xgmi-wait", VLLM, func(p *Pair) { p.Backend = XGMI }, nil},
		{"mixed-versions", VLLM, func(p *Pair) { p.Prefill.Version, p.Decode.Version = "0.33.0", "0.32.0" }, []string{"*"}},
		{"degrees", "", func(p *Pair) { p.Decode.Layout.DPLocal = p.Decode.Layout.Defaulted().DP + 1 }, []string{"degrees", "read-dp-hosts", "ports-dp-tp", "dp-dense-ports", "gpus-per-pod"}},
	}
}

// barePair says nothing but what pairs have always.
func barePair(r *rand.Rand) Pair {
	p := randomPair(r)
	if p.Mover = pick(r, MoverEngine, MoverAgent); p.Engine == SGLang {
		p.Mover = MoverEngine
	}
	p.Backend, p.Load = "", Load{}
	for _, s := range []*Side{&p.Prefill, &p.Decode} {
		*s = Side{Layout: s.Layout, BlockSize: s.BlockSize, DevicesPerNode: s.DevicesPerNode, NoHybrid: s.NoHybrid}
	}
	return p
}

// A further fault leaves the problems of a pair as they are: told in the same words, but
// where a rule that they come after refuses now.
func TestFurtherFaultsAdd(t *testing.T) {
	r := random(t)
	all := faults()
	broke := make([]bool, len(all))
	for range 800 {
		p := barePair(r)
		before := found(p)
		for i, f := range all {
			if f.engine != "" && f.engine != p.Engine {
				continue
			}
			q := p
			f.change(&q)
			after := found(q)
			for id := range strings.FieldsSeq(f.breaks) {
				broke[i] = broke[i] || len(verdicts(after)[id]) > 0
			}
			if gone := f.hides(before, after); gone != "" {
				t.Fatalf("%+v:\n%s\nis gone beside %s: %v", q, gone, f.breaks, after)
			}
		}
	}
	for i, f := range all {
		if !broke[i] {
			t.Errorf("fault %d never broke %s", i, f.breaks)
		}
	}
}

// hides is a problem that is not told any more, though nothing says why.
func (f fault) hides(before, after []Problem) string {
	for _, problem := range before {
		at := slices.IndexFunc(rules(), func(r rule) bool { return r.ID == problem.Rule })
		if slices.Contains(f.clears, problem.Rule) || slices.Contains(f.clears, "*") || refusedBy(after, rules()[at].after) {
			continue
		}
		if !slices.ContainsFunc(after, func(o Problem) bool {
			return o.Rule == problem.Rule && o.Severity == problem.Severity && o.Field == problem.Field && o.Message == problem.Message
		}) {
			return string(problem.Severity) + " " + problem.String()
		}
	}
	return ""
}

// Every pair that the agent is let have is served: on each DCP group of decode and
// for each head there, each token is written once, to where decode looks for it.
func TestAdmittedPairsAreWritten(t *testing.T) {
	r := random(t)
	admitted := 0
	for range 8000 {
		g := pick(r, mla(), gqa(1), gqa(2), gqa(4), gqa(8))
		block := pick(r, 4, 8, 16)
		layout := func() Layout {
			return Layout{TP: pick(r, 1, 2, 3, 4, 6, 8, 16), DCP: pick(r, 1, 1, 2, 4, 8), Interleave: pick(r, 1, 1, 2, 4, 8, 16, 3)}
		}
		p := Pair{
			Engine: pick(r, VLLM, Simulator), Mover: MoverAgent, Geometry: g, HasGeometry: true,
			Prefill: Side{Layout: layout(), BlockSize: block}, Decode: Side{Layout: layout(), BlockSize: block},
		}
		if Refused(found(p)) {
			continue
		}
		admitted++
		if fault := coverage(t, p, r.IntN(5*block)+1); fault != "" {
			t.Fatalf("%+v: %s", p, fault)
		}
	}
	if admitted < 300 {
		t.Errorf("only %d pairs are admitted", admitted)
	}
}

// coverage writes a prompt and says what of it is not where it has to be.
func coverage(t *testing.T, pair Pair, tokens int) string {
	t.Helper()
	g, block := pair.Geometry, pair.Decode.BlockSize
	p, d := pair.Prefill.Layout.Defaulted(), pair.Decode.Layout.Defaulted()
	type row struct{ group, head, token int }
	times := map[row]int{}
	for rank := range d.TP {
		for _, w := range Writers(g, p, d, rank) {
			spec := pairSpec(g, p, d, w, rank, block, tokens)
			copies, err := WritePlan(nil, spec)
			if err != nil {
				return err.Error()
			}
			writes := apply(t, copies, make([]byte, spec.Source.End()), make([]byte, spec.Target.End()))
			forEachRow(spec.Target, len(spec.TargetBlocks), func(b, head, slot int, at int64) {
				for _, n := range writes[at : at+spec.Target.RowBytes] {
					if n != writes[at] {
						times[row{rank / d.DCP, head, -1}]++ // a row in part
					}
				}
				times[row{rank / d.DCP, head, spec.Placement.Token(spec.TargetRank, b, slot)}] += int(writes[at])
			})
		}
	}
	for group := range d.TP / d.DCP {
		held := HeadsOf(g, d, group*d.DCP)
		for head := held.First; head < held.end(); head++ {
			for token := range tokens {
				if n := times[row{group, head, token}]; n != 1 {
					return fmt.Sprintf("token %d of head %d is written %d times to DCP group %d", token, head, n, group)
				}
			}
			if times[row{group, head, -1}] > 0 {
				return fmt.Sprintf("rows of head %d are written in part to DCP group %d", head, group)
			}
		}
	}
	return ""
}

func BenchmarkCompatibleOfModels(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var pairs []Pair
	for len(pairs) < 64 {
		p := randomPair(r)
		detail(r, &p)
		p.Mover = MoverAuto
		pairs = append(pairs, p)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pairs {
			Compatible(p)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(pairs)), "ns/pair")
}
