package kvlayout

import (
	"slices"
	"testing"
)

// blockTable is the slot mapping of vLLM's block table: virtual blocks of b*n
// tokens, split inside.
func blockTable(t, n, i, b int) (rank, block, slot int) {
	offset := t % (b * n)
	return (offset / i) % n, t / (b * n), (offset/(i*n))*i + offset%i
}

// rankPosition is the other common form: the position on the rank, cut into blocks.
func rankPosition(t, n, i, b int) (rank, block, slot int) {
	p := (t/(i*n))*i + t%i
	return (t / i) % n, p / b, p % b
}

// placements calls f with every placement of block b whose interleave divides it.
func placements(t *testing.T, f func(t *testing.T, p Placement)) {
	t.Helper()
	for _, b := range []int{1, 2, 6, 16, 64} {
		for _, n := range []int{1, 2, 3, 4, 8} {
			for i := 1; i <= b; i++ {
				if b%i == 0 {
					f(t, Placement{DCP: n, Interleave: i, BlockTokens: b})
				}
			}
		}
	}
}

func TestPlacementIsTheEnginesSlotMapping(t *testing.T) {
	placements(t, func(t *testing.T, p Placement) {
		t.Helper()
		for token := range 4*p.DCP*p.BlockTokens + 3 {
			rank, block, slot := p.Locate(token)
			for _, reference := range []func(t, n, i, b int) (int, int, int){blockTable, rankPosition} {
				r, k, s := reference(token, p.DCP, p.Interleave, p.BlockTokens)
				if rank != r || block != k || slot != s {
					t.Fatalf("%+v: token %d is at %d/%d/%d, the engine puts it at %d/%d/%d", p, token, rank, block, slot, r, k, s)
				}
			}
			if back := p.Token(rank, block, slot); back != token {
				t.Fatalf("%+v: token %d comes back as %d", p, token, back)
			}
		}
	})
}

func TestShareCountsTheTokensOfARank(t *testing.T) {
	placements(t, func(t *testing.T, p Placement) {
		t.Helper()
		counts := make([]int, p.DCP)
		blocks := 0
		for tokens := range 3*p.DCP*p.BlockTokens + 2 {
			for rank, want := range counts {
				if got := p.Share(tokens, rank); got != want {
					t.Fatalf("%+v: rank %d has %d of %d tokens, want %d", p, rank, got, tokens, want)
				}
			}
			if got := p.BlocksFor(tokens); got != blocks {
				t.Fatalf("%+v: %d tokens need %d blocks, want %d", p, tokens, got, blocks)
			}
			rank, block, _ := p.Locate(tokens)
			counts[rank]++
			blocks = max(blocks, block+1)
		}
	})
}

func TestPlacementValues(t *testing.T) {
	for _, c := range []struct {
		name              string
		place             Placement
		token             int
		rank, block, slot int
	}{
		{"no dcp", Placement{1, 1, 64}, 130, 0, 2, 2},
		{"unset counts as 1", Placement{BlockTokens: 64}, 130, 0, 2, 2},
		{"interleave of a block deals blocks", Placement{4, 64, 64}, 64*5 + 7, 1, 1, 7},
		{"interleave 1 deals tokens", Placement{4, 1, 64}, 1023, 3, 3, 63},
		{"interleave 16", Placement{4, 16, 64}, 100, 2, 0, 20},
	} {
		rank, block, slot := c.place.Locate(c.token)
		if got, want := []int{rank, block, slot}, []int{c.rank, c.block, c.slot}; !slices.Equal(got, want) {
			t.Errorf("%s: token %d at %v, want %v", c.name, c.token, got, want)
		}
	}
}

func TestPlacementValidate(t *testing.T) {
	if err := (Placement{4, 48, 64}).Validate(); err == nil {
		t.Error("interleave 48 of a block of 64 passed")
	}
	for _, ok := range []Placement{{4, 16, 64}, {1, 48, 64}, {}} {
		if err := ok.Validate(); err != nil {
			t.Errorf("%+v: %v", ok, err)
		}
	}
}

func TestDCPRank(t *testing.T) {
	var got []int
	for tp := range 8 {
		got = append(got, DCPRank(tp, Layout{TP: 8, DCP: 4}))
	}
	if want := []int{0, 1, 2, 3, 0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("DCP ranks of TP8 DCP4 are %v, want %v", got, want)
	}
	if got := DCPRank(5, Layout{TP: 8}); got != 0 {
		t.Errorf("DCP rank without DCP is %d", got)
	}
}
