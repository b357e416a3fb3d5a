package enginesim

import "fmt"

// Layout is how one instance splits its cache: what vLLM's flags of the same
// names say, and the order of heads and tokens inside a block.
type Layout struct {
	TP         int
	DP         int // over all pods
	DPLocal    int // in this process
	DPStart    int // first global data parallel rank of this process
	DCP        int
	Interleave int
	Block      int // tokens per block and rank
	TokenMajor bool
}

// slot is where the row of a token lies: block is an index into the request's
// block list.
type slot struct{ rank, block, slot int }

// place says which DCP rank keeps token t of a sequence and where. It is the
// formula by which vLLM deals tokens (its block table's slot mapping): one block
// id stands for DCP*Block tokens, which go to the ranks in turns of Interleave.
func (l Layout) place(t int) slot {
	virtual := l.Block * l.DCP
	offset := t % virtual
	turn := l.Interleave * l.DCP
	return slot{
		rank:  offset / l.Interleave % l.DCP,
		block: t / virtual,
		slot:  offset/turn*l.Interleave + offset%l.Interleave,
	}
}

// blocksFor is the number of blocks that hold the given tokens.
func (l Layout) blocksFor(tokens int) int {
	virtual := l.Block * l.DCP
	return (tokens + virtual - 1) / virtual
}

// dcpRank is the place of a TP rank among the consecutive ranks that share the
// tokens of a sequence.
func (l Layout) dcpRank(tp int) int { return tp % l.DCP }

// headsOf is the range of KV heads on a TP rank: a slice, or where there are more
// ranks than heads, one head that neighbours keep too.
func (l Layout) headsOf(g Geometry, tp int) (first, count int) {
	switch {
	case g.Kind == mla:
		return 0, 1
	case l.TP <= g.KVHeads:
		return tp * g.KVHeads / l.TP, g.KVHeads / l.TP
	}
	return tp * g.KVHeads / l.TP, 1
}

// check refuses what vLLM refuses at start.
func (l Layout) check(g Geometry) error {
	switch {
	case min(l.TP, l.DP, l.DCP, l.Interleave, l.Block) < 1 || l.TP > maxRanks:
		return fmt.Errorf("every degree and the block size must be at least 1 (and TP at most %d)", maxRanks)
	case max(l.Block, l.Interleave) > maxBlock:
		return fmt.Errorf("block size %d or interleave %d is over %d", l.Block, l.Interleave, maxBlock)
	case l.DPLocal < 1 || l.DPLocal > maxRanks || l.DPStart < 0 || l.DPStart > l.DP-l.DPLocal:
		return fmt.Errorf("%d data parallel ranks from %d are not within --data-parallel-size %d", l.DPLocal, l.DPStart, l.DP)
	case g.AttentionHeads%l.TP != 0:
		return fmt.Errorf("%d attention heads are not divisible by --tensor-parallel-size %d", g.AttentionHeads, l.TP)
	case g.KVHeads%l.TP != 0 && l.TP%g.KVHeads != 0:
		return fmt.Errorf("%d KV heads can't be split over --tensor-parallel-size %d", g.KVHeads, l.TP)
	case l.DCP > 1:
		return l.checkDCP(g)
	}
	return nil
}

func (l Layout) checkDCP(g Geometry) error {
	switch {
	case l.TP%l.DCP != 0:
		return fmt.Errorf("--tensor-parallel-size %d is not divisible by --decode-context-parallel-size %d", l.TP, l.DCP)
	case l.Interleave > l.Block || l.Block%l.Interleave != 0:
		return fmt.Errorf("--block-size %d is not a multiple of --cp-kv-cache-interleave-size %d", l.Block, l.Interleave)
	case g.Kind == mla:
		return nil
	case l.TP <= g.KVHeads || l.DCP > l.TP/g.KVHeads:
		return fmt.Errorf("--decode-context-parallel-size %d needs as many ranks per KV head, but --tensor-parallel-size is %d for %d heads", l.DCP, l.TP, g.KVHeads)
	case g.AttentionHeads/g.KVHeads%l.DCP != 0:
		return fmt.Errorf("%d attention heads per KV head are not divisible by --decode-context-parallel-size %d", g.AttentionHeads/g.KVHeads, l.DCP)
	}
	return nil
}

const (
	maxRanks = 64
	maxBlock = 1 << 20
)
