package policy

import (
	"math/rand/v2"
	"testing"
)

type places []struct {
	load  int64
	avoid int
}

func (p places) Len() int         { return len(p) }
func (p places) Load(i int) int64 { return p[i].load }
func (p places) Avoid(i int) int  { return p[i].avoid }

func seeded() func(int) int { return rand.New(rand.NewPCG(1, 2)).IntN }

// spread counts how often each place is chosen of 1000 times.
func spread(p Policy, c places, random func(int) int) []int {
	n := make([]int, len(c))
	for range 1000 {
		n[p.Choose(c, random)]++
	}
	return n
}

func TestLeastLoadedNeverTakesTheMostLoaded(t *testing.T) {
	n := spread(LeastLoaded{}, places{{load: 3}, {load: 9}, {load: 1}}, seeded())
	if n[1] != 0 || n[2] <= n[0] {
		t.Errorf("%v", n)
	}
}

func TestLeastLoadedSpreadsEqualLoad(t *testing.T) {
	for i, n := range spread(LeastLoaded{}, make(places, 4), seeded()) {
		if n < 150 {
			t.Errorf("place %d was taken %d times of 1000", i, n)
		}
	}
}

func TestLeastLoadedEvensOut(t *testing.T) {
	c := make(places, 16)
	random := seeded()
	for range 1600 {
		c[LeastLoaded{}.Choose(c, random)].load++
	}
	for i := range c {
		if c[i].load < 95 || c[i].load > 105 {
			t.Errorf("place %d has %d of 1600", i, c[i].load)
		}
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	r := new(RoundRobin)
	c := make(places, 3)
	for i := range 9 {
		if got := r.Choose(c, nil); got != i%3 {
			t.Errorf("turn %d took place %d", i, got)
		}
	}
}

func TestAvoidedPlaces(t *testing.T) {
	for _, p := range []Policy{LeastLoaded{}, new(RoundRobin)} {
		one := places{{avoid: 1}, {load: 99}, {avoid: 1}, {avoid: 1}}
		if n := spread(p, one, seeded()); n[1] != 1000 {
			t.Errorf("%T: %v, only place 1 is good", p, n)
		}
		all := places{{avoid: 1}, {avoid: 1}}
		if n := spread(p, all, seeded()); n[0] == 0 || n[1] == 0 {
			t.Errorf("%T: %v, both are as bad", p, n)
		}
		if n := spread(p, places{{avoid: 1}}, seeded()); n[0] != 1000 {
			t.Errorf("%T: %v", p, n)
		}
		if n := spread(p, places{{avoid: 2}, {avoid: 1, load: 9}, {avoid: 2}, {avoid: 1, load: 8}}, seeded()); n[3] != 1000 {
			t.Errorf("%T: %v, place 3 is the least bad", p, n)
		}
	}
}

// TestTurnsOfAvoidedPlacesAreNobodys: who comes after one does not get twice as much.
func TestTurnsOfAvoidedPlacesAreNobodys(t *testing.T) {
	n := spread(new(RoundRobin), places{{avoid: 1}, {}, {}, {avoid: 2}, {}}, nil)
	if n[1] < 333 || n[2] < 333 || n[4] < 333 {
		t.Errorf("%v", n)
	}
}

func TestParse(t *testing.T) {
	for _, name := range []string{NameLeastLoaded, NameRoundRobin} {
		f, err := Parse(name)
		if err != nil || f() == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse("best"); err == nil {
		t.Error("an unknown policy is taken")
	}
}
