package kvlayout

import (
	"slices"
	"testing"
)

// The heads of a state, and each projection before its convolution, are cut evenly; the
// groups of Mamba2 too, or copied where there are fewer than ranks.
func TestStateFitsTP(t *testing.T) {
	kda := State{Kind: KDA, ConvParts: []int{64, 64, 32}, Heads: 16}
	mamba := func(groups int) State {
		return State{Kind: Mamba2, ConvParts: []int{64, groups * 8, groups * 8}, Groups: groups, Heads: 16}
	}
	narrow := mamba(8)
	narrow.ConvParts[0] = 6
	uncut := kda
	uncut.ConvParts = []int{64, 64, 6}
	for name, c := range map[string]struct {
		state State
		fits  []int
	}{
		"KDA":                         {kda, []int{1, 2, 4, 8, 16}},
		"a projection of 6":           {uncut, []int{1, 2}},
		"Mamba2 of 8 groups":          {mamba(8), []int{1, 2, 4, 8, 16}},
		"Mamba2 of 2 groups":          {mamba(2), []int{1, 2, 4, 8, 16}},
		"Mamba2 of 6 groups":          {mamba(6), []int{1, 2, 8, 16}},
		"Mamba2 of a projection of 6": {narrow, []int{1, 2}},
	} {
		var got []int
		for tp := range 33 {
			if c.state.FitsTP(tp) {
				got = append(got, tp)
			}
		}
		if !slices.Equal(got, c.fits) {
			t.Errorf("%s fits %v ranks, want %v", name, got, c.fits)
		}
	}
}

// Of Mamba2's groups that ranks don't divide, each rank has one.
func TestConvPartBytesOfCopiedGroups(t *testing.T) {
	s := State{Kind: Mamba2, ConvRows: 3, ConvParts: []int{64, 16, 16}, Groups: 2, Heads: 16}
	for tp, want := range map[int][]int64{1: {384, 96, 96}, 2: {192, 48, 48}, 8: {48, 48, 48}} {
		if got := s.ConvPartBytes(tp, 0); !slices.Equal(got, want) {
			t.Errorf("%d ranks: %v, want %v", tp, got, want)
		}
	}
	kda := State{Kind: KDA, ConvRows: 3, ConvParts: []int{64, 64, 16}, Heads: 16}
	if got := kda.ConvPartBytes(8, 1); !slices.Equal(got, []int64{64, 64, 16}) {
		t.Errorf("KDA with a draft: %v", got)
	}
}
