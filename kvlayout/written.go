package kvlayout

import (
	"cmp"
	"slices"
)

// Flow is what one prefill TP rank writes to one decode TP rank.
type Flow struct {
	Writer int   `json:"prefillRank"`
	Reader int   `json:"decodeRank"`
	Bytes  int64 `json:"bytes"`
}

// Written predicts the bytes of a new prompt of tokens tokens, none of them cached
// at the decode side, over all layers: one Flow per pair of ranks that moves
// anything, ordered by writer and reader. It is arithmetic, without a plan, and
// agrees with WritePlan: whole source blocks count. It is nil for layouts that
// cannot be written (unequal DCP other than 1 to N, an interleave that does not
// divide the block), for unknown types and for no tokens.
func Written(g Geometry, t KVType, p, d Layout, blockTokens, tokens int) []Flow {
	p, d = p.Defaulted(), d.Defaulted()
	place := Placement{DCP: d.DCP, Interleave: d.Interleave, BlockTokens: blockTokens}
	perRow := mulSat(RowBytes(g, t), int64(g.Layers))
	if tokens < 1 || blockTokens < 1 || perRow == 0 || place.Validate() != nil || (p.DCP != 1 && p.DCP != d.DCP) {
		return nil
	}
	var flows []Flow
	for rank := range d.TP {
		rows := writtenRows(place, p.DCP, DCPRank(rank, d), tokens)
		for _, w := range Writers(g, p, d, rank) {
			bytes := mulSat(perRow, int64(w.Heads.Count), rows)
			if n := len(flows); n > 0 && flows[n-1].Writer == w.Rank && flows[n-1].Reader == rank {
				flows[n-1].Bytes = addSat(flows[n-1].Bytes, bytes)
			} else if bytes > 0 {
				flows = append(flows, Flow{Writer: w.Rank, Reader: rank, Bytes: bytes})
			}
		}
	}
	slices.SortFunc(flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Writer, b.Writer), cmp.Compare(a.Reader, b.Reader))
	})
	return flows
}

// writtenRows is the number of rows of one head and layer that a decode rank gets.
func writtenRows(place Placement, sourceDCP, rank, tokens int) int64 {
	if sourceDCP > 1 {
		return mulSat(int64(place.BlocksFor(tokens)), int64(place.BlockTokens))
	}
	whole := mulSat(int64(ceilDiv(tokens, place.BlockTokens)), int64(place.BlockTokens))
	return int64(place.Share(int(whole), rank))
}
