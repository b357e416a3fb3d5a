package tcp

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

const mib = 1 << 20

// heap is what is in use, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools keep lives for two
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBuffersOfManyPeers: with all connections to and from 64 peers in mid-frame, and
// the frames as large as they may be, the buffers have the bound that is documented.
func TestBuffersOfManyPeers(t *testing.T) {
	const peers, most = 64, 46 * mib
	frames, intakes := newFrames(), newIntakes()
	before := heap()
	var all []any
	large := 0
	for range 2 * peers {
		f, _ := frames.take()
		in, _ := intakes.take()
		in.rest = make([]byte, transport.MaxTransferName+maxRuns*runSize)
		if all = append(all, f, in); f.payload == framePayload {
			large++
		}
	}
	used := heap() - before
	t.Logf("%d peers: %.1f MiB", peers, float64(used)/mib)
	if used > most || large != largeFrames {
		t.Errorf("%d bytes, more than %d, or %d large frames, not %d", used, most, large, largeFrames)
	}
	runtime.KeepAlive(all)
}

func TestStockTakesBack(t *testing.T) {
	frames := newFrames()
	for range 3 {
		var backs []func()
		for i := range largeFrames + 2 {
			f, back := frames.take()
			if large := f.payload == framePayload; large != (i < largeFrames) {
				t.Fatalf("frame %d is large: %t", i, large)
			}
			backs = append(backs, back)
		}
		for _, back := range backs {
			back()
		}
	}
}

// mapped registers memory that is not on the heap.
func mapped(t *testing.T, m *Mover, id transport.MemoryID, size int64) {
	t.Helper()
	f, b, err := memory.CreateSealed("test", size)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register(id, transport.Memory{Bytes: b}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Unregister(id)
		memory.Unmap(b) //nolint:errcheck // the test is over
		f.Close()       //nolint:errcheck // likewise
	})
}

// TestTransfersInFlight: 64 transfers at a time, over eight sessions, need little
// beside the memory that they go from and into, small frames or not.
func TestTransfersInFlight(t *testing.T) {
	const sessions, each, size, most = 8, 8, 8 * mib, 24 * mib
	from, to := newMover(t, Options{}), newMover(t, Options{})
	mapped(t, from, 1, size)
	mapped(t, to, 2, size)
	rows := []kvlayout.Copy{{SrcStride: 4608, DstStride: 1152, Length: 1152, Count: size / 4608}}
	before := heap()
	var flying sync.WaitGroup
	var used int64 // of both ends, when the first has landed
	var once sync.Once
	for range sessions {
		s, err := from.Dial(t.Context(), "127.0.0.1", to.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() }) //nolint:errcheck // nothing depends on it
		for range each {
			flying.Add(1)
			b := transport.Batch{Source: 1, Target: 2, Copies: rows}
			if err := s.Post(t.Context(), b, func(_ int64, err error) {
				once.Do(func() { used = heap() - before })
				if err != nil {
					t.Error(err)
				}
				flying.Done()
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	flying.Wait()
	t.Logf("%d transfers in flight: %.1f MiB", sessions*each, float64(used)/mib)
	if used > most {
		t.Errorf("%d bytes, more than %d", used, most)
	}
	if err := errors.Join(from.Close(), to.Close()); err != nil {
		t.Error(err)
	}
	if len(from.frames.places)+len(to.intakes.places) != 0 {
		t.Error("buffers were not taken back")
	}
}
