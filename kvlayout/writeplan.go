package kvlayout

// WriteSpec asks for the copies of one layer of one request from one writer to one
// reader. Both block lists start at the first token of the sequence, also where
// FirstToken is later:
//
//   - SourceDCP 1: SourceBlocks[j] holds tokens [j*B, (j+1)*B) of the sequence
//     (B is the block size of both regions), TargetBlocks[k] the reader's share of
//     tokens [k*N*B, (k+1)*N*B), N being Placement.DCP.
//   - SourceDCP N above 1: both lists hold shares of the same N*B tokens per block.
//
// The source region is the writer's. With SourceDCP N it has to be the one of DCP
// rank TargetRank, dealt with the interleave of Placement: the spec cannot show
// that, Compatible (rule dcp-interleave) and Writers see to it.
type WriteSpec struct {
	Source, Target             Region
	SourceBlocks, TargetBlocks []int32
	SourceDCP                  int       // 1 or Placement.DCP; 0 counts as 1
	Placement                  Placement // of the target
	TargetRank                 int       // DCP rank of the reader
	FirstToken                 int       // first token that the target lacks
	Tokens                     int       // length of the prompt, cached tokens included
	Heads                      HeadRange // global heads to copy, held by both regions
}

// WritePlan appends the copies of s to dst and returns the extended slice; on an
// error, a *PlanError, it returns dst unchanged. Offsets are those of the two
// regions, each in the memory of its own rank.
//
// Whole source blocks are written: every row of the reader's from FirstToken to
// the end of the last source block that holds a prompt token, so rows after the
// prompt's end are included (1,000 tokens at B 64 are 16 blocks). A target that has
// no room for them is refused, never truncated. FirstToken equal to Tokens needs
// no copy. More source blocks than the prompt fills are ignored.
//
// The copies follow the source block list. A block takes one copy per segment that
// is regular on both sides: the latent of MLA, all heads where they are laid out
// alike, else a head; with gaps between rows on one side, one per group of
// interleaved tokens. They come by rising source offset, after those of a group that
// FirstToken cuts. Copies of one piece that continue the one before on both sides are
// merged with it. Every target byte is written at
// most once if TargetBlocks names no block twice; bytes between rows are never
// touched. It allocates nothing but the growth of dst.
func WritePlan(dst []Copy, s WriteSpec) ([]Copy, error) {
	d, err := s.deal()
	if err != nil {
		return dst, err
	}
	mark := len(dst)
	perBlock := s.Source.BlockTokens / d.interleave
	for j := d.first / s.Source.BlockTokens; j < d.blocks; j++ {
		from, to := s.SourceBlocks[j], s.TargetBlocks[j/d.ranks]
		if err := s.checkIDs(j, j/d.ranks); err != nil {
			return dst[:mark], err
		}
		// Group k of this block is group j*perBlock+k of the sequence; the reader
		// has every ranks-th one.
		base := j * perBlock
		k := floorMod(d.rank-base, d.ranks)
		cut := 0
		if skip := d.first - j*s.Source.BlockTokens; skip > 0 {
			k += ceilDiv(skip/d.interleave-k, d.ranks) * d.ranks
			if k == skip/d.interleave {
				cut = skip % d.interleave
			}
		}
		if cut > 0 {
			dst = s.appendGroups(dst, mark, d, group{from, to, base, k, 1, cut})
			k += d.ranks
		}
		if n := ceilDiv(perBlock-k, d.ranks); n > 0 {
			dst = s.appendGroups(dst, mark, d, group{from, to, base, k, n, 0})
		}
	}
	return dst, nil
}

// PlanBytes is what the copies move.
func PlanBytes(copies []Copy) int64 {
	var sum int64
	for _, c := range copies {
		sum = addSat(sum, c.Bytes())
	}
	return sum
}

// group names count token groups, ranks groups apart, of one source block.
type group struct {
	from, to  int32 // block ids
	base      int   // index in the sequence of the block's first group
	k         int   // index in the block of the first one
	count     int
	skippedIn int // tokens left out at the start of each
}

// appendGroups appends the copies of one run of groups, merging with what this
// plan (from mark on) has appended before.
func (s WriteSpec) appendGroups(dst []Copy, mark int, d deal, g group) []Copy {
	slot := (g.base+g.k)/d.ranks*d.interleave%s.Target.BlockTokens + g.skippedIn
	src := s.Source.row(g.from, s.Heads.First, g.k*d.interleave+g.skippedIn)
	to := s.Target.row(g.to, s.Heads.First, slot)
	n := nest{length: s.Source.RowBytes, dims: [3]dim{
		{count: int64(d.interleave - g.skippedIn), src: s.Source.TokenStride, dst: s.Target.TokenStride},
		{count: int64(s.Heads.Count), src: s.Source.HeadStride, dst: s.Target.HeadStride},
		{
			count: int64(g.count),
			src:   int64(d.ranks) * int64(d.interleave) * s.Source.TokenStride,
			dst:   int64(d.interleave) * s.Target.TokenStride,
		},
	}}
	n.fold()
	return n.appendCopies(dst, mark, src, to)
}

func floorMod(a, n int) int { return (a%n + n) % n }
