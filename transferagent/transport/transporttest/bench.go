package transporttest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// blockBytes is a block of 64 tokens of DeepSeek-R1, one layer.
const blockBytes = 64 * 1152

// Benchmark measures one batch of one block, from Post to done (small), and what of
// that comes after a thread that does nothing else has seen the last byte in the
// target (lag). How fast many blocks go, and beside what, is measured between
// processes by package transferagent/bench.
func Benchmark(b *testing.B, movers func(b *testing.B) (a, c transport.Mover, host string)) {
	b.Run("small", func(b *testing.B) {
		r := newOneBlock(b, movers)
		for b.Loop() {
			r.once()
		}
	})
	b.Run("lag", func(b *testing.B) { newOneBlock(b, movers).lag(b) })
}

// oneBlock moves one block from src to dst.
type oneBlock struct {
	src, dst transport.Memory
	once     func()
}

// newOneBlock connects two movers and moves the block once: that maps, touches and connects.
func newOneBlock(b *testing.B, movers func(b *testing.B) (x, y transport.Mover, host string)) *oneBlock {
	r := &oneBlock{src: mapped(b, blockBytes), dst: mapped(b, blockBytes)}
	x, y, host := movers(b)
	if err := x.Register(0, r.src); err != nil {
		b.Fatal(err)
	}
	if err := y.Register(1, r.dst); err != nil {
		b.Fatal(err)
	}
	s, err := x.Dial(context.Background(), host, y.Address())
	if err != nil {
		b.Fatal(err)
	}
	batch := transport.Batch{
		Flow: flow("bench"), Source: 0, Target: 1, Copies: []kvlayout.Copy{{Length: blockBytes, Count: 1}},
	}
	r.once = func() {
		done := make(chan error, 1)
		if err := s.Post(context.Background(), batch, func(_ int64, err error) { done <- err }); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
	r.once()
	return r
}

// lag reports microseconds from the last byte to done.
func (r *oneBlock) lag(b *testing.B) {
	end := func(m transport.Memory) *atomic.Uint32 {
		return (*atomic.Uint32)(unsafe.Pointer(&m.Bytes[blockBytes-4]))
	}
	from, to := end(r.src), end(r.dst)
	var lags []float64
	for b.Loop() {
		want := from.Add(1)
		watching, seen := make(chan struct{}), make(chan time.Time, 1)
		go func() {
			close(watching)
			for to.Load() != want { // of a copy that knows no atomics, which is the point
			}
			seen <- time.Now()
		}()
		<-watching
		r.once()
		done := time.Now()
		lags = append(lags, max(0, float64(done.Sub(<-seen).Nanoseconds())/1e3))
	}
	slices.Sort(lags)
	b.ReportMetric(lags[len(lags)/2], "lag-us")
	b.ReportMetric(0, "ns/op")
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
