package transporttest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
)

const room = 4 << 20 // bytes of the memories in the placement cases

// shapes are lists of copies that do not overlap at the target.
func shapes() map[string][]kvlayout.Copy {
	blocks := make([]kvlayout.Copy, 40)
	for i := range blocks {
		blocks[i] = kvlayout.Copy{Src: int64((7*i+3)%40) * 73728, Dst: int64((11*i+5)%40) * 73728, Length: 73728, Count: 1}
	}
	rows := make([]kvlayout.Copy, 0, 40)
	for i := range int64(40) { // as a reader of four at interleave 1 gets them
		rows = append(rows, kvlayout.Copy{
			Src: i*73728 + 1152, SrcStride: 4608, Dst: (39 - i) * 18432, DstStride: 1152, Length: 1152, Count: 16,
		})
	}
	return map[string][]kvlayout.Copy{
		"nothing":        nil,
		"nothing inside": {{Length: 0, Count: 5}, {Length: 5, Count: 0}},
		"one byte":       {{Src: 17, Dst: room - 1, Length: 1, Count: 1}},
		"all":            whole(room),
		"all but ends":   {{Src: 1, Dst: 1, Length: room - 2, Count: 1}},
		"blocks":         blocks,
		"rows":           rows,
		"scatter":        {{Src: 5, SrcStride: 1152, Dst: 3, DstStride: 4608, Length: 1152, Count: 900}},
		"bytes":          {{Src: 1, SrcStride: 3, Dst: 2, DstStride: 5, Length: 1, Count: 200_000}},
		"joined bytes":   {{Src: 9, SrcStride: 1, Dst: 4, DstStride: 1, Length: 1, Count: 100_000}},
		"backwards":      {{Src: 0, SrcStride: 13, Dst: 500_000, DstStride: -13, Length: 13, Count: 30_000}},
		"repeated":       {{Src: 70, SrcStride: 0, Dst: 9, DstStride: 100, Length: 99, Count: 3000}},
		"long pieces":    {{Src: 0, SrcStride: 1 << 20, Dst: 11, DstStride: 1<<20 + 7, Length: 1<<20 - 5, Count: 3}},
		"odd":            random(1, 3000, 1300),
		"odd and long":   random(2, 60, 60_000),
		"many":           random(3, 50_000, 70),
	}
}

// random gives copies of odd lengths up to most, with odd gaps, in mixed order.
func random(seed uint64, n int, most int64) []kvlayout.Copy {
	r := rand.New(rand.NewPCG(seed, 2))
	var out []kvlayout.Copy
	at := int64(1)
	for range n {
		c := kvlayout.Copy{Dst: at, Length: 1 + r.Int64N(most), Count: 1 + r.IntN(4)}
		c.DstStride = c.Length + r.Int64N(3)*r.Int64N(9)
		c.SrcStride = c.Length + r.Int64N(2)*r.Int64N(99)
		if at = c.Dst + c.DstStride*int64(c.Count); at > room {
			break
		}
		c.Src = r.Int64N(room - c.SrcStride*int64(c.Count))
		if c.Count == 1 {
			c.SrcStride, c.DstStride = 0, 0
		}
		out = append(out, c)
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// placement: every byte in its place, nothing else touched, all bytes counted.
func placement(t *testing.T, p *pair) {
	src, dst := p.register(p.a, 1, room), p.register(p.b, 2, room)
	fill(src, 1)
	s := p.dial()
	want := make([]byte, room)
	for name, copies := range shapes() {
		t.Run(name, func(t *testing.T) {
			poisoned(dst)
			poisoned(want)
			apply(want, src, copies)
			moved := p.move(s, transport.Batch{Flow: flow("place " + name), Source: 1, Target: 2, Copies: copies})
			if moved != total(copies) {
				t.Errorf("%d bytes moved, want %d", moved, total(copies))
			}
			if !bytes.Equal(dst, want) {
				t.Errorf("target differs at byte %d", differ(dst, want))
			}
		})
	}
}

func differ(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// doneAfterLastByte looks at the target inside done.
func doneAfterLastByte(t *testing.T, p *pair) {
	const size = 1 << 20
	src, dst := p.register(p.a, 1, size), p.register(p.b, 2, size)
	s := p.dial()
	for i := range 20 {
		fill(src, uint64(i))
		poisoned(dst)
		early := make(chan bool, 1)
		b := transport.Batch{Flow: flow("last"), Source: 1, Target: 2, Copies: whole(size)}
		err := s.Post(t.Context(), b, func(int64, error) { early <- !bytes.Equal(dst, src) })
		if err != nil {
			t.Fatal(err)
		}
		if <-early {
			t.Fatal("done was called before the last byte was in place")
		}
	}
}

// counts: what the receiver counts is what the sender counts, per flow.
func counts(t *testing.T, p *pair) {
	const size = 1 << 16
	fill(p.register(p.a, 1, size), 1)
	p.register(p.b, 2, size)
	s := p.dial()
	var want []transport.Count
	for writer := range 3 {
		for reader := range 2 {
			f := transport.Flow{Transfer: "counted", Writer: transport.Rank{DP: writer, TP: 7}, Reader: transport.Rank{TP: reader}}
			sum := int64(0)
			for i := range 3 {
				n := 1000*writer + 100*reader + i + 1
				sum += p.move(s, transport.Batch{Flow: f, Source: 1, Target: 2, Copies: whole(n)})
			}
			want = append(want, transport.Count{Flow: f, Bytes: sum})
		}
	}
	p.move(s, transport.Batch{Flow: flow("other"), Source: 1, Target: 2, Copies: whole(5)})
	if diff := cmp.Diff(want, p.b.Received("counted")); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}
	if got := p.b.Received("unheard of"); len(got) != 0 {
		t.Errorf("received of an unknown transfer: %v", got)
	}
	if got := p.a.Received("counted"); len(got) != 0 {
		t.Errorf("the writer received %v", got)
	}
}

// bothWays: each mover writes to the other at the same time.
func bothWays(t *testing.T, p *pair) {
	const size = 1 << 20
	srcA, dstA := p.register(p.a, 1, size), p.register(p.a, 2, size)
	srcB, dstB := p.register(p.b, 1, size), p.register(p.b, 2, size)
	fill(srcA, 1)
	fill(srcB, 2)
	ab, ba := p.connect(p.a, p.b), p.connect(p.b, p.a)
	b := transport.Batch{Flow: flow("both"), Source: 1, Target: 2, Copies: whole(size)}
	there, back := p.post(ab, b), p.post(ba, b)
	for _, c := range []<-chan result{there, back} {
		if r := p.await(c); r.err != nil || r.moved != size {
			t.Errorf("moved %d, %v", r.moved, r.err)
		}
	}
	if !bytes.Equal(dstB, srcA) || !bytes.Equal(dstA, srcB) {
		t.Error("bytes went wrong")
	}
}

// concurrent: many goroutines post on one session.
func concurrent(t *testing.T, p *pair) {
	const writers, rounds, slice = 8, 25, 40_000
	src, dst := p.register(p.a, 1, writers*slice), p.register(p.b, 2, writers*slice)
	fill(src, 1)
	poisoned(dst)
	s := p.dial()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			name := fmt.Sprint("writer ", w)
			copies := []kvlayout.Copy{{
				Src: int64(w) * slice, SrcStride: 40, Dst: int64(w) * slice, DstStride: 40, Length: 37, Count: slice / 40,
			}}
			for range rounds {
				r := p.await(p.post(s, transport.Batch{Flow: flow(name), Source: 1, Target: 2, Copies: copies}))
				if r.err != nil || r.moved != total(copies) {
					t.Errorf("%s moved %d, %v", name, r.moved, r.err)
				}
			}
			got := p.b.Received(name)
			if len(got) != 1 || got[0].Bytes != rounds*total(copies) {
				t.Errorf("%s: received %v", name, got)
			}
		})
	}
	wg.Wait()
	for i := range dst {
		if want := src[i]; i%40 < 37 && dst[i] != want || i%40 >= 37 && dst[i] != poison {
			t.Fatalf("byte %d is %#x", i, dst[i])
		}
	}
}
