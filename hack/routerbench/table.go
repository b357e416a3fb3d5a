package main

import (
	"fmt"
	"io"
	"slices"
)

type key struct{ cell, router string }

type results map[key][]measured

// print writes a table for each load: medians of the rounds, and ratios of requests
// per second within a round.
func (r results) print(w io.Writer, chosen []cell, all []*contender) error {
	for _, c := range chosen {
		_, err := fmt.Fprintf(w, "\n%s: %d connections\n%-18s %9s %9s %14s %9s %9s %10s %8s %7s\n", c.name, c.connections,
			"", "req/s", "/direct", "pdpool/this", "p50 ms", "p99 ms", "CPU s/1k", "RSS MiB", "errors")
		if err != nil {
			return err
		}
		for _, to := range all {
			got := r[key{c.name, to.name}]
			if len(got) == 0 {
				continue
			}
			errors, first := 0, ""
			for _, m := range got {
				errors += m.Errors
				first = m.First
			}
			_, err := fmt.Fprintf(w, "%-18s %9.0f %9.2f %14.2f %9.2f %9.2f %10.3f %8.0f %7d %s\n", to.name,
				pick(got, func(m measured) float64 { return m.Rate }),
				r.ratio(c.name, to.name, "direct"), r.ratio(c.name, "pdpool", to.name),
				pick(got, func(m measured) float64 { return m.P50 }), pick(got, func(m measured) float64 { return m.P99 }),
				pick(got, func(m measured) float64 { return m.CPU }), pick(got, func(m measured) float64 { return m.RSS }), errors, first)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// ratio is how many times the rate of b a has: the median of the rounds.
func (r results) ratio(cell, a, b string) float64 {
	base := r[key{cell, b}]
	var out []float64
	for i, m := range r[key{cell, a}] {
		if i < len(base) && base[i].Rate > 0 {
			out = append(out, m.Rate/base[i].Rate)
		}
	}
	return middle(out)
}

func pick(all []measured, of func(measured) float64) float64 {
	out := make([]float64, 0, len(all))
	for _, m := range all {
		out = append(out, of(m))
	}
	return middle(out)
}

func middle(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(v))[len(v)/2]
}
