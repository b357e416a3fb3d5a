package kvlayout

// Check returns the problems of one side of the pair alone.
func Check(p Pair, role Role) []Problem {
	return nil
}
