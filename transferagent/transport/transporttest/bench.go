package transporttest

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// The patterns of the KV of 1,024 tokens of DeepSeek-R1 (61 layers, MLA): 71,958,528
// bytes, with block numbers that jump on both sides. Memory is 32 blocks a layer.
const (
	layers     = 61
	rowBytes   = 1152
	blockBytes = 64 * rowBytes
)

// pattern is a list of copies per target.
type pattern struct {
	name    string
	targets [][]kvlayout.Copy
	size    int // of each target
}

func patterns() []pattern {
	return []pattern{
		{"whole", [][]kvlayout.Copy{wholeBlocks()}, layers * 32 * blockBytes},
		{"dcp64", dcp(64), layers * 8 * blockBytes},
		{"dcp1", dcp(1), layers * 8 * blockBytes},
	}
}

func wholeBlocks() []kvlayout.Copy {
	var out []kvlayout.Copy
	for layer := range int64(layers) {
		for i := range int64(16) {
			out = append(out, kvlayout.Copy{
				Src: (layer*32 + (7*i+3)%32) * blockBytes, Dst: (layer*32 + (5*i+1)%32) * blockBytes, Length: blockBytes, Count: 1,
			})
		}
	}
	return out
}

// dcp spreads the tokens over four targets, interleave tokens in turn.
func dcp(interleave int64) [][]kvlayout.Copy {
	out := make([][]kvlayout.Copy, 4)
	for rank := range int64(4) {
		for layer := range int64(layers) {
			for block := range int64(16) {
				src := (layer*32 + (7*block+3)%32) * blockBytes
				dst := func(token int64) int64 { // of the target
					return (layer*8+(3*(token/64)+1)%8)*blockBytes + token%64*rowBytes
				}
				switch {
				case interleave == 1:
					out[rank] = append(out[rank], kvlayout.Copy{
						Src: src + rank*rowBytes, SrcStride: 4 * rowBytes, Dst: dst(block * 16), DstStride: rowBytes, Length: rowBytes, Count: 16,
					})
				case block%4 == rank:
					out[rank] = append(out[rank], kvlayout.Copy{Src: src, Dst: dst(block / 4 * 64), Length: blockBytes, Count: 1})
				}
			}
		}
	}
	return out
}

// Benchmark measures a mover beside plain copies of the same pieces and raw TCP
// streams, so that ratios can be read in one run:
//
//	memcpy         the pieces copied by one goroutine, target after target
//	memcpy-source  the same in the order of the source
//	stream         one TCP connection on loopback, 1 MiB writes, no pieces
//	gathered       the pieces gathered into 1 MiB writes of one connection
//	mover          one batch per target, posted at once, until the last is done
func Benchmark(b *testing.B, movers func(b *testing.B) (a, c transport.Mover, host string)) {
	for _, p := range patterns() {
		b.Run(p.name, func(b *testing.B) {
			src := mapped(b, layers*32*blockBytes)
			fill(src.Bytes[:1<<20], 1)
			dst := make([]transport.Memory, len(p.targets))
			bytes := int64(0)
			for i := range dst {
				dst[i] = mapped(b, p.size)
				bytes += total(p.targets[i])
			}
			run := func(name string, f func(b *testing.B)) {
				b.Run(name, func(b *testing.B) {
					b.SetBytes(bytes)
					f(b)
				})
			}
			run("memcpy", func(b *testing.B) { plain(b, src, dst, p) })
			run("memcpy-source", func(b *testing.B) { inSourceOrder(b, src, dst, p) })
			run("stream", func(b *testing.B) { stream(b, src.Bytes, dst[0].Bytes, int(bytes), nil) })
			run("gathered", func(b *testing.B) { stream(b, src.Bytes, dst[0].Bytes, int(bytes), &p) })
			run("mover", func(b *testing.B) { measure(b, movers, src, dst, p) })
		})
	}
}

func mapped(b *testing.B, size int) transport.Memory {
	b.Helper()
	f, m, err := memory.CreateSealed("bench", int64(size))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		memory.Unmap(m) //nolint:errcheck // the process ends soon
		f.Close()       //nolint:errcheck // likewise
	})
	return transport.Memory{Bytes: m, File: f}
}

func plain(b *testing.B, src transport.Memory, dst []transport.Memory, p pattern) {
	for b.Loop() {
		for i, copies := range p.targets {
			apply(dst[i].Bytes, src.Bytes, copies)
		}
	}
}

// inSourceOrder goes through the copies of all targets at once, row by row.
func inSourceOrder(b *testing.B, src transport.Memory, dst []transport.Memory, p pattern) {
	for b.Loop() {
		for k := range p.targets[0] {
			for i := range int64(p.targets[0][k].Count) {
				for t, copies := range p.targets {
					c := copies[k]
					s, d := c.Src+i*c.SrcStride, c.Dst+i*c.DstStride
					copy(dst[t].Bytes[d:d+c.Length], src.Bytes[s:s+c.Length])
				}
			}
		}
	}
}

// stream sends n bytes over one connection, gathered from the pieces of p if
// there is one, and waits for one byte of answer. The bytes arrive flat.
func stream(b *testing.B, src, dst []byte, n int, p *pattern) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // the process ends soon
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close() //nolint:errcheck // likewise
		for {
			for left := n; left > 0; {
				k := min(left, len(dst))
				if _, err := io.ReadFull(c, dst[:k]); err != nil {
					return
				}
				left -= k
			}
			if _, err := c.Write([]byte{1}); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // likewise
	staging, answer := make([]byte, 0, 1<<20), make([]byte, 1)
	for b.Loop() {
		if p == nil {
			for left := src[:n]; len(left) > 0; left = left[min(1<<20, len(left)):] {
				c.Write(left[:min(1<<20, len(left))]) //nolint:errcheck // the answer would not come
			}
		} else {
			gather(c, staging, src, p)
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			b.Fatal(err)
		}
	}
}

func gather(c net.Conn, staging, src []byte, p *pattern) {
	for _, copies := range p.targets {
		for _, k := range copies {
			for i := range int64(k.Count) {
				for left := src[k.Src+i*k.SrcStride:][:k.Length]; len(left) > 0; {
					n := min(len(left), cap(staging)-len(staging))
					staging, left = append(staging, left[:n]...), left[n:]
					if len(staging) == cap(staging) {
						c.Write(staging) //nolint:errcheck // the answer would not come
						staging = staging[:0]
					}
				}
			}
		}
	}
	c.Write(staging) //nolint:errcheck // likewise
}

func measure(b *testing.B, movers func(b *testing.B) (x, y transport.Mover, host string), src transport.Memory, dst []transport.Memory, p pattern) {
	x, y, host := movers(b)
	if err := x.Register(0, src); err != nil {
		b.Fatal(err)
	}
	defer x.Unregister(0)
	for i := range dst {
		id := transport.MemoryID(i + 1)
		if err := y.Register(id, dst[i]); err != nil {
			b.Fatal(err)
		}
		defer y.Unregister(id)
	}
	s, err := x.Dial(context.Background(), host, y.Address())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the process ends soon
	once := func() {
		var wg sync.WaitGroup
		for i, copies := range p.targets {
			wg.Add(1)
			batch := transport.Batch{Flow: flow(fmt.Sprint("bench ", i)), Source: 0, Target: transport.MemoryID(i + 1), Copies: copies}
			err := s.Post(context.Background(), batch, func(_ int64, err error) {
				if err != nil {
					b.Error(err)
				}
				wg.Done()
			})
			if err != nil {
				b.Fatal(err)
			}
		}
		wg.Wait()
	}
	once() // maps and touches
	for b.Loop() {
		once()
	}
}
