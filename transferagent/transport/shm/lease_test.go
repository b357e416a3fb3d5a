//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

// idle gives how many flights are parked when nothing else is queued or copied.
func (p *pool) idle() (parked int, idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle = len(p.queue) == 0
	for _, f := range p.parked {
		idle = idle && f.owed == 0
	}
	return len(p.parked), idle
}

// slowReader is a reader that answers an ask only when its lease has worn off, and
// grants no renewal before grants is closed.
type slowReader struct {
	lease  time.Duration
	grants chan struct{}
}

func (r *slowReader) serve(c *net.UnixConn, memory func() error) {
	hear(c, message{kind: welcome, bytes: int64(r.lease)}, nil)
	for {
		m, file, err := read(c)
		drop(file)
		if err != nil {
			return
		}
		switch m.kind {
		case ask:
			timer := time.NewTimer(r.lease)
			<-timer.C
			err = memory()
		case record:
			err = write(c, message{kind: acked, seq: m.seq}, nil)
		case renew:
			<-r.grants
			err = write(c, message{kind: granted}, nil)
		default:
		}
		if err != nil {
			return
		}
	}
}

// TestLeaseWearsOff: without a grant a writer pauses, whatever else is posted; with
// one it goes on where it was.
func TestLeaseWearsOff(t *testing.T) {
	const size = 1 << 20
	file, target, err := memory.CreateSealed("reader", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the reader has ended
		if err := errors.Join(file.Close(), memory.Unmap(target)); err != nil {
			t.Error(err)
		}
	})
	dir := shortDir(t)
	r := &slowReader{lease: 200 * time.Millisecond, grants: make(chan struct{})}
	addr := reader(t, dir, func(c *net.UnixConn) {
		r.serve(c, func() error {
			return write(c, message{kind: answer, bytes: size, flow: transport.Flow{Transfer: "x"}}, file)
		})
	})
	m := newMover(t, dir, "m", Options{AckTimeout: time.Minute})
	copy(register(t, m, 1, size), "some bytes")
	s, err := m.Dial(t.Context(), "", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // nothing depends on it
	done := make(chan error, 3)
	b := transport.Batch{Flow: transport.Flow{Transfer: "x"}, Source: 1, Copies: []kvlayout.Copy{{Length: size, Count: 1}}}
	for i := range 3 {
		if err := s.Post(t.Context(), b, func(_ int64, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		transporttest.Await(t, "all flights are parked", func() bool {
			parked, idle := m.pool.idle()
			return idle && parked == i+1
		})
	}
	if !bytes.Equal(target, make([]byte, size)) {
		t.Error("bytes were written without a lease")
	}
	close(r.grants)
	for range 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if !bytes.HasPrefix(target, []byte("some bytes")) {
		t.Error("bytes are not in place")
	}
}

// TestLeaseOfAnOldAnswer: an answer renews from when its question was sent, however
// late it comes.
func TestLeaseOfAnOldAnswer(t *testing.T) {
	var l lease
	if err := l.set(int64(maxLease)); err != nil {
		t.Fatal(err)
	}
	l.renew(time.Now().Add(-2 * maxLease))
	if l.holds() || len(l.thirsty) != 1 {
		t.Error("an answer to a question of long ago lets copy, or nothing is asked anew")
	}
	l.renew(time.Now().Add(-maxLease / 2))
	if !l.holds() {
		t.Error("half of the lease is left")
	}
	for _, length := range []int64{-1, 0, int64(maxLease) + 1} {
		if err := l.set(length); !errors.Is(err, errMessage) {
			t.Errorf("a lease of %d ns: %v, want errMessage", length, err)
		}
	}
}

// asks has a writer that speaks by hand ask for leave to write memory 1.
func asks(t *testing.T, conn *net.UnixConn, transfer string) {
	t.Helper()
	if err := write(conn, message{kind: ask, memory: 1, flow: transport.Flow{Transfer: transfer}}, nil); err != nil {
		t.Fatal(err)
	}
}

// waits demands that a revocation is not over before the writer's connection ends.
func waits(t *testing.T, m *Mover, transfer string, conn *net.UnixConn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := m.Revoke(ctx, transfer); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("revoke before the writer has ended: %v, want DeadlineExceeded", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Revoke(t.Context(), transfer); err != nil {
		t.Errorf("revoke: %v", err)
	}
}

// TestWriterThatIsCutOffIsWaitedFor: ending the connection from here says nothing
// about what the other process copies.
func TestWriterThatIsCutOffIsWaitedFor(t *testing.T) {
	for name, misbehave := range map[string]func(*testing.T, *Mover, *net.UnixConn){
		"malformed": func(t *testing.T, _ *Mover, c *net.UnixConn) {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		},
		"too many leaves": func(t *testing.T, _ *Mover, c *net.UnixConn) {
			for i := range maxLeaves {
				asks(t, c, fmt.Sprint(i))
				if i == maxLeaves-1 { // x is one of them
					break
				}
				_, file, err := read(c)
				drop(file)
				if err != nil {
					t.Fatal(err)
				}
			}
		},
		"not let go": func(t *testing.T, m *Mover, _ *net.UnixConn) { m.Unregister(1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMover(t, shortDir(t), "m", Options{Withdrawal: 50 * time.Millisecond})
			register(t, m, 1, 1000)
			conn := greeted(t, m)
			asks(t, conn, "x")
			if _, file, err := read(conn); err != nil {
				t.Fatal(err)
			} else {
				drop(file)
			}
			misbehave(t, m, conn)
			awaitEnd(t, conn) // the reader says no more
			waits(t, m, "x", conn)
			works(t, m)
		})
	}
}

// TestWriterThatDoesNotRead is cut off when its socket is full, and holds up only the
// revocations of what it has leave for.
func TestWriterThatDoesNotRead(t *testing.T) {
	m := newMover(t, shortDir(t), "m", Options{})
	register(t, m, 1, 1000)
	conn := greeted(t, m)
	asks(t, conn, "x")
	transporttest.Await(t, "it has leave", func() bool { return leaves(m) == 1 })
	if err := conn.SetWriteDeadline(time.Now().Add(3 * sendWithin)); err != nil {
		t.Fatal(err)
	}
	for write(conn, message{kind: renew}, nil) == nil && !m.open.Incoming()[0].over() { // until it is full
	}
	transporttest.Await(t, "it is cut off", m.open.Incoming()[0].over)
	if err := m.Revoke(t.Context(), "y"); err != nil {
		t.Error(err)
	}
	waits(t, m, "x", conn)
}

// TestAbandonedWriter: a mover that closes does not say that all is quiet.
func TestAbandonedWriter(t *testing.T) {
	m := newMover(t, shortDir(t), "m", Options{Withdrawal: 50 * time.Millisecond})
	register(t, m, 1, 1000)
	conn := greeted(t, m)
	asks(t, conn, "x")
	transporttest.Await(t, "it has leave", func() bool { return leaves(m) == 1 })
	revoked := make(chan error, 1)
	go func() { revoked <- m.Revoke(t.Context(), "x") }()
	transporttest.Await(t, "it is revoked", func() bool { return m.gate.Revoked("x") })
	in := m.open.Incoming()[0]
	transporttest.Await(t, "the writer is told", func() bool {
		in.mu.Lock()
		defer in.mu.Unlock()
		return len(in.let) > 0
	})
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := <-revoked; !errors.Is(err, transport.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}
