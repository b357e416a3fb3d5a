package transporttest

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/child"
)

// MakeWithProcess gives two movers, of which the first waits for its peers for
// patience, where a peer owes it something, and another process with memory 1 of
// child.Size bytes that both can dial.
type MakeWithProcess func(t *testing.T, patience time.Duration) (a, b transport.Mover, host string, peer *child.Process)

// RunProcesses runs the cases of movers whose peers are other processes: these die,
// and are stopped.
func RunProcesses(t *testing.T, movers MakeWithProcess) {
	for _, c := range []struct {
		name     string
		patience time.Duration
		run      func(*testing.T, *pair, *child.Process)
	}{
		{"Killed", time.Hour, peerEnds(syscall.SIGKILL, transport.ErrPeerGone)},
		{"Stopped", 300 * time.Millisecond, peerEnds(syscall.SIGSTOP, transport.ErrFrozen)},
		{"StoppedHoldsUpNobody", time.Hour, holdsUpNobody},
	} {
		t.Run(c.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
			p := &pair{t: t}
			var peer *child.Process
			p.a, p.b, p.host, peer = movers(t, c.patience)
			p.register(p.a, 1, child.Size)
			p.register(p.b, 2, small)
			c.run(t, p, peer)
		})
	}
}

// toPeer connects a to the other process.
func (p *pair) toPeer(peer *child.Process) transport.Session {
	p.t.Helper()
	s, err := p.a.Dial(p.t.Context(), p.host, peer.Address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { s.Close() }) //nolint:errcheck // tests that care close it themselves
	return s
}

// peerEnds: a peer that is killed is told as gone at once, one that is stopped as
// frozen by the deadline; every done is called.
func peerEnds(signal syscall.Signal, want error) func(*testing.T, *pair, *child.Process) {
	return func(t *testing.T, p *pair, peer *child.Process) {
		s := p.toPeer(peer)
		f := p.flood(s, transport.Batch{Flow: flow("ends"), Source: 1, Target: 1, Copies: whole(child.Size)})
		<-f.first
		peer.Signal(signal)
		if err := p.ended(s); !errors.Is(err, want) {
			t.Errorf("session ended with %v, want %v", err, want)
		}
		for i, r := range p.flooded(f) {
			if r.err == nil && r.moved != child.Size {
				t.Errorf("batch %d moved %d bytes without an error", i, r.moved)
			}
		}
	}
}

// holdsUpNobody: while batches to a stopped peer wait, those to others go on, also on
// new sessions. Continued in time, the stopped one takes all that is left.
func holdsUpNobody(t *testing.T, p *pair, peer *child.Process) {
	stopped, open := p.toPeer(peer), p.dial()
	b := transport.Batch{Flow: flow("stopped"), Source: 1, Target: 1, Copies: whole(child.Size)}
	p.move(stopped, b)
	peer.Signal(syscall.SIGSTOP)
	waiting := p.some(stopped, several/2, b)
	other := transport.Batch{Flow: flow("other"), Source: 1, Target: 2, Copies: whole(small)}
	for range several {
		p.move(open, other)
	}
	p.move(p.dial(), other)
	if err := p.b.Revoke(t.Context(), "other"); err != nil {
		t.Error(err)
	}
	if got := len(waiting[len(waiting)-1]); got != 0 {
		t.Error("a stopped peer has taken the last batch")
	}
	peer.Signal(syscall.SIGCONT)
	for i, r := range p.all(waiting) {
		if r.err != nil || r.moved != child.Size {
			t.Errorf("batch %d to the peer that goes on: %d bytes, %v", i, r.moved, r.err)
		}
	}
}
