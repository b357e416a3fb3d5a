// Package transporttest holds the suite that every transport.Mover passes.
package transporttest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// Make gives two movers that can reach each other and the host at which each
// finds the other. It closes them in t.Cleanup; closing twice must be harmless.
type Make func(t *testing.T) (a, b transport.Mover, host string)

// patience bounds every wait of the suite. It is only used up by a failure.
const patience = time.Minute

// Run runs the suite.
func Run(t *testing.T, movers Make) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *pair)
	}{
		{"Placement", placement},
		{"DoneAfterLastByte", doneAfterLastByte},
		{"Counts", counts},
		{"BothWays", bothWays},
		{"Concurrent", concurrent},
		{"SourceRefused", sourceRefused},
		{"TargetRefused", targetRefused},
		{"QueueFull", queueFull},
		{"PeerCloses", peerCloses},
		{"CloseInFlight", closeInFlight},
		{"MoverCloses", moverCloses},
		{"UnregisterTarget", unregisterTarget},
		{"UnregisterSource", unregisterSource},
		{"RegisterAgain", registerAgain},
		{"Revoke", revoke},
		{"RevokedBefore", revokedBefore},
		{"DialNothing", dialNothing},
		{"DialOther", dialOther},
	} {
		t.Run(c.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
			p := &pair{t: t}
			p.a, p.b, p.host = movers(t)
			c.run(t, p)
		})
	}
}

// Await polls for a state that has to come.
func Await(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !is(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("it does not come that %s", what)
		}
	}
}

// pair is two movers under test.
type pair struct {
	t    *testing.T
	a, b transport.Mover
	host string
}

// dial connects a to b.
func (p *pair) dial() transport.Session { return p.connect(p.a, p.b) }

func (p *pair) connect(from, to transport.Mover) transport.Session {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	s, err := from.Dial(ctx, p.host, to.Address())
	if err != nil {
		p.t.Fatalf("dial: %v", err)
	}
	p.t.Cleanup(func() { s.Close() }) //nolint:errcheck // tests that care close it themselves
	return s
}

// register makes memory of size bytes and registers it until the test ends.
func (p *pair) register(m transport.Mover, id transport.MemoryID, size int) []byte {
	p.t.Helper()
	f, b, err := memory.CreateSealed("transporttest", int64(size))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		m.Unregister(id)
		if err := errors.Join(f.Close(), memory.Unmap(b)); err != nil {
			p.t.Error(err)
		}
	})
	if err := m.Register(id, transport.Memory{Bytes: b, File: f}); err != nil {
		p.t.Fatalf("register: %v", err)
	}
	return b
}

// result is what done told.
type result struct {
	moved int64
	err   error
}

// post starts a batch and gives the channel of its result. A second call of
// done fails the test.
func (p *pair) post(s transport.Session, b transport.Batch) <-chan result {
	p.t.Helper()
	out := make(chan result, 1)
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	var calls atomic.Int32
	err := s.Post(ctx, b, func(moved int64, err error) {
		if calls.Add(1) > 1 {
			p.t.Errorf("done was called again with %d, %v", moved, err)
			return
		}
		out <- result{moved, err}
	})
	if err != nil {
		p.t.Errorf("post: %v", err)
		out <- result{0, err}
	}
	return out
}

// await gives the result of a batch.
func (p *pair) await(c <-chan result) result {
	p.t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(patience):
		err := errors.New("done was not called")
		p.t.Error(err)
		return result{0, err}
	}
}

// move posts a batch, awaits it and demands success.
func (p *pair) move(s transport.Session, b transport.Batch) int64 {
	p.t.Helper()
	r := p.await(p.post(s, b))
	if r.err != nil {
		p.t.Fatalf("batch of %q: %v", b.Flow.Transfer, r.err)
	}
	return r.moved
}

// ended waits for a session to end and demands a reason.
func (p *pair) ended(s transport.Session) error {
	p.t.Helper()
	select {
	case <-s.Done():
	case <-time.After(patience):
		p.t.Fatal("session did not end")
	}
	if s.Err() == nil {
		p.t.Error("session ended without a reason")
	}
	return s.Err()
}

const poison = 0xEE

func poisoned(b []byte) {
	b[0] = poison
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func isPoison(b []byte) bool {
	return bytes.Count(b, []byte{poison}) == len(b)
}

func fill(b []byte, seed uint64) {
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b) //nolint:errcheck // it never fails
}

// apply is the naive meaning of a batch.
func apply(dst, src []byte, copies []kvlayout.Copy) {
	for _, c := range copies {
		for i := range int64(c.Count) {
			s, d := c.Src+i*c.SrcStride, c.Dst+i*c.DstStride
			copy(dst[d:d+c.Length], src[s:s+c.Length])
		}
	}
}

func total(copies []kvlayout.Copy) int64 {
	n := int64(0)
	for _, c := range copies {
		n += c.Bytes()
	}
	return n
}

// whole copies n bytes from the start of the source to the start of the target.
func whole(n int) []kvlayout.Copy { return []kvlayout.Copy{{Length: int64(n), Count: 1}} }

func flow(transfer string) transport.Flow {
	return transport.Flow{Transfer: transfer, Writer: transport.Rank{DP: 1, TP: 2}, Reader: transport.Rank{TP: 3}}
}
