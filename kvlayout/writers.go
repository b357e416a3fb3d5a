package kvlayout

import (
	"cmp"
	"slices"
)

// Writer is a prefill TP rank and the heads that it provides to one decode rank.
type Writer struct {
	Rank  int       `json:"rank"`
	Heads HeadRange `json:"heads"`
}

// Reader is a decode TP rank and the heads that it takes from one prefill rank.
type Reader struct {
	Rank  int       `json:"rank"`
	Heads HeadRange `json:"heads"`
}

// HeadsOf returns the global KV heads that TP rank tpRank holds: MLA's one latent
// on every rank; an even split while there are at least as many heads as ranks;
// else one head, held by several consecutive ranks (vLLM's sharding). A head
// count that TP neither divides nor is divided by is refused by kv-heads-tp; the
// split is then uneven. A rank outside the TP group holds nothing.
func HeadsOf(g Geometry, l Layout, tpRank int) HeadRange {
	tp := l.Defaulted().TP
	switch {
	case tp < 1 || tpRank < 0 || tpRank >= tp:
		return HeadRange{}
	case g.Kind == MLA:
		return HeadRange{First: 0, Count: 1}
	case g.KVHeads < 1:
		return HeadRange{}
	case tp > g.KVHeads:
		return HeadRange{First: tpRank * g.KVHeads / tp, Count: 1}
	}
	first := tpRank * g.KVHeads / tp
	return HeadRange{First: first, Count: (tpRank+1)*g.KVHeads/tp - first}
}

// Writers returns the prefill TP ranks that write to decode TP rank decodeTP, each
// with the global heads it provides, ordered by rank and head. Every head of the
// decode rank is in exactly one entry, unless no prefill rank holds it (layouts
// that Compatible refuses).
//
// A head is taken from its first holder at or after the rank that stands where the
// decode rank stands in its own TP group, so that replicated heads and latents
// spread over the prefill ranks; a prefill with DCP serves only decode ranks of
// the same DCP rank. For equal DCP degrees of 1 that is the mapping of vLLM 0.33's
// MoRIIO connector, and it also serves MLA pairs whose TP degrees are no multiples.
func Writers(g Geometry, p, d Layout, decodeTP int) []Writer {
	p, d = p.Defaulted(), d.Defaulted()
	own := HeadsOf(g, d, decodeTP)
	if own.Count == 0 || p.TP < 1 {
		return nil
	}
	var ws []Writer
	for head := own.First; head < own.First+own.Count; head++ {
		rank, ok := writerOf(g, p, d, decodeTP, head)
		if !ok {
			continue
		}
		if n := len(ws); n > 0 && ws[n-1].Rank == rank && ws[n-1].Heads.end() == head {
			ws[n-1].Heads.Count++
			continue
		}
		ws = append(ws, Writer{Rank: rank, Heads: HeadRange{First: head, Count: 1}})
	}
	slices.SortStableFunc(ws, func(a, b Writer) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Heads.First, b.Heads.First))
	})
	return ws
}

// Readers is the inverse of Writers: the decode TP ranks that prefill TP rank
// prefillTP writes to, ordered by rank and head. It is empty for a rank whose
// data another holder provides.
func Readers(g Geometry, p, d Layout, prefillTP int) []Reader {
	var rs []Reader
	for rank := range d.Defaulted().TP {
		for _, w := range Writers(g, p, d, rank) {
			if w.Rank == prefillTP {
				rs = append(rs, Reader{Rank: rank, Heads: w.Heads})
			}
		}
	}
	return rs
}

// writerOf chooses the prefill rank that provides head to decode rank decodeTP.
func writerOf(g Geometry, p, d Layout, decodeTP, head int) (rank int, ok bool) {
	lo, hi := holders(g, p.TP, head)
	step, rest := max(p.DCP, 1), DCPRank(decodeTP, d)
	if step == 1 {
		rest = 0
	}
	anchor := decodeTP * p.TP / d.TP
	for _, from := range []int{max(lo, anchor), lo} {
		rank = from + ((rest-from)%step+step)%step
		if rank < hi && rest < step {
			return rank, true
		}
	}
	return 0, false
}

// holders returns the half-open range of the TP ranks that hold head.
func holders(g Geometry, tp, head int) (lo, hi int) {
	switch {
	case g.Kind == MLA:
		return 0, tp
	case tp > g.KVHeads:
		return ceilDiv(head*tp, g.KVHeads), ceilDiv((head+1)*tp, g.KVHeads)
	}
	rank := ((head+1)*tp - 1) / g.KVHeads
	return rank, rank + 1
}

func (r HeadRange) end() int { return r.First + r.Count }

func (r HeadRange) contains(o HeadRange) bool {
	return o.Count > 0 && o.First >= r.First && o.Count <= r.Count && o.First-r.First <= r.Count-o.Count
}
