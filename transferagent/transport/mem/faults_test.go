package mem_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/mem"
)

// world is two movers with a memory each and a session from a to b.
type world struct {
	network  *mem.Network
	a, b     *mem.Mover
	src, dst []byte
	session  transport.Session
}

const size = 1000

func build(t *testing.T, seed uint64, f mem.Faults) *world {
	t.Helper()
	w := &world{network: mem.NewNetwork(seed), src: bytes.Repeat([]byte{1}, size), dst: make([]byte, size)}
	w.network.SetFaults("a", "b", f)
	w.a, w.b = mover(t, w.network, "a"), mover(t, w.network, "b")
	if err := errors.Join(w.a.Register(1, transport.Memory{Bytes: w.src}), w.b.Register(2, transport.Memory{Bytes: w.dst})); err != nil {
		t.Fatal(err)
	}
	s, err := w.a.Dial(t.Context(), "", w.b.Address())
	if err != nil {
		t.Fatal(err)
	}
	w.session = s
	return w
}

var everything = transport.Batch{Source: 1, Target: 2, Copies: []kvlayout.Copy{{SrcStride: 1, DstStride: 1, Length: 1, Count: size}}}

// events posts n batches, one per 100 ms, and tells when each was done and how.
func (w *world) events(t *testing.T, n int) []string {
	t.Helper()
	start := time.Now()
	done := make(chan string, n)
	for i := range n {
		err := w.session.Post(t.Context(), everything, func(moved int64, err error) {
			done <- fmt.Sprint(i, " ", time.Since(start), " ", moved, " ", err)
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	out := make([]string, 0, n)
	for range n {
		out = append(out, <-done)
	}
	return out
}

func TestFaultsRepeatWithTheSeed(t *testing.T) {
	run := func(seed uint64) (out []string) {
		synctest.Test(t, func(t *testing.T) {
			w := build(t, seed, mem.Faults{Drop: 0.3, Delay: time.Second, Jitter: 3 * time.Second, Reorder: true})
			out = w.events(t, 30)
		})
		return out
	}
	first := run(1)
	if diff := cmp.Diff(first, run(1)); diff != "" {
		t.Errorf("the same seed gave something else:\n%s", diff)
	}
	if cmp.Equal(first, run(2)) {
		t.Error("another seed gave the same")
	}
}

func TestDelayKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(t, 1, mem.Faults{Delay: time.Second, Jitter: 5 * time.Second})
		for i, e := range w.events(t, 20) {
			var batch int
			if _, err := fmt.Sscan(e, &batch); err != nil || batch != i {
				t.Fatalf("event %d is %q", i, e)
			}
		}
	})
}

func TestDropLosesAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(t, 1, mem.Faults{Drop: 1})
		done := make(chan int64, 1)
		err := w.session.Post(t.Context(), everything, func(moved int64, err error) {
			if !errors.Is(err, mem.ErrDropped) {
				t.Errorf("%v, want ErrDropped", err)
			}
			done <- moved
		})
		if err != nil {
			t.Fatal(err)
		}
		moved := <-done
		arrived := int64(bytes.Count(w.dst, []byte{1}))
		counted := int64(0)
		for _, c := range w.b.Received("") {
			counted += c.Bytes
		}
		if moved == size || arrived != moved || counted != moved {
			t.Errorf("%d moved, %d arrived, %d counted", moved, arrived, counted)
		}
	})
}

func TestCutEndsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(t, 1, mem.Faults{Delay: time.Second})
		done := make(chan error, 1)
		if err := w.session.Post(t.Context(), everything, func(_ int64, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		w.network.Cut("b", "a")
		if err := <-done; !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("%v, want ErrPeerGone", err)
		}
		<-w.session.Done()
		if bytes.Contains(w.dst, []byte{1}) {
			t.Error("bytes went over a cut link")
		}
		if _, err := w.a.Dial(t.Context(), "", w.b.Address()); !errors.Is(err, transport.ErrPeerGone) {
			t.Errorf("dial over a cut link: %v", err)
		}
		w.network.Heal("a", "b")
		if _, err := w.a.Dial(t.Context(), "", w.b.Address()); err != nil {
			t.Errorf("dial after Heal: %v", err)
		}
	})
}

func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := build(t, 1, mem.Faults{})
		done := make(chan error, 1)
		post := func() {
			if err := w.session.Post(t.Context(), everything, func(_ int64, err error) { done <- err }); err != nil {
				t.Fatal(err)
			}
		}
		w.network.Freeze("a", "b")
		post()
		time.Sleep(mem.DefaultStall - time.Second)
		w.network.Thaw("a", "b")
		if err := <-done; err != nil {
			t.Errorf("after Thaw: %v", err)
		}
		w.network.Freeze("a", "b")
		start := time.Now()
		post()
		if err := <-done; !errors.Is(err, transport.ErrFrozen) || time.Since(start) != mem.DefaultStall {
			t.Errorf("%v after %v, want ErrFrozen after %v", err, time.Since(start), mem.DefaultStall)
		}
	})
}

func TestRestartedPeerIsAnother(t *testing.T) {
	n := mem.NewNetwork(1)
	a, b := mover(t, n, "a"), mover(t, n, "b")
	if _, err := mem.New(n, "b"); err == nil {
		t.Error("a name was taken twice")
	}
	old := b.Address()
	b.Close() //nolint:errcheck // it never fails
	b = mover(t, n, "b")
	if _, err := a.Dial(t.Context(), "", old); !errors.Is(err, transport.ErrStale) {
		t.Errorf("%v, want ErrStale", err)
	}
	if _, err := a.Dial(t.Context(), "", b.Address()); err != nil {
		t.Error(err)
	}
}
