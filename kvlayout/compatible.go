package kvlayout

// Compatible returns the problems of both sides and of the pair: refusals first,
// each group by side (prefill, decode, pair) and in the order of the catalog.
func Compatible(p Pair) []Problem {
	return nil
}

// ResolveMover returns who moves the bytes of the pair, and why.
func ResolveMover(p Pair) (mover Mover, reason string) {
	if p.Mover == MoverEngine {
		return MoverEngine, ""
	}
	return MoverAgent, ""
}
