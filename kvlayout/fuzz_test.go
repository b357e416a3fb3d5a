package kvlayout

import (
	"math"
	"math/bits"
	"testing"
)

// FuzzWritePlan: whatever the numbers are, a plan is refused or stays inside both
// regions.
func FuzzWritePlan(f *testing.F) {
	f.Add(int64(0), int64(64), int64(8), int64(8), 8, 4, 0, 1, int64(8), 1, 2, 2, 1, 0, 9, 0, 1, []byte{0, 1, 2, 3})
	f.Add(int64(3), int64(256), int64(64), int64(8), 4, 8, 2, 4, int64(8), 1, 3, 1, 2, 5, 30, 2, 2, []byte{3, 2, 1, 0})
	f.Add(int64(0), int64(32), int64(8), int64(16), 4, 2, 0, 2, int64(8), 2, 2, 2, 1, 1, 7, 0, 2, []byte{1, 0})
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), int64(1), int64(1), math.MaxInt, math.MaxInt, 0, math.MaxInt, int64(1),
		math.MaxInt, math.MaxInt, math.MaxInt, 0, math.MaxInt, math.MaxInt, 0, math.MaxInt, []byte{255})
	f.Fuzz(func(t *testing.T, offset, blockStride, headStride, tokenStride int64, blocks, blockTokens, firstHead, heads int,
		rowBytes int64, sourceDCP, dcp, interleave, rank, firstToken, tokens, copyFirst, copyHeads int, blockIDs []byte,
	) {
		region := Region{
			Offset: offset, BlockStride: blockStride, Blocks: blocks, BlockTokens: blockTokens,
			Heads: HeadRange{firstHead, heads}, HeadStride: headStride, TokenStride: tokenStride, RowBytes: rowBytes,
		}
		list := make([]int32, len(blockIDs))
		for i, id := range blockIDs {
			list[i] = int32(int8(id))
		}
		s := WriteSpec{
			Source: region, Target: region, SourceBlocks: list, TargetBlocks: list, SourceDCP: sourceDCP,
			Placement:  Placement{DCP: dcp, Interleave: interleave, BlockTokens: blockTokens},
			TargetRank: rank, FirstToken: firstToken, Tokens: tokens, Heads: HeadRange{copyFirst, copyHeads},
		}
		// The number of copies is bounded by the rows asked for; leave giants out.
		if rows := mulSat(int64(len(list)), int64(max(blockTokens, 0)), int64(max(copyHeads, 0))); rows > 1<<16 && rows < math.MaxInt64 {
			t.Skip()
		}
		copies, err := WritePlan(nil, s)
		if err != nil {
			return
		}
		for _, c := range copies {
			inside(t, region, c.Src, c.SrcStride, c)
			inside(t, region, c.Dst, c.DstStride, c)
		}
	})
}

func inside(t *testing.T, region Region, start, stride int64, c Copy) {
	t.Helper()
	if c.Count < 1 || c.Length < 1 || start < region.Offset || stride < 0 {
		t.Fatalf("%+v: malformed copy %+v", region, c)
	}
	hi, span := bits.Mul64(uint64(c.Count-1), uint64(stride))
	end := uint64(start) + uint64(c.Length) + span
	if hi != 0 || span > math.MaxInt64 || end > uint64(region.End()) {
		t.Fatalf("%+v ends at %d: copy %+v leaves it", region, region.End(), c)
	}
}

func FuzzParseRelease(f *testing.F) {
	for _, s := range []string{"0.33.0", "v0.33.0rc1", "0.29", "latest", "0.33.1.dev5+g4ba787ec9", "99999999999999999999.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := ParseRelease(s)
		for _, n := range v.Numbers {
			if n < 0 {
				t.Errorf("%q has the release %v", s, v.Numbers)
			}
		}
		if !ok && Supports(s, featureWriteTP) != Unknown {
			t.Errorf("%q cannot be read, and is decided on", s)
		}
	})
}
