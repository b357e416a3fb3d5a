package transporttest

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

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
// streams. All contenders take turns in each iteration, and medians are
// reported, so that their ratios hold on a busy machine too:
//
//	memcpy    the pieces copied by one goroutine, target after target
//	inorder   the same in the order of the source
//	stream    one TCP connection on loopback, 1 MiB writes, no pieces
//	gathered  the pieces gathered into 1 MiB writes of one connection
//	mover     one batch per target, posted at once, until the last is done
//
// Metrics are GB/s and CPU seconds per GiB by contender, and mover/X: the median
// of the ratios of speed.
//
// small is the time of one batch of one block, from Post to done. lag is what of it
// comes after a thread that does nothing else has seen the last byte in the target.
func Benchmark(b *testing.B, movers func(b *testing.B) (a, c transport.Mover, host string)) {
	b.Run("small", func(b *testing.B) {
		p := pattern{"small", [][]kvlayout.Copy{wholeBlocks()[:1]}, layers * 32 * blockBytes}
		r := &rig{p: p, src: mapped(b, p.size), dst: []transport.Memory{mapped(b, p.size)}}
		once := r.mover(b, movers)
		once()
		for b.Loop() {
			once()
		}
	})
	b.Run("lag", func(b *testing.B) { lag(b, movers) })
	for _, p := range patterns() {
		b.Run(p.name, func(b *testing.B) {
			r := &rig{p: p, src: mapped(b, layers*32*blockBytes), bytes: p.bytes()}
			fill(r.src.Bytes[:1<<20], 1)
			for range p.targets {
				r.dst = append(r.dst, mapped(b, p.size))
			}
			r.flat = make([]byte, r.bytes)
			compare(b, r.bytes, []contender{
				{"memcpy", r.memcpy},
				{"inorder", r.inOrder},
				{"stream", r.stream(b, false)},
				{"gathered", r.stream(b, true)},
				{"mover", r.mover(b, movers)},
			})
		})
	}
}

// lag measures completion: microseconds from the last byte to done.
func lag(b *testing.B, movers func(b *testing.B) (a, c transport.Mover, host string)) {
	p := pattern{"lag", [][]kvlayout.Copy{wholeBlocks()[:1]}, layers * 32 * blockBytes}
	r := &rig{p: p, src: mapped(b, p.size), dst: []transport.Memory{mapped(b, p.size)}}
	once := r.mover(b, movers)
	once()
	end := func(m transport.Memory, at int64) *atomic.Uint32 {
		return (*atomic.Uint32)(unsafe.Pointer(&m.Bytes[at+blockBytes-4]))
	}
	c := p.targets[0][0]
	from, to := end(r.src, c.Src), end(r.dst[0], c.Dst)
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
		once()
		done := time.Now()
		lags = append(lags, max(0, float64(done.Sub(<-seen).Nanoseconds())/1e3))
	}
	b.ReportMetric(median(lags), "lag-us")
	b.ReportMetric(0, "ns/op")
}

// contender moves all bytes of a pattern once.
type contender struct {
	name string
	once func()
}

// compare runs all contenders in turn; the last one is compared with the others.
func compare(b *testing.B, bytes int64, all []contender) {
	times, cpu := make([][]float64, len(all)), make([]float64, len(all))
	for i := range all {
		all[i].once() // maps, touches, connects
	}
	for b.Loop() {
		for i, c := range all {
			start, used := time.Now(), cpuSeconds(b)
			c.once()
			times[i] = append(times[i], time.Since(start).Seconds())
			cpu[i] += cpuSeconds(b) - used
		}
	}
	last := len(all) - 1
	for i, c := range all {
		b.ReportMetric(float64(bytes)/median(times[i])/1e9, c.name+"-GB/s")
		b.ReportMetric(cpu[i]/float64(len(times[i]))/float64(bytes)*(1<<30), c.name+"-cpu-s/GiB")
		if i < last {
			ratios := make([]float64, len(times[i]))
			for k := range ratios {
				ratios[k] = times[i][k] / times[last][k]
			}
			b.ReportMetric(median(ratios), all[last].name+"/"+c.name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// cpuSeconds is what this process has used.
func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// rig is the memory of a pattern.
type rig struct {
	p     pattern
	src   transport.Memory
	dst   []transport.Memory
	flat  []byte // where streams end
	bytes int64
}

func (p pattern) bytes() int64 {
	n := int64(0)
	for _, copies := range p.targets {
		n += total(copies)
	}
	return n
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

func (r *rig) memcpy() {
	for i, copies := range r.p.targets {
		apply(r.dst[i].Bytes, r.src.Bytes, copies)
	}
}

// inOrder goes through the copies of all targets at once, row by row.
func (r *rig) inOrder() {
	for k := range r.p.targets[0] {
		for i := range int64(r.p.targets[0][k].Count) {
			for t, copies := range r.p.targets {
				c := copies[k]
				s, d := c.Src+i*c.SrcStride, c.Dst+i*c.DstStride
				copy(r.dst[t].Bytes[d:d+c.Length], r.src.Bytes[s:s+c.Length])
			}
		}
	}
}

// stream sends the bytes over one connection, gathered from the pieces or
// flat, and waits for one byte of answer. The bytes arrive flat.
func (r *rig) stream(b *testing.B, gathered bool) func() {
	var config net.ListenConfig
	l, err := config.Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		for {
			if _, err := io.ReadFull(c, r.flat); err != nil {
				return
			}
			if _, err := c.Write([]byte{1}); err != nil {
				return
			}
		}
	}()
	var dialer net.Dialer
	c, err := dialer.DialContext(b.Context(), "tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		c.Close() //nolint:errcheck // the process ends soon
		l.Close() //nolint:errcheck // likewise
	})
	staging, answer := make([]byte, 0, 1<<20), make([]byte, 1)
	return func() {
		if gathered {
			r.gather(c, staging)
		} else {
			for left := r.src.Bytes[:r.bytes]; len(left) > 0; left = left[min(1<<20, len(left)):] {
				c.Write(left[:min(1<<20, len(left))]) //nolint:errcheck // the answer would not come
			}
		}
		if _, err := io.ReadFull(c, answer); err != nil {
			b.Fatal(err)
		}
	}
}

func (r *rig) gather(c net.Conn, staging []byte) {
	for _, copies := range r.p.targets {
		for _, k := range copies {
			for i := range int64(k.Count) {
				for left := r.src.Bytes[k.Src+i*k.SrcStride:][:k.Length]; len(left) > 0; {
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

// mover posts a batch per target and waits for all.
func (r *rig) mover(b *testing.B, movers func(b *testing.B) (x, y transport.Mover, host string)) func() {
	x, y, host := movers(b)
	if err := x.Register(0, r.src); err != nil {
		b.Fatal(err)
	}
	for i, m := range r.dst {
		if err := y.Register(transport.MemoryID(i+1), m); err != nil {
			b.Fatal(err)
		}
	}
	s, err := x.Dial(context.Background(), host, y.Address())
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		var wg sync.WaitGroup
		for i, copies := range r.p.targets {
			wg.Add(1)
			to := flow("bench")
			to.Reader.TP = i
			batch := transport.Batch{Flow: to, Source: 0, Target: transport.MemoryID(i + 1), Copies: copies}
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
}
