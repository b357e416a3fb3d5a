package kvlayout

import (
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// seedPair is the layout of the first seed: DeepSeek-R1, TP4 to TP4+DCP4.
func seedPair() Pair {
	g, _ := Lookup("deepseek-ai/DeepSeek-R1")
	return Pair{
		Engine: VLLM, Version: "0.33.0", Mover: MoverAuto, Mode: Write, Geometry: g, HasGeometry: true,
		Prefill: Side{Layout: Layout{TP: 4}, BlockSize: 64, KVType: Auto, DevicesPerNode: 8},
		Decode:  Side{Layout: Layout{TP: 4, DCP: 4, Interleave: 64}, BlockSize: 64, KVType: Auto, DevicesPerNode: 8},
	}
}

// plainPair is DeepSeek-R1, TP8 to TP8, with vLLM's own connector.
func plainPair() Pair {
	p := seedPair()
	p.Mover = MoverEngine
	p.Prefill.Layout, p.Decode.Layout = Layout{TP: 8}, Layout{TP: 8}
	return p
}

// with is plainPair, changed, or that of another model.
func with(change func(p *Pair)) Pair {
	p := plainPair()
	change(&p)
	return p
}

func on(model string, change func(p *Pair)) Pair {
	return with(func(p *Pair) {
		p.Geometry, p.HasGeometry = Lookup(model)
		change(p)
	})
}

const (
	llama = "meta-llama/Llama-3.3-70B-Instruct"
	qwen  = "Qwen/Qwen3-235B-A22B"
)

// summary writes problems as "rule@field", with a ? after warnings.
func summary(problems []Problem) string {
	var parts []string
	for _, p := range problems {
		s := p.Rule + "@" + p.Field
		if p.Severity == Warn {
			s += "?"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, " ")
}

type ruleCase struct {
	name string
	pair Pair
	want string
}

func TestRules(t *testing.T) {
	for _, c := range slices.Concat(sideCases(), pairCases(), publicCases()) {
		problems := Compatible(c.pair)
		if got := summary(problems); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestRulesCatalog(t *testing.T) {
	id := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	seen := map[string]bool{}
	for _, r := range rules() {
		if seen[r.ID] || !id.MatchString(r.ID) || r.Description == "" || r.Reason == "" {
			t.Errorf("rule %+v is documented twice or not at all", r.RuleInfo)
		}
		for _, before := range r.after {
			if !seen[before] {
				t.Errorf("%s waits for %s, which is not checked before it", r.ID, before)
			}
		}
		seen[r.ID] = true
		if (r.side != nil) != (r.Scope == SideScope) || (r.pair != nil) != (r.Scope == PairScope) {
			t.Errorf("%s: scope %s does not fit its check", r.ID, r.Scope)
		}
	}
	if len(Rules()) != len(rules()) {
		t.Error("the catalog lacks a rule")
	}
}

func TestProblemText(t *testing.T) {
	problems := Compatible(with(func(p *Pair) { p.Decode.Layout = Layout{TP: 8, DCP: 4, Interleave: 48} }))
	const want = "interleave-block: decode interleave 48 does not divide the block of 64 tokens; " +
		"a group of interleaved tokens has to fit into one block; vLLM finds out only after loading the model; " +
		"set decode.layout.interleave to 32"
	if len(problems) == 0 || problems[0].String() != want {
		t.Errorf("got %v\nwant %s", problems, want)
	}
	if !Refused(problems) || Refused(nil) || Refused([]Problem{{Severity: Warn}}) {
		t.Error("Refused counts something else than refusals")
	}
}

func TestCheckLooksAtOneSide(t *testing.T) {
	p := with(func(p *Pair) {
		p.Prefill.Layout.TP = 3
		p.Decode.Layout.DCP = 3
		p.Decode.BlockSize = 16
	})
	if got := summary(Check(p, Prefill)); got != "heads-tp@prefill.layout.tp" {
		t.Errorf("prefill: %s", got)
	}
	if got := summary(Check(p, Decode)); got != "dcp-tp@decode.layout.dcp" {
		t.Errorf("decode: %s", got)
	}
}

// What is wrong on the other side is no reason against a fix of this one.
func TestCheckChoosesFixes(t *testing.T) {
	p := with(func(p *Pair) {
		p.Mover, p.Prefill.Layout.TP = MoverAgent, 3
		p.Decode.Layout, p.Decode.DevicesPerNode = Layout{TP: 12, DCP: 12}, 12
	})
	whole, one := firstOf("heads-tp", Compatible(p)[1:]), firstOf("heads-tp", Check(p, Decode))
	if one.Fix != "set decode.layout.tp to 8 and decode.layout.dcp to 1" || one.Fix != whole.Fix {
		t.Errorf("%q, and of the pair %q", one.Fix, whole.Fix)
	}
}

func TestResolveMover(t *testing.T) {
	auto := func(change func(p *Pair)) Pair {
		return with(func(p *Pair) {
			p.Mover = MoverAuto
			change(p)
		})
	}
	for _, c := range []struct {
		name   string
		pair   Pair
		mover  Mover
		reason string // part of it
	}{
		{"equal layouts", auto(func(*Pair) {}), MoverEngine, "can serve"},
		{"unset is Auto", auto(func(p *Pair) { p.Mover, p.Engine = "", "" }), MoverEngine, "can serve"},
		{"dealt tokens", seedPair(), MoverAgent, "dcp-version: prefill without DCP and decode dcp 4 on vLLM 0.33.0"},
		{"dealt tokens, unknown version", auto(func(p *Pair) { p.Version, p.Decode.Layout.DCP = "", 8 }), MoverAgent, "not known to serve"},
		{"unequal tp", auto(func(p *Pair) { p.Decode.Layout.TP = 4 }), MoverEngine, "can serve"},
		{"ports", auto(func(p *Pair) { p.Decode.Layout = Layout{TP: 4, DP: 2} }), MoverAgent, "ports-dp-tp"},
		{"a cost that the agent has not", auto(func(p *Pair) { p.Backend = XGMI }), MoverEngine, "can serve"},
		{"what the agent does not know, and a later engine may", auto(func(p *Pair) {
			p.Version, p.Prefill.Layout = "0.34.0", Layout{TP: 4, PP: 2}
		}), MoverEngine, "the transfer agent cannot serve"},
		{"unequal tp, unknown version", auto(func(p *Pair) { p.Version, p.Decode.Layout.TP = "", 4 }), MoverAgent, "is not known to serve the pair (tp-write: "},
		{"unequal tp of an old version", auto(func(p *Pair) { p.Version, p.Decode.Layout.TP = "0.32.0", 4 }), MoverAgent, "cannot serve the pair (tp-write: "},
		{"no help from the agent", auto(func(p *Pair) { p.Decode.BlockSize = 16 }), MoverEngine, "can serve"},
		{"given", with(func(p *Pair) { p.Mover = MoverAgent }), MoverAgent, "transfer.mover is Agent"},
		{"given, not fitting", with(func(p *Pair) { p.Decode.Layout.DCP = 8 }), MoverEngine, "transfer.mover is Engine"},
		{"simulator", with(func(p *Pair) { p.Engine = Simulator }), MoverAgent, "simulator"},
		{"sglang", auto(func(p *Pair) { p.Engine = SGLang }), MoverEngine, "mori"},
	} {
		mover, reason := ResolveMover(c.pair)
		if mover != c.mover || !strings.Contains(reason, c.reason) {
			t.Errorf("%s: %s, %q; want %s, %q", c.name, mover, reason, c.mover, c.reason)
		}
	}
}

func randomPair(r *rand.Rand) Pair {
	g := pick(r, geometries()...)
	side := func() Side {
		return Side{
			Layout: Layout{
				TP: pick(r, 0, 1, 2, 3, 4, 6, 8, 16), PP: pick(r, 0, 1, 1, 2), DP: pick(r, 0, 1, 1, 2, 4, 16),
				DPLocal: pick(r, 0, 0, 1, 2, 3, 8), DCP: pick(r, 0, 1, 1, 2, 3, 4, 8), Interleave: pick(r, 0, 1, 1, 3, 16, 64, 128, -1),
			},
			BlockSize: pick(r, 0, 16, 64), KVType: pick(r, Auto, BF16, FP16, FP8, ""), DevicesPerNode: pick(r, 0, 4, 8),
		}
	}
	p := Pair{
		Engine: pick(r, VLLM, VLLM, SGLang, Simulator), Version: pick(r, "", "0.29", "0.32.0", "0.33.0", "0.34.0"),
		Mover: pick(r, MoverAuto, MoverEngine, MoverAgent), Mode: pick(r, Write, Read, ""), Geometry: g,
		HasGeometry: r.IntN(5) > 0, Prefill: side(), Decode: side(),
	}
	if r.IntN(2) == 0 {
		detail(r, &p)
	}
	return p
}

var models = sync.OnceValue(Models)

// geometries are those of the models that one group of equal attention layers describes.
var geometries = sync.OnceValue(func() []Geometry {
	var all []Geometry
	for _, m := range models() {
		if g, ok := m.Geometry(); ok {
			all = append(all, g)
		}
	}
	return all
})

// detail says what a launch says beyond degrees.
func detail(r *rand.Rand, p *Pair) {
	if r.IntN(4) > 0 {
		m := pick(r, models()...)
		p.Model = &m
	}
	p.Backend = pick(r, "", RDMA, XGMI)
	p.Load = pick(r, Load{}, Load{Input: 8192, Output: 1024, Concurrency: 64})
	names := []string{"", "", "deepseek-ai/DeepSeek-R1", "meta-llama/Llama-3.3-70B-Instruct", "/models/own"}
	for _, s := range []*Side{&p.Prefill, &p.Decode} {
		s.Model, s.Revision = pick(r, names...), pick(r, "", "", "a", "b")
		s.Version = pick(r, "", "", "", "0.32.0", "0.33.0", "0.5.22")
		s.EP, s.PCP, s.Nodes = pick(r, 0, 0, 1, -1, 3, 8), pick(r, 0, 0, 1, 2), pick(r, 0, 0, 1, 2)
		s.Attention = pick(r, "", "", "ROCM_AITER_MLA", "ROCM_ATTN", "ROCM_AITER_FA", "TRITON_ATTN")
		s.Speculation, s.OwnDrafts = pick(r, "", "", "mtp", "dspark"), r.IntN(3) == 0
		s.ConvLayout, s.MambaAlign, s.BatchTokens = pick(r, "", "DS", "SD"), r.IntN(3) == 0, pick(r, 0, 512, 8192)
		s.NoHybrid, s.NoPrefixCaching = r.IntN(3) == 0, r.IntN(3) == 0
		s.MaxLength, s.KVMemory, s.KVBlocks = pick(r, 0, 4096, 1<<20), pick[int64](r, 0, 1<<30), pick[int64](r, 0, 0, 100)
		s.Replicas = pick(r, 0, 1, 2)
	}
}

// changed is the pair with what a problem says to set.
func changed(t *testing.T, p Pair, problem Problem) Pair {
	t.Helper()
	for change := range strings.SplitSeq(problem.Set, ",") {
		field, value, _ := strings.Cut(change, "=")
		if !(Change{field, value}).apply(&p) || !strings.Contains(problem.Fix, field+" to "+value) {
			t.Fatalf("%s: it says to set %q", problem, problem.Set)
		}
	}
	return p
}

// ofOldNumber are rules on a number that fits the one that a change replaces: of ranks, and
// of a block.
var ofOldNumber = []string{"ep-size", "interleave-block"}

// A change does away with its problem; where nothing else is refused, it leads to a pair
// that is not.
func TestFixesFix(t *testing.T) {
	r := random(t)
	tried, alone := map[string]bool{}, map[string]bool{}
	for range 3000 {
		p := randomPair(r)
		problems := Compatible(p)
		if again := Compatible(p); !reflect.DeepEqual(problems, again) {
			t.Fatalf("%+v: %v, then %v", p, problems, again)
		}
		for i, problem := range problems {
			if problem.Set == "" {
				continue
			}
			only := !Refused(problems[:i]) && !Refused(problems[i+1:])
			tried[problem.Rule] = true
			alone[problem.Rule] = alone[problem.Rule] || only
			if left := leftBy(Compatible(changed(t, p, problem)), problem, only); left != "" {
				t.Fatalf("%+v:\n%s\nfixed, it says\n%s", p, problem, left)
			}
		}
	}
	if len(tried) < 20 || len(alone) < 15 {
		t.Errorf("only the fixes of %v were tried, and alone %v", tried, alone)
	}
}

// leftBy is a problem that a fix leaves, or makes where there was no other refusal.
func leftBy(after []Problem, fixed Problem, only bool) string {
	for _, left := range after {
		same := left.Rule == fixed.Rule && left.Field == fixed.Field && left.Severity == fixed.Severity
		if same || only && left.Severity == Refuse && !mayFollow(fixed.Rule, left.Rule) {
			return left.String()
		}
	}
	return ""
}

// mayFollow says whether a rule may refuse what is changed for the sake of another: where
// that one hid it, or those that it hides.
func mayFollow(id, next string) bool {
	hidden := []string{id}
	for _, r := range rules() {
		if slices.ContainsFunc(r.after, func(before string) bool { return slices.Contains(hidden, before) }) {
			hidden = append(hidden, r.ID)
		}
	}
	return slices.Contains(hidden[1:], next) || slices.Contains(ofOldNumber, next)
}

func TestAutoServesWhatAnyMoverServes(t *testing.T) {
	r := random(t)
	for range 2000 {
		p := randomPair(r)
		if p.Engine == SGLang {
			continue // It has one mover.
		}
		refused := func(m Mover) bool {
			p.Mover = m
			return Refused(found(p))
		}
		if auto, engine, agent := refused(MoverAuto), refused(MoverEngine), refused(MoverAgent); auto != (engine && agent) {
			t.Fatalf("%+v: refused with Auto %v, Engine %v, Agent %v", p, auto, engine, agent)
		}
	}
}
