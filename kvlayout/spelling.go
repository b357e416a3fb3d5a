package kvlayout

// Nearest is the one of several names that a misspelt one is most like, the first of
// those that are as near; "" where it takes most changes or more to make it of any. A
// change puts a letter in, leaves one out, exchanges one or swaps two neighbours.
func Nearest(name string, names []string, most int) string {
	best := ""
	for _, n := range names {
		if d := distance(name, n, most); d < most {
			best, most = n, d
		}
	}
	return best
}

// distance is how many changes make b of a (the optimal string alignment distance);
// most, if it is that many or more.
func distance(a, b string, most int) int {
	const longest = 64
	if len(a) > longest || len(b) > longest || len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	var rows [3][longest + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least >= most {
			return most
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], most)
}
