package tcp

import "github.com/pdpool/pdpool/kvlayout"

// cutter cuts a list of copies into frames. It keeps its place: which copy,
// which piece of it, which byte of that.
type cutter struct {
	copies []kvlayout.Copy
	piece  int
	offset int64
}

// cut appends to out the next copies, at most room bytes and runs of them. A
// piece that is longer than what is left of room is split.
func (k *cutter) cut(out []kvlayout.Copy, room int64, runs int) []kvlayout.Copy {
	for len(k.copies) > 0 && room > 0 && len(out) < runs {
		c := joined(k.copies[0])
		if c.Bytes() == 0 || k.piece >= c.Count {
			k.copies, k.piece = k.copies[1:], 0
			continue
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
	for len(k.copies) > 0 && (k.copies[0].Bytes() == 0 || k.piece >= joined(k.copies[0]).Count) {
		k.copies, k.piece = k.copies[1:], 0
	}
	return out
}

// over reports whether everything has been cut.
func (k *cutter) over() bool { return len(k.copies) == 0 }

// joined makes one piece of a copy without gaps on both sides.
func joined(c kvlayout.Copy) kvlayout.Copy {
	if c.Count > 1 && c.SrcStride == c.Length && c.DstStride == c.Length {
		return kvlayout.Copy{Src: c.Src, Dst: c.Dst, Length: c.Bytes(), Count: 1}
	}
	return c
}
