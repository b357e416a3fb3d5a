package strided_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport/internal/strided"
)

// expand lists where each byte goes, in order.
func expand(copies []kvlayout.Copy) [][2]int64 {
	var out [][2]int64
	for _, c := range copies {
		for i := range int64(c.Count) {
			for k := range c.Length {
				out = append(out, [2]int64{c.Src + i*c.SrcStride + k, c.Dst + i*c.DstStride + k})
			}
		}
	}
	return out
}

// TestCutter: whatever the portions, the same bytes go to the same places in the
// same order.
func TestCutter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		copies := make([]kvlayout.Copy, r.IntN(5))
		for i := range copies {
			length := r.Int64N(9)
			copies[i] = kvlayout.Copy{
				Src: r.Int64N(50), SrcStride: length + r.Int64N(2)*r.Int64N(5), Dst: r.Int64N(50),
				DstStride: length + r.Int64N(2)*r.Int64N(5), Length: length, Count: r.IntN(5),
			}
		}
		want := expand(copies)
		room, most := 1+r.Int64N(20), 1+r.IntN(3)
		k := strided.Cut(copies)
		var got [][2]int64
		for !k.Over() {
			portion := k.Next(nil, room, most)
			n := strided.Bytes(portion)
			if n == 0 || n > room || len(portion) > most {
				t.Fatalf("a portion of %d bytes and %d copies, at most %d and %d are wanted", n, len(portion), room, most)
			}
			got = append(got, expand(portion)...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%+v with room %d (-want +got):\n%s", copies, room, diff)
		}
	}
}

func TestInterleave(t *testing.T) {
	row := kvlayout.Copy{Src: 1000, SrcStride: 40, Dst: 5, DstStride: 10, Length: 10, Count: 4}
	for _, c := range []struct {
		name   string
		change func(*kvlayout.Copy)
		want   bool
	}{
		{"next row", func(c *kvlayout.Copy) { c.Src += 10; c.Dst = 77 }, true},
		{"row before", func(c *kvlayout.Copy) { c.Src -= 30 }, true},
		{"next group", func(c *kvlayout.Copy) { c.Src += 40 }, false},
		{"other length", func(c *kvlayout.Copy) { c.Length = 9 }, false},
		{"other count", func(c *kvlayout.Copy) { c.Count = 3 }, false},
		{"other stride", func(c *kvlayout.Copy) { c.SrcStride = 50 }, false},
	} {
		o := row
		c.change(&o)
		a, b := strided.Cut([]kvlayout.Copy{row}), strided.Cut([]kvlayout.Copy{o})
		_, same := a.Lag(&b)
		if got := strided.Interleave(row, o); got != c.want || same != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestLag(t *testing.T) {
	rows := func(first int64) []kvlayout.Copy {
		out := make([]kvlayout.Copy, 10)
		for i := range out {
			out[i] = kvlayout.Copy{Src: int64(i*7%10)*400 + first, SrcStride: 40, DstStride: 10, Length: 10, Count: 10}
		}
		return out
	}
	a, b := strided.Cut(rows(0)), strided.Cut(rows(10))
	a.Next(nil, 350, 100) // three whole copies, though there is room for more pieces
	if lag, same := b.Lag(&a); lag != 3 || !same {
		t.Errorf("lag %d, %v, want 3", lag, same)
	}
	if lag, same := a.Lag(&b); lag != -3 || !same {
		t.Errorf("lag %d, %v, want -3", lag, same)
	}
	other := strided.Cut(rows(4000))
	if _, same := other.Lag(&a); same {
		t.Error("another part of the source is taken for the same")
	}
}
