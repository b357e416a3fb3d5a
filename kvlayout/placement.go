package kvlayout

import "fmt"

// Placement says how one engine instance deals the tokens of a sequence to the
// ranks of a DCP group and to their blocks. Values below 1 count as 1. Its
// functions need an interleave that divides BlockTokens, or DCP 1, as every
// layout has that Check lets pass; Validate says so.
type Placement struct {
	DCP         int // ranks that share a sequence
	Interleave  int // consecutive tokens dealt to one rank
	BlockTokens int // tokens per block on one rank
}

// Validate returns an error if the placement is not one that an engine can run:
// with DCP above 1 the interleave has to divide the block.
func (p Placement) Validate() error {
	n, i, b := p.degrees()
	if n > 1 && b%i != 0 {
		return fmt.Errorf("interleave %d does not divide the block of %d tokens", i, b)
	}
	return nil
}

func (p Placement) degrees() (dcp, interleave, blockTokens int) {
	return max(p.DCP, 1), max(p.Interleave, 1), max(p.BlockTokens, 1)
}

// Locate returns where token (counted from 0 in the sequence) lives: the DCP rank,
// the index into the sequence's block list (not a block id) and the slot inside
// the block. It is the slot mapping of vLLM's block table.
func (p Placement) Locate(token int) (rank, block, slot int) {
	n, i, b := p.degrees()
	// Two steps rather than token/(n*b), which could overflow.
	block = token / b / n
	inBlock := token - block*n*b
	return inBlock / i % n, block, inBlock/i/n*i + inBlock%i
}

// Token is the inverse of Locate. It may lie past the end of the sequence, as the
// last block is rarely full.
func (p Placement) Token(rank, block, slot int) int {
	n, i, b := p.degrees()
	return block*n*b + slot/i*i*n + rank*i + slot%i
}

// BlocksFor returns how many blocks a sequence of tokens needs. It is the same on
// every rank, as all ranks of a DCP group use one block list.
func (p Placement) BlocksFor(tokens int) int {
	n, _, b := p.degrees()
	return ceilDiv(ceilDiv(tokens, b), n)
}

// Share returns how many of the first tokens of a sequence live on the DCP rank.
// As a rank fills its slots in order, it is also the rank-local position of the
// first token at or after tokens.
func (p Placement) Share(tokens, rank int) int {
	n, i, _ := p.degrees()
	if tokens <= 0 {
		return 0
	}
	groups, rest := tokens/i, tokens%i
	own := groups / n * i
	switch last := groups % n; {
	case rank < last:
		return own + i
	case rank == last:
		return own + rest
	}
	return own
}

// DCPRank is the rank inside its DCP group of tensor parallel rank tp: vLLM cuts
// the TP group into consecutive runs of DCP ranks.
func DCPRank(tp int, l Layout) int {
	if l.DCP <= 1 {
		return 0
	}
	return tp % l.DCP
}

// ceilDiv rounds up, does not overflow, and is 0 for a not positive a.
func ceilDiv(a, b int) int {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}
