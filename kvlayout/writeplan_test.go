package kvlayout

import (
	"bytes"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// seed makes a failing property test repeatable; 0 takes the time.
var seed = flag.Uint64("kvlayout.seed", 1, "seed of the property tests; 0 for a random one")

func random(t testing.TB) *rand.Rand {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("repeat with -kvlayout.seed=%d", s)
	return rand.New(rand.NewPCG(s, 0))
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// randomRegion lays heads, tokens and blocks out in one of the engines' orders,
// sometimes with gaps.
func randomRegion(r *rand.Rand, heads HeadRange, blockTokens, blocks int, rowBytes int64) Region {
	region := Region{
		Offset: int64(r.IntN(3)) * 7, Blocks: blocks, BlockTokens: blockTokens, Heads: heads, RowBytes: rowBytes,
	}
	gap := func() int64 { return int64(max(r.IntN(8)-5, 0)) }
	h, b, n := int64(heads.Count), int64(blockTokens), int64(blocks)
	switch r.IntN(3) {
	case 0: // heads inside blocks, tokens inside heads
		region.TokenStride = rowBytes + gap()
		region.HeadStride = region.TokenStride*b + gap()
		region.BlockStride = region.HeadStride*h + gap()
	case 1: // tokens inside blocks, heads inside tokens
		region.HeadStride = rowBytes + gap()
		region.TokenStride = region.HeadStride*h + gap()
		region.BlockStride = region.TokenStride*b + gap()
	case 2: // heads outermost
		region.TokenStride = rowBytes + gap()
		region.BlockStride = region.TokenStride*b + gap()
		region.HeadStride = region.BlockStride*n + gap()
	}
	return region
}

func ids(perm []int, n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(perm[i])
	}
	return out
}

// randomSpec makes a valid spec; the block ids are random and in random order.
func randomSpec(r *rand.Rand) WriteSpec {
	place := Placement{DCP: pick(r, 1, 1, 2, 3, 4), BlockTokens: pick(r, 1, 2, 4, 6, 8, 16)}
	for place.Interleave = pick(r, 1, 2, 3, 4, 8, 16); place.BlockTokens%place.Interleave != 0; {
		place.Interleave = pick(r, 1, 2, 3, 4, 8, 16)
	}
	tokens := r.IntN(5*place.BlockTokens*place.DCP) + 1
	s := WriteSpec{
		SourceDCP: pick(r, 1, place.DCP), Placement: place, TargetRank: r.IntN(place.DCP), Tokens: tokens,
		FirstToken: pick(r, 0, r.IntN(tokens+1)),
	}
	need := ceilDiv(tokens, place.BlockTokens)
	if s.SourceDCP > 1 {
		need = place.BlocksFor(tokens)
	}
	rowBytes := int64(pick(r, 1, 2, 5))
	sourceHeads := HeadRange{r.IntN(3), r.IntN(4) + 1}
	s.Heads = HeadRange{First: sourceHeads.First + r.IntN(sourceHeads.Count)}
	s.Heads.Count = r.IntN(sourceHeads.end()-s.Heads.First) + 1
	targetHeads := HeadRange{First: r.IntN(s.Heads.First + 1)}
	targetHeads.Count = s.Heads.end() - targetHeads.First + r.IntN(3)
	sourceBlocks, targetBlocks := need+r.IntN(4), place.BlocksFor(tokens)+r.IntN(4)
	s.Source = randomRegion(r, sourceHeads, place.BlockTokens, sourceBlocks, rowBytes)
	s.Target = randomRegion(r, targetHeads, place.BlockTokens, targetBlocks, rowBytes)
	s.SourceBlocks = ids(pick(r, r.Perm(sourceBlocks), ascending(sourceBlocks)), need)
	s.TargetBlocks = ids(pick(r, r.Perm(targetBlocks), ascending(targetBlocks)), place.BlocksFor(tokens))
	return s
}

func ascending(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// tokenByToken is WritePlan as one would write it first: every token of every
// whole source block is located on both sides and its rows are copied.
func tokenByToken(s WriteSpec, source, target []byte) {
	span := s.Placement.BlockTokens * max(s.SourceDCP, 1)
	if s.FirstToken == s.Tokens {
		return
	}
	for token := s.FirstToken; token < ceilDiv(s.Tokens, span)*span; token++ {
		rank, block, slot := s.Placement.Locate(token)
		if rank != s.TargetRank {
			continue
		}
		fromBlock, fromSlot := token/s.Placement.BlockTokens, token%s.Placement.BlockTokens
		if s.SourceDCP > 1 {
			fromBlock, fromSlot = block, slot
		}
		for h := s.Heads.First; h < s.Heads.end(); h++ {
			from := s.Source.row(s.SourceBlocks[fromBlock], h, fromSlot)
			to := s.Target.row(s.TargetBlocks[block], h, slot)
			copy(target[to:to+s.Target.RowBytes], source[from:from+s.Source.RowBytes])
		}
	}
}

// apply runs the copies and counts how often each target byte is written.
func apply(t *testing.T, copies []Copy, source, target []byte) (writes []uint8) {
	t.Helper()
	writes = make([]uint8, len(target))
	for _, c := range copies {
		if c.Count < 1 || c.Length < 1 || (c.Count == 1 && (c.SrcStride != 0 || c.DstStride != 0)) {
			t.Fatalf("malformed copy %+v", c)
		}
		for i := range int64(c.Count) {
			from, to := c.Src+i*c.SrcStride, c.Dst+i*c.DstStride
			copy(target[to:to+c.Length], source[from:from+c.Length])
			for b := range c.Length {
				writes[to+b]++
			}
		}
	}
	return writes
}

func TestWritePlanAgreesWithTokenByToken(t *testing.T) {
	r := random(t)
	for range 4000 {
		s := randomSpec(r)
		copies, err := WritePlan(nil, s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		source := make([]byte, s.Source.End())
		for i := range source {
			source[i] = byte(r.IntN(255) + 1)
		}
		want := make([]byte, s.Target.End())
		tokenByToken(s, source, want)
		got := make([]byte, s.Target.End())
		writes := apply(t, copies, source, got)
		if !bytes.Equal(got, want) {
			t.Fatalf("%+v:\ncopies %+v\n got %v\nwant %v", s, copies, got, want)
		}
		for i, n := range writes {
			if written := want[i] != 0; n > 1 || (n == 1) != written {
				t.Fatalf("%+v: target byte %d is written %d times\ncopies %+v", s, i, n, copies)
			}
		}
		checkOrder(t, s, copies)
	}
}

// checkOrder holds the promise of the order: blocks as listed, rising offsets inside
// (but for the block of the first token, which may begin with a cut group). Heads
// outermost, a block's copies are not one range, so that layout is left out.
func checkOrder(t *testing.T, s WriteSpec, copies []Copy) {
	t.Helper()
	if s.Source.Heads.Count > 1 && s.Source.HeadStride > s.Source.BlockStride {
		return
	}
	position := map[int64]int{}
	for j, id := range s.SourceBlocks {
		position[int64(id)] = j
	}
	last, offset := -1, int64(-1)
	for _, c := range copies {
		j := position[(c.Src-s.Source.Offset)/s.Source.BlockStride]
		if j < last || (j == last && c.Src <= offset && s.FirstToken == 0) {
			t.Fatalf("%+v: copy %+v of block %d comes after block %d, offset %d", s, c, j, last, offset)
		}
		last, offset = j, c.Src
	}
}

// latent is a dense MLA region of rows of 8 bytes.
func latent(blocks, blockTokens int) Region {
	return Region{
		BlockStride: int64(blockTokens) * 8, Blocks: blocks, BlockTokens: blockTokens, Heads: HeadRange{0, 1},
		HeadStride: 8, TokenStride: 8, RowBytes: 8,
	}
}

func TestWritePlanCopies(t *testing.T) {
	tokenMajor := func(heads HeadRange) Region {
		n := int64(heads.Count)
		return Region{BlockStride: n * 8 * 4, Blocks: 8, BlockTokens: 4, Heads: heads, HeadStride: 8, TokenStride: n * 8, RowBytes: 8}
	}
	headMajor := func(heads HeadRange) Region {
		return Region{
			BlockStride: int64(heads.Count) * 8 * 4, Blocks: 8, BlockTokens: 4, Heads: heads, HeadStride: 32, TokenStride: 8, RowBytes: 8,
		}
	}
	for _, c := range []struct {
		name string
		spec WriteSpec
		want []Copy
	}{
		{
			"equal layouts take whole blocks, joined where adjacent",
			WriteSpec{
				Source: latent(8, 4), Target: latent(8, 4), SourceBlocks: []int32{2, 3, 7}, TargetBlocks: []int32{0, 1, 2},
				Placement: Placement{BlockTokens: 4}, Tokens: 9, Heads: HeadRange{0, 1},
			},
			[]Copy{{Src: 64, Dst: 0, Length: 64, Count: 1}, {Src: 224, Dst: 64, Length: 32, Count: 1}},
		},
		{
			"interleave of a block takes every N-th block",
			WriteSpec{
				Source: latent(8, 4), Target: latent(8, 4), SourceBlocks: []int32{0, 1, 2, 3}, TargetBlocks: []int32{5, 6},
				Placement: Placement{2, 4, 4}, TargetRank: 1, Tokens: 16, Heads: HeadRange{0, 1},
			},
			[]Copy{{Src: 32, Dst: 160, Length: 32, Count: 1}, {Src: 96, Dst: 192, Length: 32, Count: 1}},
		},
		{
			"interleave 1 is one strided copy per block",
			WriteSpec{
				Source: latent(8, 4), Target: latent(8, 4), SourceBlocks: []int32{3, 1}, TargetBlocks: []int32{5},
				Placement: Placement{2, 1, 4}, TargetRank: 1, Tokens: 5, Heads: HeadRange{0, 1},
			},
			[]Copy{
				{Src: 104, SrcStride: 16, Dst: 160, DstStride: 8, Length: 8, Count: 2},
				{Src: 40, SrcStride: 16, Dst: 176, DstStride: 8, Length: 8, Count: 2},
			},
		},
		{
			"a first token inside a group adds a head piece",
			WriteSpec{
				Source: latent(8, 8), Target: latent(8, 8), SourceBlocks: []int32{0}, TargetBlocks: []int32{0},
				Placement: Placement{2, 2, 8}, FirstToken: 1, Tokens: 8, Heads: HeadRange{0, 1},
			},
			[]Copy{{Src: 8, Dst: 8, Length: 8, Count: 1}, {Src: 32, Dst: 16, Length: 16, Count: 1}},
		},
		{
			"equal DCP copies rank to rank, from the rank's own first row",
			WriteSpec{
				Source: latent(8, 4), Target: latent(8, 4), SourceBlocks: []int32{4, 0}, TargetBlocks: []int32{1, 2},
				SourceDCP: 2, Placement: Placement{2, 2, 4}, TargetRank: 1, FirstToken: 7, Tokens: 9, Heads: HeadRange{0, 1},
			},
			[]Copy{{Src: 152, Dst: 56, Length: 8, Count: 1}, {Src: 0, Dst: 64, Length: 32, Count: 1}},
		},
		{
			"a slice of heads, token-major on both sides",
			WriteSpec{
				Source: tokenMajor(HeadRange{0, 4}), Target: tokenMajor(HeadRange{2, 2}), SourceBlocks: []int32{1}, TargetBlocks: []int32{0},
				Placement: Placement{BlockTokens: 4}, Tokens: 4, Heads: HeadRange{2, 2},
			},
			[]Copy{{Src: 144, SrcStride: 32, Dst: 0, DstStride: 16, Length: 16, Count: 4}},
		},
		{
			"a slice of heads, head-major on both sides",
			WriteSpec{
				Source: headMajor(HeadRange{0, 4}), Target: headMajor(HeadRange{2, 2}), SourceBlocks: []int32{1}, TargetBlocks: []int32{0},
				Placement: Placement{BlockTokens: 4}, Tokens: 4, Heads: HeadRange{2, 2},
			},
			[]Copy{{Src: 192, Dst: 0, Length: 64, Count: 1}},
		},
		{
			"heads laid out differently are copied head by head",
			WriteSpec{
				Source: headMajor(HeadRange{0, 2}), Target: tokenMajor(HeadRange{0, 2}), SourceBlocks: []int32{0}, TargetBlocks: []int32{0},
				Placement: Placement{BlockTokens: 4}, Tokens: 4, Heads: HeadRange{0, 2},
			},
			[]Copy{
				{Src: 0, SrcStride: 8, Dst: 0, DstStride: 16, Length: 8, Count: 4},
				{Src: 32, SrcStride: 8, Dst: 8, DstStride: 16, Length: 8, Count: 4},
			},
		},
		{
			"nothing is missing",
			WriteSpec{
				Source: latent(8, 4), Target: latent(8, 4), Placement: Placement{BlockTokens: 4},
				FirstToken: 9, Tokens: 9, Heads: HeadRange{0, 1},
			},
			nil,
		},
	} {
		got, err := WritePlan(nil, c.spec)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

func TestWritePlanRefuses(t *testing.T) {
	valid := func() WriteSpec {
		return WriteSpec{
			Source: latent(8, 4), Target: latent(4, 4), SourceBlocks: []int32{0, 1, 2}, TargetBlocks: []int32{0, 1},
			Placement: Placement{2, 2, 4}, Tokens: 9, Heads: HeadRange{0, 1},
		}
	}
	for _, c := range []struct {
		name    string
		corrupt func(s *WriteSpec)
		fault   PlanFault
	}{
		{"short target", func(s *WriteSpec) { s.TargetBlocks = s.TargetBlocks[:1] }, FaultTargetShort},
		{"short target, rank without a token in it", func(s *WriteSpec) {
			s.Placement.Interleave, s.TargetRank, s.TargetBlocks = 4, 1, s.TargetBlocks[:1]
		}, FaultTargetShort},
		{"short source", func(s *WriteSpec) { s.SourceBlocks = s.SourceBlocks[:2] }, FaultSourceShort},
		{"source block id", func(s *WriteSpec) { s.SourceBlocks[2] = 8 }, FaultBlockID},
		{"target block id", func(s *WriteSpec) { s.TargetBlocks[1] = -1 }, FaultBlockID},
		{"target block id after others", func(s *WriteSpec) { s.TargetBlocks[1] = 4 }, FaultBlockID},
		{"interleave", func(s *WriteSpec) { s.Placement.Interleave = 3 }, FaultInterleave},
		{"source heads", func(s *WriteSpec) { s.Heads = HeadRange{0, 2} }, FaultHeads},
		{"no heads", func(s *WriteSpec) { s.Heads.Count = 0 }, FaultHeads},
		{"target heads", func(s *WriteSpec) { s.Target.Heads.First = 1 }, FaultHeads},
		{"wrapping heads", func(s *WriteSpec) { s.Heads = HeadRange{1, math.MaxInt} }, FaultHeads},
		{"row bytes", func(s *WriteSpec) { s.Target.RowBytes = 4 }, FaultRowBytes},
		{"block tokens", func(s *WriteSpec) { s.Target = latent(4, 8) }, FaultBlockTokens},
		{"block tokens of the placement", func(s *WriteSpec) { s.Placement.BlockTokens = 8 }, FaultBlockTokens},
		{"region", func(s *WriteSpec) { s.Source.BlockStride = 8 }, FaultRegion},
		{"target region", func(s *WriteSpec) { s.Target.Offset = -8 }, FaultRegion},
		{"mixed DCP", func(s *WriteSpec) { s.SourceDCP = 3 }, FaultDCP},
		{"DCP to none", func(s *WriteSpec) { s.SourceDCP, s.Placement.DCP = 2, 1 }, FaultDCP},
		{"rank", func(s *WriteSpec) { s.TargetRank = 2 }, FaultNumber},
		{"negative rank", func(s *WriteSpec) { s.TargetRank = -1 }, FaultNumber},
		{"negative first token", func(s *WriteSpec) { s.FirstToken = -1 }, FaultNumber},
		{"first token after the prompt", func(s *WriteSpec) { s.FirstToken = 10 }, FaultNumber},
		{"negative DCP", func(s *WriteSpec) { s.SourceDCP = -1 }, FaultNumber},
		{"negative DCP of the target", func(s *WriteSpec) { s.Placement.DCP = -1 }, FaultNumber},
		{"negative interleave", func(s *WriteSpec) { s.Placement.Interleave = -1 }, FaultNumber},
		{"negative block", func(s *WriteSpec) { s.Placement.BlockTokens = -1 }, FaultNumber},
		{"huge DCP", func(s *WriteSpec) { s.Placement.DCP = math.MaxInt }, FaultNumber},
		{"huge prompt", func(s *WriteSpec) { s.Tokens = math.MaxInt }, FaultNumber},
	} {
		s := valid()
		c.corrupt(&s)
		before := []Copy{{Length: 1, Count: 1}}
		got, err := WritePlan(before, s)
		var planError *PlanError
		if !errors.As(err, &planError) || planError.Fault != c.fault || planError.Error() == "" {
			t.Errorf("%s: error %v, want fault %s", c.name, err, c.fault)
		}
		if !reflect.DeepEqual(got, before) {
			t.Errorf("%s: a refused plan changed the copies to %+v", c.name, got)
		}
	}
	if _, err := WritePlan(nil, valid()); err != nil {
		t.Errorf("the unbroken spec: %v", err)
	}
}

func TestWritePlanAllocatesOnlyTheCopies(t *testing.T) {
	r := random(t)
	s := randomSpec(r)
	copies, err := WritePlan(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	room := make([]Copy, 0, len(copies))
	if n := testing.AllocsPerRun(10, func() { _, _ = WritePlan(room, s) }); n > 0 {
		t.Errorf("%+v: %v allocations", s, n)
	}
}
