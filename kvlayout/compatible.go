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
	_, _, problems := resolve(p)
	chooseFixes(p, problems, problems)
	refusalsFirst(problems)
	return problems
}

// ResolveMover returns who moves the bytes of the pair, Engine or Agent, and why in
// one sentence. Auto becomes Engine where the engine's own connector is known to
// serve the pair, else Agent. The simulator has no connector of its own, SGLang
// none but its own.
func ResolveMover(p Pair) (mover Mover, reason string) {
	if mover, reason = onlyMover(p); mover == "" {
		mover, reason, _ = resolve(p)
	}
	return mover, reason
}

// resolve returns what ResolveMover does, and what is wrong with the pair then.
func resolve(p Pair) (mover Mover, reason string, problems []Problem) {
	rs := rules()
	if mover, reason = onlyMover(p); mover != "" {
		return mover, reason, newView(p, mover).checkAll(rs)
	}
	agent, engine := newView(p, MoverAgent).checkAll(rs), newView(p, MoverEngine).checkAll(rs)
	mover, reason = betterMover(cmp.Or(p.Engine, VLLM), agent, engine)
	if mover == MoverAgent {
		return mover, reason, agent
	}
	return mover, reason, engine
}

// onlyMover is the mover where the pair leaves no choice, else "".
func onlyMover(p Pair) (mover Mover, reason string) {
	switch {
	case p.Engine == Simulator:
		return MoverAgent, "the simulator has no connector of its own"
	case p.Mover == MoverEngine || p.Mover == MoverAgent:
		return p.Mover, fmt.Sprintf("transfer.mover is %s", p.Mover)
	case p.Engine == SGLang:
		return MoverEngine, "SGLang moves its cache with its own mori backend"
	}
	return "", ""
}

// betterMover chooses by the problems that a pair has with the one and the other.
func betterMover(e Engine, withAgent, withEngine []Problem) (mover Mover, reason string) {
	if Refused(withAgent) && !Refused(withEngine) {
		return MoverEngine, "the transfer agent cannot serve the pair"
	}
	for _, problem := range withEngine {
		if contains(withAgent, problem) || (problem.Severity == Warn && costs(problem.Rule)) {
			continue
		}
		verdict := "cannot serve the pair"
		if problem.Severity != Refuse {
			verdict = "is not known to serve the pair"
		}
		return MoverAgent, fmt.Sprintf("%s's own connector %s (%s: %s)", e, verdict, problem.Rule, problem.Message)
	}
	return MoverEngine, fmt.Sprintf("%s's own connector can serve the pair", e)
}

// costs says that the rule's warnings don't decide the mover.
func costs(id string) bool {
	return slices.ContainsFunc(rules(), func(r rule) bool { return r.ID == id && r.cost })
}

func contains(problems []Problem, p Problem) bool {
	for _, o := range problems {
		if o.Rule == p.Rule && o.Field == p.Field {
			return true
		}
	}
	return false
}
