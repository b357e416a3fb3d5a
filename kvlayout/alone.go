package kvlayout

// Alone returns what each rule says by itself: also what Compatible leaves out, as it
// follows from another problem. It tells what was wrong with a pair already, whatever
// else is mended, and no fixes.
func Alone(p Pair) []Problem {
	mover, _ := ResolveMover(p)
	v := newView(p, mover)
	if !v.prefill.counts() || !v.decode.counts() {
		return Compatible(p) // checks rely on numbers that can be
	}
	var problems []Problem
	add := func(r rule, findings []finding) {
		for _, f := range findings {
			problem := r.problem(f)
			problem.ways = nil
			problems = append(problems, problem)
		}
	}
	for _, r := range rules() {
		if r.side != nil {
			add(r, r.side(v, Prefill))
			add(r, r.side(v, Decode))
		} else {
			add(r, r.pair(v))
		}
	}
	return problems
}

// counts says that all degrees are numbers that can be.
func (l Layout) counts() bool {
	for _, n := range []int{l.TP, l.PP, l.DP, l.DPLocal, l.DCP, l.Interleave} {
		if n < 1 || n > maxDegree {
			return false
		}
	}
	return true
}
