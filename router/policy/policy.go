// Package policy chooses where a request goes among the places that can take it.
// It is pure: randomness is an argument, and what a place is, is the caller's.
package policy

import (
	"fmt"
	"sync/atomic"
)

// The names of the policies, as a command line spells them.
const (
	NameLeastLoaded = "least-loaded"
	NameRoundRobin  = "round-robin"
)

// Candidates are the places to choose from.
type Candidates interface {
	// Len is how many there are, at least 1.
	Len() int
	// Load is how many requests candidate i has that are not answered yet.
	Load(i int) int64
	// Avoid says how much candidate i is to be avoided, 0: not at all. It is chosen only
	// where there is none that is to be avoided less.
	Avoid(i int) int
}

// Policy chooses one of the candidates by index. random(n) returns a number from
// 0 to n-1. It may be called from several goroutines.
type Policy interface {
	Choose(c Candidates, random func(n int) int) int
}

// Parse returns the maker of the policy of that name. Prefill and decode each take
// a policy of their own, since a policy may remember its last choice.
func Parse(name string) (func() Policy, error) {
	switch name {
	case NameLeastLoaded:
		return func() Policy { return LeastLoaded{} }, nil
	case NameRoundRobin:
		return func() Policy { return new(RoundRobin) }, nil
	}
	return nil, fmt.Errorf("policy %q is unknown, there are %s and %s", name, NameLeastLoaded, NameRoundRobin)
}

// LeastLoaded draws two candidates and takes the one with less to do, which comes
// close to the least of all without looking at all of them, and keeps routers that
// don't know of each other from choosing the same one at once.
type LeastLoaded struct{}

// Choose implements Policy.
func (LeastLoaded) Choose(c Candidates, random func(n int) int) int {
	n := c.Len()
	if n == 1 {
		return 0
	}
	a, b := random(n), random(n-1)
	if b >= a {
		b++
	}
	badA, badB := c.Avoid(a) > 0, c.Avoid(b) > 0
	switch {
	case badA && badB:
		return best(c, random(n))
	case badA:
		return b
	case badB || c.Load(a) <= c.Load(b):
		return a
	}
	return b
}

// RoundRobin takes the candidates in turn. The zero value is ready.
type RoundRobin struct{ turn atomic.Uint64 }

// Choose implements Policy.
func (r *RoundRobin) Choose(c Candidates, _ func(n int) int) int {
	n := c.Len()
	for range n {
		// Whose turn is skipped loses it: none gets the turns of others.
		if i := r.next(n); c.Avoid(i) == 0 {
			return i
		}
	}
	return best(c, r.next(n))
}

func (r *RoundRobin) next(n int) int { return int((r.turn.Add(1) - 1) % uint64(n)) }

// best looks at all candidates, from one on: of those that are to be avoided the least
// it takes the one with the least to do.
func best(c Candidates, from int) int {
	n, found, least := c.Len(), from, c.Avoid(from)
	for k := 1; k < n; k++ {
		i := (from + k) % n
		if bad := c.Avoid(i); bad < least || bad == least && c.Load(i) < c.Load(found) {
			found, least = i, bad
		}
	}
	return found
}
