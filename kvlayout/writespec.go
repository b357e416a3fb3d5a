package kvlayout

import (
	"fmt"
	"math"
)

// PlanFault says why a write cannot be planned.
type PlanFault string

// The faults of a WriteSpec.
const (
	// FaultRegion: a region whose rows overlap or leave the address range.
	FaultRegion PlanFault = "region"
	// FaultNumber: a negative, missing or too large number.
	FaultNumber PlanFault = "number"
	// FaultBlockTokens: the block sizes of source, target and placement differ.
	FaultBlockTokens PlanFault = "block-tokens"
	// FaultRowBytes: a row has different sizes on the two sides.
	FaultRowBytes PlanFault = "row-bytes"
	// FaultHeads: a head to copy is missing on one side.
	FaultHeads PlanFault = "heads"
	// FaultDCP: the source is neither unsharded nor sharded like the target.
	FaultDCP PlanFault = "dcp"
	// FaultInterleave: the interleave does not divide the block.
	FaultInterleave PlanFault = "interleave"
	// FaultSourceShort: fewer source blocks than the prompt fills.
	FaultSourceShort PlanFault = "source-short"
	// FaultTargetShort: the target allocation has no room for the whole source blocks.
	FaultTargetShort PlanFault = "target-short"
	// FaultBlockID: a block id outside its region.
	FaultBlockID PlanFault = "block-id"
)

// PlanError is the error of WritePlan.
type PlanError struct {
	Fault  PlanFault
	Detail string // one sentence with the numbers
}

func (e *PlanError) Error() string { return e.Detail }

func planErrorf(f PlanFault, format string, args ...any) error {
	return &PlanError{Fault: f, Detail: fmt.Sprintf(format, args...)}
}

// deal is how the rows of the source blocks go to the reader: groups of interleave
// rows, every ranks-th one from rank on. Sources dealt like the target, and targets
// without DCP, take every row: one group per block.
type deal struct {
	ranks, rank, interleave int
	first                   int // first row to write, counted over the source blocks
	blocks                  int // source blocks to write
}

// deal checks the spec, but for the block ids.
func (s WriteSpec) deal() (deal, error) {
	if err := s.checkNumbers(); err != nil {
		return deal{}, err
	}
	if err := s.checkRegions(); err != nil {
		return deal{}, err
	}
	n, interleave, b := s.Placement.degrees()
	if n > 1 && b%interleave != 0 {
		return deal{}, planErrorf(FaultInterleave, "interleave %d does not divide the block of %d tokens", interleave, b)
	}
	var d deal
	switch max(s.SourceDCP, 1) {
	case n:
		d = deal{ranks: 1, interleave: b, first: s.Placement.Share(s.FirstToken, s.TargetRank), blocks: s.Placement.BlocksFor(s.Tokens)}
	case 1:
		d = deal{ranks: n, rank: s.TargetRank, interleave: interleave, first: s.FirstToken, blocks: ceilDiv(s.Tokens, b)}
	default:
		return deal{}, planErrorf(FaultDCP, "a source of DCP %d cannot write to a target of DCP %d", s.SourceDCP, n)
	}
	if s.FirstToken == s.Tokens {
		return deal{ranks: 1, interleave: b}, nil
	}
	if len(s.SourceBlocks) < d.blocks {
		return deal{}, planErrorf(FaultSourceShort, "%d tokens fill %d source blocks of %d tokens, %d are given",
			s.Tokens, d.blocks, b, len(s.SourceBlocks))
	}
	if need := ceilDiv(d.blocks, d.ranks); len(s.TargetBlocks) < need {
		return deal{}, planErrorf(FaultTargetShort, "%d source blocks need %d target blocks at DCP %d, %d are allocated",
			d.blocks, need, n, len(s.TargetBlocks))
	}
	return d, nil
}

func (s WriteSpec) checkNumbers() error {
	n, _, b := s.Placement.degrees()
	switch {
	case s.SourceDCP < 0 || s.Placement.DCP < 0 || s.Placement.Interleave < 0 || s.Placement.BlockTokens < 0:
		return planErrorf(FaultNumber, "source DCP %d, target DCP %d, interleave %d and block of %d tokens may not be negative",
			s.SourceDCP, s.Placement.DCP, s.Placement.Interleave, s.Placement.BlockTokens)
	case n > math.MaxInt32:
		return planErrorf(FaultNumber, "a DCP group of %d ranks", n)
	case s.TargetRank < 0 || s.TargetRank >= n:
		return planErrorf(FaultNumber, "DCP rank %d is outside a group of %d", s.TargetRank, n)
	case s.FirstToken < 0 || s.FirstToken > s.Tokens:
		return planErrorf(FaultNumber, "first token %d is outside a prompt of %d tokens", s.FirstToken, s.Tokens)
	case s.Tokens > math.MaxInt-b:
		return planErrorf(FaultNumber, "a prompt of %d tokens is too long for blocks of %d", s.Tokens, b)
	}
	return nil
}

func (s WriteSpec) checkRegions() error {
	if err := s.Source.Validate(); err != nil {
		return planErrorf(FaultRegion, "source %v", err)
	}
	if err := s.Target.Validate(); err != nil {
		return planErrorf(FaultRegion, "target %v", err)
	}
	b := s.Source.BlockTokens
	switch {
	case b != s.Target.BlockTokens || b != max(s.Placement.BlockTokens, 1):
		return planErrorf(FaultBlockTokens, "blocks of %d tokens at the source, %d at the target and %d in its placement",
			b, s.Target.BlockTokens, s.Placement.BlockTokens)
	case s.Source.RowBytes != s.Target.RowBytes:
		return planErrorf(FaultRowBytes, "rows of %d bytes at the source and %d at the target", s.Source.RowBytes, s.Target.RowBytes)
	case !s.Source.Heads.contains(s.Heads):
		return planErrorf(FaultHeads, "the source holds heads %s, not %s", s.Source.Heads, s.Heads)
	case !s.Target.Heads.contains(s.Heads):
		return planErrorf(FaultHeads, "the target holds heads %s, not %s", s.Target.Heads, s.Heads)
	}
	return nil
}

// checkIDs refuses block ids outside the regions: SourceBlocks[j], TargetBlocks[k].
func (s *WriteSpec) checkIDs(j, k int) error {
	if id := s.SourceBlocks[j]; id < 0 || int(id) >= s.Source.Blocks {
		return planErrorf(FaultBlockID, "source block %d is outside the %d blocks of the source", id, s.Source.Blocks)
	}
	if id := s.TargetBlocks[k]; id < 0 || int(id) >= s.Target.Blocks {
		return planErrorf(FaultBlockID, "target block %d is outside the %d blocks of the target", id, s.Target.Blocks)
	}
	return nil
}

// String shows the range as first-last, both included.
func (r HeadRange) String() string {
	if r.Count < 1 {
		return "none"
	}
	if r.Count == 1 {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.First+r.Count-1)
}
