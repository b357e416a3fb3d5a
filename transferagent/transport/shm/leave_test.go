//go:build linux

package shm

import (
	"errors"
	"net"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

// leaves lists who may write what.
func leaves(m *Mover) (transfers int) {
	for _, in := range m.open.Incoming() {
		in.mu.Lock()
		transfers += len(in.leaves)
		in.mu.Unlock()
	}
	return transfers
}

// TestLeaveIsGivenBack: however the batches of a transfer end, a later revocation
// has nobody to wait for.
func TestLeaveIsGivenBack(t *testing.T) {
	dir := shortDir(t)
	a, b := newMover(t, dir, "a", Options{}), newMover(t, dir, "b", Options{})
	register(t, a, 1, 1000)
	register(t, b, 2, 1000)
	s, err := a.Dial(t.Context(), "", b.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // nothing depends on it
	for _, c := range []struct {
		name   string
		target transport.MemoryID
		copies kvlayout.Copy
		want   error
	}{
		{"fine", 2, kvlayout.Copy{Length: 1000, Count: 1}, nil},
		{"empty", 2, kvlayout.Copy{}, nil},
		{"outside", 2, kvlayout.Copy{Dst: 1, Length: 1000, Count: 1}, transport.ErrBounds},
		{"unknown", 9, kvlayout.Copy{Length: 1000, Count: 1}, transport.ErrUnknownMemory},
	} {
		done := make(chan error, 20)
		batch := transport.Batch{Flow: transport.Flow{Transfer: c.name}, Source: 1, Target: c.target, Copies: []kvlayout.Copy{c.copies}}
		for range cap(done) {
			if err := s.Post(t.Context(), batch, func(_ int64, err error) { done <- err }); err != nil {
				t.Fatal(err)
			}
		}
		for range cap(done) {
			if err := <-done; !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
		transporttest.Await(t, "leave is given back", func() bool { return leaves(b) == 0 })
	}
	if got := len(s.(*session).leaves); got != 0 {
		t.Errorf("the writer remembers %d", got)
	}
}

// judge listens as a reader that tells what it is asked, and answers as it is told,
// with memory of so many bytes.
func judge(t *testing.T, dir string, size int64) (addr []byte, asked <-chan message, verdicts chan<- status) {
	t.Helper()
	questions, answers := make(chan message, 10), make(chan status)
	file, target, err := memory.CreateSealed("reader", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the reader has ended
		if err := errors.Join(file.Close(), memory.Unmap(target)); err != nil {
			t.Error(err)
		}
	})
	addr = reader(t, dir, func(c *net.UnixConn) {
		hear(c, message{kind: welcome, bytes: int64(maxLease)}, nil)
		for {
			m, f, err := read(c)
			drop(f)
			switch {
			case err != nil:
				return
			case m.kind == record:
				err = write(c, message{kind: acked, seq: m.seq}, nil)
			case m.kind == ask:
				questions <- m
				err = write(c, message{kind: answer, memory: m.memory, status: <-answers, bytes: size, flow: m.flow}, file)
			}
			if err != nil {
				return
			}
		}
	})
	return addr, questions, answers
}

// TestReadersShareAQuestion: batches of a transfer into memory that is mapped wait for
// one answer about it. When that refuses another memory alone, they ask for theirs.
func TestReadersShareAQuestion(t *testing.T) {
	const size = 1000
	dir := shortDir(t)
	addr, asked, verdicts := judge(t, dir, size)
	m := newMover(t, dir, "m", Options{})
	register(t, m, 1, size)
	s, err := m.Dial(t.Context(), "", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // nothing depends on it
	post := func(transfer string, to transport.MemoryID) chan error {
		done := make(chan error, 1)
		b := transport.Batch{Flow: transport.Flow{Transfer: transfer}, Source: 1, Target: to, Copies: []kvlayout.Copy{{Length: size, Count: 1}}}
		if err := s.Post(t.Context(), b, func(_ int64, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		return done
	}
	for _, c := range []struct {
		name    string
		targets []transport.MemoryID // the first of which is asked about
		first   status
		want    error // of batches into the first
		others  int   // questions after the first
	}{
		{"one mapped", []transport.MemoryID{1}, statusOK, nil, 0},
		{"two mapped", []transport.MemoryID{2}, statusOK, nil, 0},
		{"shared", []transport.MemoryID{2, 1, 1}, statusOK, nil, 0},
		{"one refused", []transport.MemoryID{9, 1, 2, 1}, statusUnknownMemory, transport.ErrUnknownMemory, 1},
	} {
		var done []chan error
		for _, to := range c.targets {
			done = append(done, post(c.name, to))
		}
		if got := <-asked; got.memory != c.targets[0] || len(asked) != 0 {
			t.Errorf("%s: asked about memory %d, and %d more", c.name, got.memory, len(asked))
		}
		verdicts <- c.first
		for range c.others {
			<-asked
			verdicts <- statusOK
		}
		for i, d := range done {
			want := c.want
			if c.targets[i] != c.targets[0] {
				want = nil
			}
			if err := <-d; !errors.Is(err, want) {
				t.Errorf("%s: batch into memory %d: %v, want %v", c.name, c.targets[i], err, want)
			}
		}
		if len(asked) != 0 {
			t.Errorf("%s: asked once more", c.name)
		}
	}
}
