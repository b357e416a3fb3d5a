package kvlayout

import (
	"cmp"
	"fmt"
	"slices"
)

// Compatible returns what is wrong with the pair: refusals before warnings, each
// by side (prefill, decode, both) and in the order of the catalog. A problem that
// only follows from another is left out, so fixing what is reported may show more
// only where it changed the layout.
//
// Rules on the engine's own connector count where the mover, given or resolved, is
// Engine. What is unknown (version, geometry) warns and never refuses.
func Compatible(p Pair) []Problem {
	rs := rules()
	mover, _ := resolveMover(p, rs)
	problems := newView(p, mover).checkAll(rs)
	chooseFixes(p, problems)
	refusalsFirst(problems)
	return problems
}

// ResolveMover returns who moves the bytes of the pair, Engine or Agent, and why in
// one sentence. Auto becomes Engine where the engine's own connector is known to
// serve the pair, else Agent. The simulator has no connector of its own, SGLang
// none but its own.
func ResolveMover(p Pair) (mover Mover, reason string) {
	return resolveMover(p, rules())
}

func resolveMover(p Pair, rs []rule) (mover Mover, reason string) {
	switch {
	case p.Engine == Simulator:
		return MoverAgent, "the simulator has no connector of its own"
	case p.Mover == MoverEngine || p.Mover == MoverAgent:
		return p.Mover, fmt.Sprintf("transfer.mover is %s", p.Mover)
	case p.Engine == SGLang:
		return MoverEngine, "SGLang moves its cache with its own mori backend"
	}
	withAgent, withEngine := newView(p, MoverAgent).checkAll(rs), newView(p, MoverEngine).checkAll(rs)
	if Refused(withAgent) && !Refused(withEngine) {
		return MoverEngine, "the transfer agent cannot serve the pair"
	}
	for _, problem := range withEngine {
		if contains(withAgent, problem) || (problem.Severity == Warn && costs(rs, problem.Rule)) {
			continue
		}
		verdict := "cannot serve the pair"
		if problem.Severity != Refuse {
			verdict = "is not known to serve the pair"
		}
		return MoverAgent, fmt.Sprintf("%s's own connector %s (%s: %s)", cmp.Or(p.Engine, VLLM), verdict, problem.Rule, problem.Message)
	}
	return MoverEngine, fmt.Sprintf("%s's own connector can serve the pair", cmp.Or(p.Engine, VLLM))
}

// costs says that the rule's warnings don't decide the mover.
func costs(rs []rule, id string) bool {
	return slices.ContainsFunc(rs, func(r rule) bool { return r.ID == id && r.cost })
}

func contains(problems []Problem, p Problem) bool {
	for _, o := range problems {
		if o.Rule == p.Rule && o.Field == p.Field {
			return true
		}
	}
	return false
}
