package kvlayout

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
)

func total(flows []Flow) int64 {
	var sum int64
	for _, f := range flows {
		sum += f.Bytes
	}
	return sum
}

// The public figures for a new prompt of 1,000 tokens of DeepSeek-R1.
func TestWrittenFixedPoints(t *testing.T) {
	r1, _ := Lookup("deepseek-ai/DeepSeek-R1")
	for _, c := range []struct {
		d    Layout
		want int64
	}{
		{Layout{TP: 4, DCP: 4, Interleave: 1}, 71_958_528},
		{Layout{TP: 4, DCP: 4, Interleave: 16}, 71_958_528},
		{Layout{TP: 4, DCP: 4, Interleave: 64}, 71_958_528},
		{Layout{TP: 4}, 287_834_112},
	} {
		flows := Written(r1, BF16, Layout{TP: 4}, c.d, 64, 1000)
		if got := total(flows); got != c.want || len(flows) != 4 {
			t.Errorf("TP4 to %+v: %d bytes in %d flows, want %d in 4", c.d, got, len(flows), c.want)
		}
	}
}

func TestWrittenIsEmptyForWhatCannotBeWritten(t *testing.T) {
	for name, flows := range map[string][]Flow{
		"mixed DCP":    Written(mla(), BF16, Layout{TP: 4, DCP: 2}, Layout{TP: 4, DCP: 4}, 64, 1000),
		"interleave":   Written(mla(), BF16, Layout{TP: 4}, Layout{TP: 4, DCP: 4, Interleave: 48}, 64, 1000),
		"no tokens":    Written(mla(), BF16, Layout{TP: 4}, Layout{TP: 4}, 64, 0),
		"unknown type": Written(mla(), "INT4", Layout{TP: 4}, Layout{TP: 4}, 64, 1000),
		"no blocks":    Written(mla(), BF16, Layout{TP: 4}, Layout{TP: 4}, 0, 1000),
	} {
		if flows != nil {
			t.Errorf("%s: %v", name, flows)
		}
	}
}

func TestWrittenAgreesWithWritePlan(t *testing.T) {
	r := random(t)
	layoutPairs(func(g Geometry, p, d Layout) {
		for _, blockTokens := range []int{4, 16} {
			p.Interleave = pick(r, 1, 2, 4)
			d.Interleave = p.Interleave
			tokens := r.IntN(5*blockTokens*max(d.DCP, 1)) + 1
			want := planned(t, g, p, d, blockTokens, tokens)
			got := map[[2]int]int64{}
			for _, f := range Written(g, BF16, p, d, blockTokens, tokens) {
				got[[2]int{f.Writer, f.Reader}] += f.Bytes
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v to %+v, %d KV heads, B %d, %d tokens:\n got %v\nwant %v", p, d, g.KVHeads, blockTokens, tokens, got, want)
			}
		}
	})
}

// planned sums the plans of every writer and reader over all layers.
func planned(t *testing.T, g Geometry, p, d Layout, blockTokens, tokens int) map[[2]int]int64 {
	t.Helper()
	sums := map[[2]int]int64{}
	for rank := range d.TP {
		for _, w := range Writers(g, p, d, rank) {
			copies, err := WritePlan(nil, pairSpec(g, p, d, w, rank, blockTokens, tokens))
			if err != nil {
				t.Fatal(err)
			}
			if n := PlanBytes(copies); n > 0 {
				sums[[2]int{w.Rank, rank}] += n * int64(g.Layers)
			}
		}
	}
	return sums
}

// pairSpec is the spec of one layer from w to decode rank, with block i at index i.
func pairSpec(g Geometry, p, d Layout, w Writer, rank, blockTokens, tokens int) WriteSpec {
	place := Placement{d.DCP, d.Interleave, blockTokens}
	from := Placement{p.DCP, p.Interleave, blockTokens}
	region := func(l Layout, rank, blocks int) Region {
		heads, row := HeadsOf(g, l, rank), RowBytes(g, BF16)
		return Region{
			BlockStride: row * int64(heads.Count*blockTokens), Blocks: blocks, BlockTokens: blockTokens, Heads: heads,
			HeadStride: row * int64(blockTokens), TokenStride: row, RowBytes: row,
		}
	}
	return WriteSpec{
		Source: region(p, w.Rank, from.BlocksFor(tokens)), Target: region(d, rank, place.BlocksFor(tokens)),
		SourceBlocks: ids(ascending(from.BlocksFor(tokens)), from.BlocksFor(tokens)),
		TargetBlocks: ids(ascending(place.BlocksFor(tokens)), place.BlocksFor(tokens)),
		SourceDCP:    p.DCP, Placement: place, TargetRank: DCPRank(rank, d), Tokens: tokens, Heads: w.Heads,
	}
}

// Every decode rank ends with the bytes that an engine of its layout would have
// computed: the whole way through writers, placement and plan.
func TestTransferLeavesWhatDecodeWouldHaveComputed(t *testing.T) {
	r := random(t)
	layoutPairs(func(g Geometry, p, d Layout) {
		blockTokens := pick(r, 4, 8)
		p.Interleave = pick(r, 1, 2, 4)
		d.Interleave = p.Interleave
		tokens := r.IntN(4*blockTokens*d.DCP) + 1
		for rank := range d.TP {
			var got []byte
			var spec WriteSpec
			for _, w := range Writers(g, p, d, rank) {
				spec = pairSpec(g, p, d, w, rank, blockTokens, tokens)
				if got == nil {
					got = make([]byte, spec.Target.End())
				}
				source := computed(spec.Source, Placement{p.DCP, p.Interleave, blockTokens}, DCPRank(w.Rank, p), len(spec.SourceBlocks))
				copies, err := WritePlan(nil, spec)
				if err != nil {
					t.Fatal(err)
				}
				apply(t, copies, source, got)
			}
			want := computed(spec.Target, spec.Placement, spec.TargetRank, len(spec.TargetBlocks))
			forEachRow(spec.Target, len(spec.TargetBlocks), func(block, head, slot int, at int64) {
				if spec.Placement.Token(spec.TargetRank, block, slot) >= tokens {
					return
				}
				if end := at + spec.Target.RowBytes; !bytes.Equal(got[at:end], want[at:end]) {
					t.Fatalf("%+v to %+v: d%d block %d head %d slot %d holds %v, want %v", p, d, rank, block, head, slot, got[at:end], want[at:end])
				}
			})
		}
	})
}

// computed fills a rank's region with rows that name their token and head.
func computed(region Region, place Placement, rank, blocks int) []byte {
	memory := make([]byte, region.End())
	forEachRow(region, blocks, func(block, head, slot int, at int64) {
		row := fmt.Appendf(nil, "%03d/%02d..", place.Token(rank, block, slot), head)
		copy(memory[at:at+region.RowBytes], row)
	})
	return memory
}

func forEachRow(region Region, blocks int, f func(block, head, slot int, at int64)) {
	for block := range blocks {
		for head := region.Heads.First; head < region.Heads.end(); head++ {
			for slot := range region.BlockTokens {
				f(block, head, slot, region.row(int32(block), head, slot))
			}
		}
	}
}
