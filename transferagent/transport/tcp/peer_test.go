package tcp_test

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/child"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
	"github.com/pdpool/pdpool/transferagent/transport/tcp"
)

func TestMain(m *testing.M) {
	child.Main(m, func(string) (transport.Mover, error) {
		mover, err := tcp.New("127.0.0.1:0", tcp.Options{})
		if err != nil {
			return nil, err
		}
		f, b, err := memory.CreateSealed("child", child.Size)
		if err != nil {
			return nil, err
		}
		return mover, mover.Register(1, transport.Memory{Bytes: b, File: f})
	})
}

// quick has deadlines that a test can wait for.
var quick = tcp.Options{
	DialTimeout: 300 * time.Millisecond, WriteStall: 300 * time.Millisecond,
	AckTimeout: 300 * time.Millisecond, CloseTimeout: 300 * time.Millisecond,
}

var whole = transport.Batch{Source: 1, Target: 1, Copies: []kvlayout.Copy{{Length: child.Size, Count: 1}}}

// TestPeerProcess: a peer that is killed is told as gone at once, one that is
// stopped as frozen by the deadline; every done is called.
func TestPeerProcess(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		want   error
		within time.Duration
	}{
		{"killed", syscall.SIGKILL, transport.ErrPeerGone, 5 * time.Second},
		{"stopped", syscall.SIGSTOP, transport.ErrFrozen, 20 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer := child.Start(t, "")
			a := mover(t, quick)
			register(t, a, child.Size)
			s := dial(t, a, "127.0.0.1", peer.Address)
			first := make(chan struct{})
			var posted, finished atomic.Int32
			stopped := make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					n := posted.Add(1)
					if s.Post(t.Context(), whole, func(int64, error) {
						finished.Add(1)
						if n == 1 {
							close(first)
						}
					}) != nil {
						posted.Add(-1)
						return
					}
				}
			}()
			<-first
			start := time.Now()
			peer.Signal(c.signal)
			select {
			case <-s.Done():
			case <-time.After(c.within):
				t.Fatal("the session goes on")
			}
			t.Logf("session ended after %v: %v", time.Since(start), s.Err())
			if !errors.Is(s.Err(), c.want) {
				t.Errorf("session ended with %v, want %v", s.Err(), c.want)
			}
			<-stopped
			if posted.Load() != finished.Load() {
				t.Errorf("%d batches posted, %d done", posted.Load(), finished.Load())
			}
		})
	}
}

func register(t *testing.T, m *tcp.Mover, size int) []byte {
	t.Helper()
	b := make([]byte, size)
	if err := m.Register(1, transport.Memory{Bytes: b}); err != nil {
		t.Fatal(err)
	}
	return b
}

func dial(t *testing.T, m *tcp.Mover, host string, addr []byte) transport.Session {
	t.Helper()
	s, err := m.Dial(t.Context(), host, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // tests that care close it themselves
	return s
}
