package bench

import (
	"fmt"
	"io"
	"slices"
)

// Report prints a table of results: for each pattern the mover's speed, its ratio to
// each other contender (the median of the rounds, each the ratio of the round's
// medians) and the CPU time of both processes.
func Report(w io.Writer, results []Result) error {
	if _, err := fmt.Fprintf(w, "%-13s %-7s %8s %9s %9s %9s %9s %9s\n",
		"backend", "pattern", "GB/s", "memcpy", "inorder", "stream", "gathered", "CPU s/GiB"); err != nil {
		return err
	}
	for _, p := range Patterns() {
		mover := only(results, p.Name, Mover)
		if len(mover) == 0 {
			continue
		}
		speed, cpu := make([]float64, 0, len(mover)), make([]float64, 0, len(mover))
		for _, r := range mover {
			speed = append(speed, float64(r.Bytes)/r.seconds()/1e9)
			cpu = append(cpu, r.cpu()/float64(r.Bytes)*(1<<30))
		}
		_, err := fmt.Fprintf(w, "%-13s %-7s %8.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", mover[0].Backend, p.Name, median(speed),
			Ratio(results, p.Name, "memcpy"), Ratio(results, p.Name, "inorder"), Ratio(results, p.Name, "stream"), Ratio(results, p.Name, "gathered"),
			median(cpu))
		if err != nil {
			return err
		}
	}
	return nil
}

// Ratio is how many times as fast as another contender the mover was: the median of
// the rounds.
func Ratio(results []Result, pattern, of string) float64 {
	base := only(results, pattern, of)
	var ratios []float64
	for i, r := range only(results, pattern, Mover) {
		if i < len(base) {
			ratios = append(ratios, base[i].seconds()/r.seconds())
		}
	}
	return median(ratios)
}

func only(results []Result, pattern, name string) []Result {
	var out []Result
	for _, r := range results {
		if r.Pattern == pattern && r.Name == name {
			out = append(out, r)
		}
	}
	return out
}

func (r Result) seconds() float64 {
	all := make([]float64, 0, len(r.Turns))
	for _, t := range r.Turns {
		all = append(all, t.Seconds)
	}
	return median(all)
}

func (r Result) cpu() float64 {
	all := make([]float64, 0, len(r.Turns))
	for _, t := range r.Turns {
		all = append(all, t.CPU)
	}
	return median(all)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(v))[len(v)/2]
}
