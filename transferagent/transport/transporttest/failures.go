package transporttest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
)

const small = 1 << 16

// outside are copies that leave a memory of small bytes on the side that place sets.
func outside(place func(*kvlayout.Copy, int64, int64)) map[string]kvlayout.Copy {
	out := map[string]kvlayout.Copy{}
	for _, c := range []struct {
		name                   string
		offset, stride, length int64
		count                  int
	}{
		{"one too many", 1, 0, small, 1},
		{"behind", small, 0, 1, 1},
		{"before", -1, 0, 1, 1},
		{"last piece", 0, small / 4, small/4 + 1, 4},
		{"backwards", small / 2, -small / 4, 10, 4},
		{"far", 1 << 62, 0, 10, 1},
		{"overflow", 1 << 62, 1 << 62, 10, 4},
		{"stride overflow", 8, 1<<63 - 1, 10, 3},
		{"many", 0, 1, 1, small + 1},
	} {
		k := kvlayout.Copy{Length: c.length, Count: c.count}
		place(&k, c.offset, c.stride)
		out[c.name] = k
	}
	return out
}

// sourceRefused: what is wrong at the source is told by Post, done is not called.
func sourceRefused(t *testing.T, p *pair) {
	p.register(p.a, 1, small)
	p.register(p.b, 2, 4*small)
	s := p.dial()
	never := func(moved int64, err error) { t.Errorf("done was called with %d, %v", moved, err) }
	bad := outside(func(c *kvlayout.Copy, offset, stride int64) { c.Src, c.SrcStride = offset, stride })
	bad["negative length"] = kvlayout.Copy{Length: -1, Count: 1}
	bad["negative count"] = kvlayout.Copy{Length: 1, Count: -1}
	for name, c := range bad {
		b := transport.Batch{Flow: flow(name), Source: 1, Target: 2, Copies: []kvlayout.Copy{c}}
		if err := s.Post(t.Context(), b, never); !errors.Is(err, transport.ErrBounds) {
			t.Errorf("%s: %v, want ErrBounds", name, err)
		}
	}
	b := transport.Batch{Flow: flow("unknown"), Source: 9, Target: 2, Copies: whole(1)}
	if err := s.Post(t.Context(), b, never); !errors.Is(err, transport.ErrUnknownMemory) {
		t.Errorf("%v, want ErrUnknownMemory", err)
	}
	b = transport.Batch{Flow: flow(string(make([]byte, transport.MaxTransferName+1))), Source: 1, Target: 2, Copies: whole(1)}
	if err := s.Post(t.Context(), b, never); err == nil {
		t.Error("a transfer name that is too long was taken")
	}
	p.move(s, transport.Batch{Flow: flow("fine"), Source: 1, Target: 2, Copies: whole(small)})
}

// targetRefused: no byte of the copy moves, and the session goes on.
func targetRefused(t *testing.T, p *pair) {
	p.register(p.a, 1, 4*small)
	dst := p.register(p.b, 2, small)
	poisoned(dst)
	s := p.dial()
	for name, c := range outside(func(c *kvlayout.Copy, offset, stride int64) { c.Dst, c.DstStride = offset, stride }) {
		b := transport.Batch{Flow: flow(name), Source: 1, Target: 2, Copies: []kvlayout.Copy{c}}
		if r := p.await(p.post(s, b)); !errors.Is(r.err, transport.ErrBounds) {
			t.Errorf("%s: moved %d, %v, want ErrBounds", name, r.moved, r.err)
		}
	}
	b := transport.Batch{Flow: flow("unknown"), Source: 1, Target: 9, Copies: whole(4 * small)}
	if r := p.await(p.post(s, b)); !errors.Is(r.err, transport.ErrUnknownMemory) || r.moved != 0 {
		t.Errorf("moved %d, %v, want ErrUnknownMemory", r.moved, r.err)
	}
	if !isPoison(dst) {
		t.Error("refused copies touched the target")
	}
	if got := p.b.Received("unknown"); len(got) != 0 {
		t.Errorf("received %v", got)
	}
	p.move(s, transport.Batch{Flow: flow("fine"), Source: 1, Target: 2, Copies: whole(small)})
}

// queueFull: a done that does not return fills the queue; Post then honours ctx.
func queueFull(t *testing.T, p *pair) {
	p.register(p.a, 1, small)
	p.register(p.b, 2, small)
	s := p.dial()
	b := transport.Batch{Flow: flow("queued"), Source: 1, Target: 2, Copies: whole(10)}
	entered, release := make(chan struct{}), make(chan struct{})
	if err := s.Post(t.Context(), b, func(int64, error) { close(entered); <-release }); err != nil {
		t.Fatal(err)
	}
	<-entered
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var accepted, finished atomic.Int32
	all := make(chan struct{})
	var err error
	for range 1 << 17 {
		if err = s.Post(over, b, func(int64, error) {
			if finished.Add(1) == accepted.Load() {
				close(all)
			}
		}); err != nil {
			break
		}
		accepted.Add(1)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%d batches were taken, then %v", accepted.Load(), err)
	}
	close(release)
	if accepted.Load() > 0 {
		select {
		case <-all:
		case <-time.After(patience):
			t.Fatalf("%d of %d batches finished", finished.Load(), accepted.Load())
		}
	}
}

// flood posts batches that fill the target, until one is refused.
type flood struct {
	first   chan struct{} // closed when the first batch is done
	results chan []result // all of them, once posting has ended
}

func (p *pair) flood(s transport.Session, b transport.Batch) *flood {
	f := &flood{first: make(chan struct{}), results: make(chan []result, 1)}
	go func() {
		var posted []<-chan result
		for {
			out := make(chan result, 1)
			n := len(posted)
			err := s.Post(p.t.Context(), b, func(moved int64, err error) {
				if n == 0 {
					close(f.first)
				}
				out <- result{moved, err}
				close(out) // a second call panics
			})
			if err != nil {
				break
			}
			posted = append(posted, out)
			if len(posted) > 1<<20 {
				break
			}
		}
		var all []result
		for _, c := range posted {
			all = append(all, p.await(c))
		}
		f.results <- all
	}()
	return f
}

func (p *pair) flooded(f *flood) []result {
	p.t.Helper()
	select {
	case all := <-f.results:
		return all
	case <-time.After(2 * patience):
		p.t.Fatal("batches did not finish")
		return nil
	}
}

// peerCloses: the peer ends while batches are in flight.
func peerCloses(t *testing.T, p *pair) {
	const size = 4 << 20
	p.register(p.a, 1, size)
	p.register(p.b, 2, size)
	s := p.dial()
	f := p.flood(s, transport.Batch{Flow: flow("gone"), Source: 1, Target: 2, Copies: whole(size)})
	<-f.first
	if err := p.b.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := p.ended(s); errors.Is(err, transport.ErrClosed) {
		t.Errorf("session ended with %v, though nobody closed it here", err)
	}
	for i, r := range p.flooded(f) {
		if r.err == nil && r.moved != size {
			t.Errorf("batch %d moved %d bytes without an error", i, r.moved)
		}
	}
	if err := s.Post(t.Context(), transport.Batch{Source: 1, Target: 2}, func(int64, error) {
		t.Error("done was called")
	}); err == nil {
		t.Error("an ended session took a batch")
	}
}

// closeInFlight: after Close every done has been called and no byte arrives.
func closeInFlight(t *testing.T, p *pair) {
	const size = 4 << 20
	p.register(p.a, 1, size)
	dst := p.register(p.b, 2, size)
	p.register(p.b, 3, small)
	s := p.dial()
	var posted, finished atomic.Int32
	first := make(chan struct{}, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		b := transport.Batch{Flow: flow("closed"), Source: 1, Target: 2, Copies: whole(size)}
		for {
			err := s.Post(t.Context(), b, func(int64, error) {
				finished.Add(1)
				select {
				case first <- struct{}{}:
				default:
				}
			})
			if err != nil {
				if !errors.Is(err, transport.ErrClosed) {
					t.Errorf("post on a closed session: %v", err)
				}
				return
			}
			posted.Add(1)
		}
	}()
	<-first
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	poisoned(dst)
	<-stopped
	if posted.Load() != finished.Load() {
		t.Errorf("%d posted, %d done when Close returned", posted.Load(), finished.Load())
	}
	if err := p.ended(s); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("session ended with %v, want ErrClosed", err)
	}
	p.barrier()
	if !isPoison(dst) {
		t.Error("bytes arrived after Close")
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// barrier moves a batch on a new session into memory 3 of b.
func (p *pair) barrier() {
	p.t.Helper()
	p.move(p.dial(), transport.Batch{Flow: flow("barrier"), Source: 1, Target: 3, Copies: whole(small)})
}

// moverCloses: Close of the sending mover ends its sessions like Session.Close.
func moverCloses(t *testing.T, p *pair) {
	const size = 4 << 20
	p.register(p.a, 1, size)
	p.register(p.b, 2, size)
	s := p.dial()
	f := p.flood(s, transport.Batch{Flow: flow("closed"), Source: 1, Target: 2, Copies: whole(size)})
	<-f.first
	if err := p.a.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := p.ended(s); !errors.Is(err, transport.ErrClosed) {
		t.Errorf("session ended with %v, want ErrClosed", err)
	}
	p.flooded(f)
	if err := p.a.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if _, err := p.a.Dial(t.Context(), p.host, p.b.Address()); err == nil {
		t.Error("a closed mover dialled")
	}
}
