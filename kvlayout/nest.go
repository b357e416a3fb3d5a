package kvlayout

import "math"

// nest is a piece of length bytes repeated over up to three strided loops.
type nest struct {
	length int64
	dims   [3]dim
}

// fold takes loops of one step out, joins those whose steps touch on both sides
// into a longer piece, and orders the rest by falling source stride.
func (n *nest) fold() {
	for again := true; again; {
		again = false
		for i := range n.dims {
			d := &n.dims[i]
			if d.count > 1 && d.src == n.length && d.dst == n.length {
				n.length *= d.count
				*d = dim{count: 1}
				again = true
			}
		}
	}
	for i := range n.dims {
		if n.dims[i].count <= 1 {
			// Sorts to the front, where a loop of one step costs nothing.
			n.dims[i] = dim{count: 1, src: math.MaxInt64}
		}
	}
	d := &n.dims
	for _, p := range [][2]int{{0, 1}, {1, 2}, {0, 1}} {
		if d[p[0]].src < d[p[1]].src {
			d[p[0]], d[p[1]] = d[p[1]], d[p[0]]
		}
	}
}

// appendCopies appends a folded nest that starts at src and dst: one strided copy
// per step of the two outer loops. A copy of one piece that continues the last one
// since mark extends that instead.
func (n *nest) appendCopies(copies []Copy, mark int, src, dst int64) []Copy {
	outer, middle, inner := n.dims[0], n.dims[1], n.dims[2]
	c := Copy{Length: n.length, Count: int(inner.count)}
	if c.Count > 1 {
		c.SrcStride, c.DstStride = inner.src, inner.dst
	}
	for i := range outer.count {
		for j := range middle.count {
			c.Src, c.Dst = src, dst
			if i > 0 {
				c.Src, c.Dst = c.Src+i*outer.src, c.Dst+i*outer.dst
			}
			if j > 0 {
				c.Src, c.Dst = c.Src+j*middle.src, c.Dst+j*middle.dst
			}
			if last := len(copies) - 1; last >= mark && copies[last].continuedBy(c) {
				copies[last].Length += c.Length
				continue
			}
			copies = append(copies, c)
		}
	}
	return copies
}

func (c Copy) continuedBy(next Copy) bool {
	return c.Count == 1 && next.Count == 1 && c.Src+c.Length == next.Src && c.Dst+c.Length == next.Dst
}
