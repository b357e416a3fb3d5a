package enginesim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// deal hands out tokens one by one: each rank in turn gets interleave of them and
// fills its blocks from the start.
func deal(l Layout, tokens int) []slot {
	out := make([]slot, 0, tokens)
	filled := make([]int, l.DCP)
	for rank := 0; len(out) < tokens; rank = (rank + 1) % l.DCP {
		for range l.Interleave {
			n := filled[rank]
			filled[rank]++
			out = append(out, slot{rank: rank, block: n / l.Block, slot: n % l.Block})
		}
	}
	return out[:tokens]
}

func TestPlacementIsDealing(t *testing.T) {
	for _, dcp := range []int{1, 2, 3, 4, 8} {
		for _, block := range []int{1, 16, 48, 64} {
			for interleave := 1; interleave <= block; interleave++ {
				if block%interleave != 0 {
					continue
				}
				l := Layout{TP: dcp, DCP: dcp, Interleave: interleave, Block: block}
				tokens := 3*block*dcp + 1
				for pos, want := range deal(l, tokens) {
					if got := l.place(pos); got != want {
						t.Fatalf("DCP %d, block %d, interleave %d, token %d: %+v, want %+v", dcp, block, interleave, pos, got, want)
					}
				}
				if got := l.blocksFor(tokens); got != 4 {
					t.Fatalf("%+v: %d blocks for %d tokens", l, got, tokens)
				}
			}
		}
	}
}

// Every KV head is on a rank, and with DCP every token of it.
func TestHeadsCoverEachRow(t *testing.T) {
	for _, tc := range []struct {
		tp, dcp, heads int
		want           []int // first head of each rank
	}{
		{2, 1, 8, []int{0, 4}},
		{4, 1, 8, []int{0, 2, 4, 6}},
		{8, 1, 4, []int{0, 0, 1, 1, 2, 2, 3, 3}},
		{8, 2, 4, []int{0, 0, 1, 1, 2, 2, 3, 3}},
		{8, 4, 1, []int{0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		g := Geometry{Kind: gqa, Layers: 1, AttentionHeads: 64, KVHeads: tc.heads, HeadValues: 8, ValueBytes: 2}
		l := Layout{TP: tc.tp, DP: 1, DPLocal: 1, DCP: tc.dcp, Interleave: 1, Block: 4}
		if err := l.check(g); err != nil {
			t.Fatal(err)
		}
		held := map[string]bool{}
		var first []int
		for tp := range tc.tp {
			from, count := l.headsOf(g, tp)
			first = append(first, from)
			for head := from; head < from+count; head++ {
				held[fmt.Sprint(head, l.dcpRank(tp))] = true
			}
		}
		if !slices.Equal(first, tc.want) {
			t.Errorf("TP %d over %d heads: %v, want %v", tc.tp, tc.heads, first, tc.want)
		}
		if want := tc.heads * tc.dcp; len(held) != want {
			t.Errorf("TP %d DCP %d over %d heads: %d of %d shares are held", tc.tp, tc.dcp, tc.heads, len(held), want)
		}
	}
}

func TestLayoutRefuses(t *testing.T) {
	latent := Geometry{Kind: mla, Layers: 1, AttentionHeads: 8, KVHeads: 1, HeadValues: 8, ValueBytes: 2}
	sharded := Geometry{Kind: gqa, Layers: 1, AttentionHeads: 24, KVHeads: 4, HeadValues: 8, ValueBytes: 2}
	good := Layout{TP: 4, DP: 1, DPLocal: 1, DCP: 1, Interleave: 1, Block: 16}
	for name, tc := range map[string]struct {
		g      Geometry
		change func(*Layout)
	}{
		"zero degree":       {latent, func(l *Layout) { l.TP = 0 }},
		"heads":             {latent, func(l *Layout) { l.TP = 3 }},
		"KV heads":          {sharded, func(l *Layout) { l.TP = 6 }},
		"dcp of tp":         {latent, func(l *Layout) { l.DCP = 3 }},
		"interleave":        {latent, func(l *Layout) { l.DCP, l.Interleave = 4, 3 }},
		"interleave over":   {latent, func(l *Layout) { l.DCP, l.Interleave = 4, 32 }},
		"gqa without spare": {sharded, func(l *Layout) { l.DCP = 2 }},
		"gqa groups":        {sharded, func(l *Layout) { l.TP, l.DCP = 24, 4 }},
		"dp":                {latent, func(l *Layout) { l.DPStart = 1 }},
	} {
		l := good
		if err := l.check(tc.g); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tc.change(&l)
		if err := l.check(tc.g); err == nil {
			t.Errorf("%s: %+v was accepted", name, l)
		}
	}
}

// Rows of a rank never share a word, and leave none out.
func TestRowsTileTheMemory(t *testing.T) {
	g := Geometry{Kind: gqa, Layers: 3, AttentionHeads: 8, KVHeads: 4, HeadValues: 8, ValueBytes: 2}
	for _, tokenMajor := range []bool{false, true} {
		for _, block := range []int{1, 4} {
			l := Layout{TP: 2, DP: 1, DPLocal: 1, DCP: 1, Interleave: 1, Block: block, TokenMajor: tokenMajor}
			r := shapeRank(g, l, 1, 5)
			if err := r.allocate("test"); err != nil {
				t.Fatal(err)
			}
			for layer := range r.layers {
				for id := range int32(r.blocks) {
					for head := r.headFirst; head < r.headFirst+r.heads; head++ {
						for at := range block {
							for i := range r.row(layer, id, head, at) {
								r.row(layer, id, head, at)[i]++
							}
							r.locateAgain(t, layer, id, head, at)
						}
					}
				}
			}
			for i, w := range r.words {
				if w != 1 {
					t.Fatalf("token major %t, block %d: word %d belongs to %d rows", tokenMajor, block, i, w)
				}
			}
			if err := r.free(); err != nil {
				t.Error(err)
			}
		}
	}
}

func (r *rank) locateAgain(t *testing.T, layer int, id int32, head, at int) {
	t.Helper()
	block := r.layerBlock(layer, id)
	row := r.row(layer, id, head, at)
	for i := range block {
		if &block[i] == &row[0] {
			if h, s := r.locate(i); h != head || s != at {
				t.Fatalf("word %d is located at head %d, slot %d instead of %d, %d", i, h, s, head, at)
			}
			return
		}
	}
	t.Fatalf("row of head %d, slot %d lies outside its block", head, at)
}

func TestBlocksComeInTurn(t *testing.T) {
	b := newBlocks(4, 2, rand.New(rand.NewPCG(1, 1)))
	for _, n := range []int{math.MinInt, -1, 0, 5} {
		if ids, err := b.take(t.Context(), n, holder{}); err == nil {
			t.Errorf("%d blocks were asked for, %v given", n, ids)
		}
	}
	all, err := b.take(t.Context(), 4, holder{})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	if !slices.Equal(all, []int32{0, 1, 2, 3}) {
		t.Fatalf("took %v", all)
	}
	large := make(chan []int32)
	small := make(chan []int32)
	wait := func(count int, got chan []int32) {
		ids, err := b.take(t.Context(), count, holder{})
		if err != nil {
			t.Error(err)
		}
		got <- ids
	}
	go wait(3, large)
	until(t, func() bool { _, n := b.counts(); return n == 1 })
	go wait(1, small)
	until(t, func() bool { _, n := b.counts(); return n == 2 })
	if _, err := b.take(t.Context(), 1, holder{}); err == nil {
		t.Error("a third request may wait")
	}
	b.put(all[:1]) // enough for the small one, which has to wait for the large one
	if free, waiting := b.counts(); free != 1 || waiting != 2 {
		t.Errorf("%d free, %d waiting", free, waiting)
	}
	b.put(all[1:])
	if a, c := <-large, <-small; len(a) != 3 || len(c) != 1 {
		t.Errorf("got %v and %v", a, c)
	}
}
