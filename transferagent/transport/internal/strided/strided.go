// Package strided walks lists of strided copies.
package strided

import "github.com/pdpool/pdpool/kvlayout"

// Cutter cuts a list of copies into portions. It keeps its place: which copy,
// which piece of it, which byte of that. The list must have been checked to be
// without negative lengths and counts; it is not changed.
type Cutter struct {
	copies []kvlayout.Copy
	piece  int
	offset int64
}

// Cut is a Cutter at the start of copies.
func Cut(copies []kvlayout.Copy) Cutter { return Cutter{copies: copies} }

// Next appends to out the next copies, at most room bytes in all, until out
// holds most of them. It ends between copies where it can: only a copy that is
// longer than room is split, between pieces if possible. Only copies that move
// bytes are given.
func (k *Cutter) Next(out []kvlayout.Copy, room int64, most int) []kvlayout.Copy {
	first := len(out)
	for room > 0 && len(out) < most && !k.Over() {
		c := joined(k.copies[0])
		if len(out) > first && k.left(c) > room {
			break
		}
		at := kvlayout.Copy{
			Src: c.Src + int64(k.piece)*c.SrcStride + k.offset, SrcStride: c.SrcStride,
			Dst: c.Dst + int64(k.piece)*c.DstStride + k.offset, DstStride: c.DstStride,
		}
		if k.offset > 0 || c.Length > room {
			at.Length, at.Count = min(c.Length-k.offset, room), 1
			at.SrcStride, at.DstStride = 0, 0
			if k.offset += at.Length; k.offset == c.Length {
				k.offset, k.piece = 0, k.piece+1
			}
		} else {
			at.Length, at.Count = c.Length, int(min(int64(c.Count-k.piece), room/c.Length))
			k.piece += at.Count
		}
		room -= at.Bytes()
		out = append(out, at)
	}
	return out
}

// left is what remains of the next copy c in bytes.
func (k *Cutter) left(c kvlayout.Copy) int64 { return int64(c.Count-k.piece)*c.Length - k.offset }

// Over reports whether no byte is left.
func (k *Cutter) Over() bool {
	for len(k.copies) > 0 && (k.copies[0].Bytes() == 0 || k.piece >= joined(k.copies[0]).Count) {
		k.copies, k.piece = k.copies[1:], 0
	}
	return len(k.copies) == 0
}

// Lag reports whether k and o go through the same part of the source, and how
// many copies k is behind o there (it is ahead if that is negative). At the same
// place their next copies interleave: done piece by piece in turn, the source is
// read once, as for the readers of one block.
func (k *Cutter) Lag(o *Cutter) (copies int, same bool) {
	if k.Over() || o.Over() || k.piece != o.piece || k.offset != 0 || o.offset != 0 {
		return 0, false
	}
	lag := len(k.copies) - len(o.copies)
	if lag < 0 {
		return lag, Interleave(k.copies[0], o.copies[-lag])
	}
	return lag, Interleave(k.copies[lag], o.copies[0])
}

// Interleave reports whether two copies are alike and lie between each other in
// the source.
func Interleave(a, b kvlayout.Copy) bool {
	apart := max(a.Src, b.Src) - min(a.Src, b.Src)
	return a.Length == b.Length && a.Count == b.Count && a.SrcStride == b.SrcStride && a.Length < a.SrcStride && apart < a.SrcStride
}

// joined makes one piece of a copy without gaps on both sides.
func joined(c kvlayout.Copy) kvlayout.Copy {
	if c.Count > 1 && c.SrcStride == c.Length && c.DstStride == c.Length {
		return kvlayout.Copy{Src: c.Src, Dst: c.Dst, Length: c.Bytes(), Count: 1}
	}
	return c
}

// Bytes sums copies.
func Bytes(copies []kvlayout.Copy) int64 {
	n := int64(0)
	for _, c := range copies {
		n += c.Bytes()
	}
	return n
}
