package kvlayout

import (
	"cmp"
	"slices"
	"strings"
)

// view is a pair as the checks see it: unset values replaced, the mover resolved.
type view struct {
	Pair
	prefill, decode Layout
	mover           Mover // Engine or Agent
	heads           heads
	fitted          *Model // what model returns, nil where it is not known
}

// Check returns the problems of one side of the pair alone, refusals first, each
// in the order of the catalog. It looks at the other side only to resolve the
// mover and to choose fixes.
func Check(p Pair, role Role) []Problem {
	mover, _, all := resolve(p)
	problems := newView(p, mover).checkSide(rules(), role)
	chooseFixes(p, problems, all)
	refusalsFirst(problems)
	return problems
}

func newView(p Pair, mover Mover) *view {
	p.Mode = cmp.Or(p.Mode, Write)
	p.Prefill.KVType = cmp.Or(p.Prefill.KVType, Auto)
	p.Decode.KVType = cmp.Or(p.Decode.KVType, Auto)
	v := &view{Pair: p, prefill: p.Prefill.Layout.Defaulted(), decode: p.Decode.Layout.Defaulted(), mover: mover, heads: headsOf(p), fitted: p.Model}
	if v.fitted == nil && p.HasGeometry {
		m := ModelOf(p.Geometry)
		v.fitted = &m
	}
	return v
}

func (v *view) checkSide(rs []rule, role Role) []Problem {
	var problems []Problem
	for _, r := range rs {
		if r.side == nil || refusedBy(problems, r.after) {
			continue
		}
		for _, f := range r.side(v, role) {
			problems = append(problems, r.problem(f))
		}
	}
	return problems
}

// checkAll returns the problems of prefill, of decode and of the pair.
func (v *view) checkAll(rs []rule) []Problem {
	problems := v.checkSide(rs, Prefill)
	for _, p := range v.checkSide(rs, Decode) {
		// Both sides find an unknown model; that is one problem.
		if !slices.ContainsFunc(problems, p.same) {
			problems = append(problems, p)
		}
	}
	for _, r := range rs {
		if r.pair == nil || refusedBy(problems, r.after) {
			continue
		}
		for _, f := range r.pair(v) {
			problems = append(problems, r.problem(f))
		}
	}
	return problems
}

func refusedBy(problems []Problem, ids []string) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool {
		return p.Severity == Refuse && slices.Contains(ids, p.Rule)
	})
}

func refusalsFirst(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		if a.Severity == b.Severity {
			return 0
		}
		if a.Severity == Refuse {
			return -1
		}
		return 1
	})
}

func (v *view) layout(role Role) Layout {
	if role == Prefill {
		return v.prefill
	}
	return v.decode
}

func (v *view) side(role Role) Side {
	if role == Prefill {
		return v.Prefill
	}
	return v.Decode
}

// attentionTP is the number of ranks that attention heads are split over.
func (v *view) attentionTP(role Role) int { return v.Engine.attentionTP(v.layout(role)) }

// tpField and tpFor name the tp field of a role and its value for an attention TP.
func tpField(role Role) string { return layoutField(role, "tp") }

func (v *view) tpFor(role Role, attentionTP int) int {
	if v.Engine == SGLang {
		return attentionTP * v.layout(role).DP
	}
	return attentionTP
}

// vllmRules says whether vLLM's own rules hold: for vLLM and for the simulator.
func (v *view) vllmRules() bool { return v.Engine != SGLang }

// vllmConnector says whether vLLM's MoRIIO connector moves the bytes.
func (v *view) vllmConnector() bool { return v.vllmRules() && v.mover == MoverEngine }

// headSharded says that the model is known to split KV by heads, in some layer.
func (v *view) headSharded() bool {
	return v.heads.known && len(v.heads.kv) > 0
}

func layoutField(role Role, name string) string {
	return strings.Join([]string{string(role), "layout", name}, ".")
}

// largest returns the largest n from most down to 1 that fits; 1 if none does.
func largest(most int, fits func(n int) bool) int {
	for n := min(most, maxDegree); n > 1; n-- {
		if fits(n) {
			return n
		}
	}
	return 1
}
