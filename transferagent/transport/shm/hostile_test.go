//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

func newMover(t *testing.T, dir, name string, o Options) *Mover {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	m, err := New(dir, name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // nothing depends on it
	return m
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shm") //nolint:usetesting // socket paths are limited, and t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // it is below the temporary directory
	return dir
}

func register(t *testing.T, m *Mover, id transport.MemoryID, size int64) []byte {
	t.Helper()
	f, b, err := memory.CreateSealed("test", size)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Register(id, transport.Memory{Bytes: b, File: f}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Unregister(id)
		if err := errors.Join(memory.Unmap(b), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// raw is a connection to a mover that speaks by hand.
func raw(t *testing.T, m *Mover) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: m.Socket(), Net: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

func greeted(t *testing.T, m *Mover) *net.UnixConn {
	t.Helper()
	c := raw(t, m)
	if _, err := greet(c, m.address, m.options.Keys); err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitEnd waits for the other end to close a connection.
func awaitEnd(t *testing.T, c *net.UnixConn) {
	t.Helper()
	for {
		_, file, err := read(c)
		drop(file)
		var n net.Error
		switch {
		case err == nil:
		case errors.As(err, &n) && n.Timeout():
			t.Fatal("the connection stays open")
		default:
			return
		}
	}
}

func works(t *testing.T, m *Mover) {
	t.Helper()
	src, dst := register(t, m, 901, 1000), register(t, m, 902, 1000)
	copy(src, "some bytes")
	s, err := m.Dial(t.Context(), "", m.Address())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	b := transport.Batch{Source: 901, Target: 902, Copies: []kvlayout.Copy{{Length: 1000, Count: 1}}}
	if err := s.Post(t.Context(), b, func(_ int64, err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || !bytes.Equal(src, dst) {
		t.Errorf("the mover does not work any more: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestGarbage: what is not ours is counted and dropped, and the mover lives.
func TestGarbage(t *testing.T) {
	var counted ledger.Drops
	m := newMover(t, shortDir(t), "m", Options{Count: counted.Add})
	// Who says nothing is soon given up by this one, who is slow to say something by neither.
	hasty := newMover(t, shortDir(t), "m", Options{DialTimeout: 200 * time.Millisecond, Count: counted.Add})
	for _, c := range []struct {
		name, reason string
		bytes        []byte
	}{
		{"text", "hello", []byte("GET / HTTP/1.1\r\n\r\n")},
		{"large", "hello", make([]byte, 10_000)},
		{"no hello", "hello", message{kind: record}.append(nil)},
		{"other token", "stale", message{kind: hello, flow: transport.Flow{Transfer: strings.Repeat("x", tokenSize)}}.append(nil)},
		{"no token", "stale", message{kind: hello}.append(nil)},
		{"silence", "silent", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := m
			if c.reason == "silent" {
				m = hasty
			}
			before := m.Dropped()[c.reason]
			conn := raw(t, m)
			if c.bytes != nil {
				if _, err := conn.Write(c.bytes); err != nil {
					t.Fatal(err)
				}
			}
			awaitEnd(t, conn)
			if got := m.Dropped()[c.reason]; got != before+1 {
				t.Errorf("dropped for %q: %d, want %d", c.reason, got, before+1)
			}
		})
	}
	for name, b := range map[string][]byte{"text": []byte("x"), "kind": message{kind: acked}.append(nil)} {
		conn := greeted(t, m)
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		awaitEnd(t, conn)
		if m.Dropped()["message"] == 0 {
			t.Errorf("%s of a peer was not counted", name)
		}
	}
	works(t, m)
	dropped := m.Dropped()
	maps.Copy(dropped, hasty.Dropped())
	if got := counted.Counts(); !maps.Equal(got, dropped) {
		t.Errorf("told of %v, dropped %v", got, dropped)
	}
}

// TestStrangerDoesNotDelay: who has not said hello is not waited for.
func TestStrangerDoesNotDelay(t *testing.T) {
	m := newMover(t, shortDir(t), "m", Options{DialTimeout: time.Hour, Withdrawal: time.Hour})
	raw(t, m)
	works(t, m) // it unregisters
	if err := m.Revoke(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}

// TestFrozenWriter: a writer that does not let go is cut off and told of.
func TestFrozenWriter(t *testing.T) {
	stuck := make(chan error, 10)
	m := newMover(t, shortDir(t), "m", Options{Withdrawal: 100 * time.Millisecond, OnStuck: func(err error) { stuck <- err }})
	register(t, m, 1, 1000)
	conn := greeted(t, m)
	if err := write(conn, message{kind: ask, memory: 1, flow: transport.Flow{Transfer: "x"}}, nil); err != nil {
		t.Fatal(err)
	}
	got, file, err := read(conn)
	if err != nil || file == nil || got.kind != answer || got.bytes != 1000 {
		t.Fatalf("asked for memory, got %+v, %v", got, err)
	}
	drop(file)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := m.Revoke(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("revoke: %v, want DeadlineExceeded", err)
	}
	if err := m.Revoke(t.Context(), "y"); err != nil { // which it has no leave for
		t.Errorf("revoke of another transfer: %v", err)
	}
	m.Unregister(1)
	select {
	case err := <-stuck:
		if !errors.Is(err, transport.ErrFrozen) {
			t.Errorf("%v, want ErrFrozen", err)
		}
	default:
		t.Error("nobody was told")
	}
	awaitEnd(t, conn)
}

// reader listens as a mover would and answers an ask with what give makes of it.
func reader(t *testing.T, dir string, serve func(*net.UnixConn)) []byte {
	t.Helper()
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(dir, "fake"), Net: network})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var conns []net.Conn
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				break
			}
			conns = append(conns, c)
			serve(c)
		}
		for _, c := range conns {
			c.Close() //nolint:errcheck // the test is over
		}
	}()
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // the test is over
		<-ended
	})
	return address{name: "fake"}.bytes()
}

// hear reads a message and answers with another.
func hear(c *net.UnixConn, m message, f *os.File) {
	_, file, err := read(c)
	drop(file)
	if err == nil {
		err = write(c, m, f)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		panic(err)
	}
}

// TestReaderFrozen: no welcome, no answer, no ack end by their deadlines.
func TestReaderFrozen(t *testing.T) {
	good, b, err := memory.CreateSealed("peer", 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(good.Close(), memory.Unmap(b)); err != nil {
			t.Error(err)
		}
	}()
	// All but what each waits for in vain may take its time.
	brisk := Options{AckTimeout: 200 * time.Millisecond}
	for name, c := range map[string]struct {
		options Options
		serve   func(*net.UnixConn)
	}{
		"no welcome": {Options{DialTimeout: time.Second}, func(*net.UnixConn) {}},
		"no answer":  {brisk, func(c *net.UnixConn) { hear(c, message{kind: welcome, bytes: int64(time.Second)}, nil) }},
		"no grant": {brisk, func(c *net.UnixConn) {
			hear(c, message{kind: welcome, bytes: 1}, nil)
			hear(c, message{kind: answer, bytes: 1000}, good)
		}},
		"no ack": {brisk, func(c *net.UnixConn) {
			hear(c, message{kind: welcome, bytes: int64(time.Second)}, nil)
			hear(c, message{kind: answer, bytes: 1000}, good)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			addr := reader(t, dir, c.serve)
			m := newMover(t, dir, "m", c.options)
			if err := postOne(t, m, addr); !errors.Is(err, transport.ErrFrozen) {
				t.Errorf("%v, want ErrFrozen", err)
			}
		})
	}
}

// postOne dials and moves 1,000 bytes; it gives whatever error ends that.
func postOne(t *testing.T, m *Mover, addr []byte) error {
	t.Helper()
	register(t, m, 1, 1000)
	s, err := m.Dial(t.Context(), "", addr)
	if err != nil {
		return err
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // nothing depends on it
	done := make(chan error, 1)
	b := transport.Batch{Source: 1, Copies: []kvlayout.Copy{{Length: 1000, Count: 1}}}
	if err := s.Post(t.Context(), b, func(_ int64, err error) { done <- err }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("done was not called")
		return nil
	}
}

// TestReaderHostile: memory that would be dangerous is not mapped, and answers
// that fit no question end the session.
func TestReaderHostile(t *testing.T) {
	unsealed, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(unsealed), "unsealed")
	defer f.Close() //nolint:errcheck // the test is over
	if err := f.Truncate(1000); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		m    message
		f    *os.File
		want error
	}{
		{"unsealed", message{kind: answer, bytes: 1000}, f, memory.ErrUnsealed},
		{"no memory", message{kind: answer, bytes: 1000}, nil, memory.ErrNotMemory},
		{"huge", message{kind: answer, bytes: 1 << 60}, f, memory.ErrSize},
		{"unknown", message{kind: answer, status: statusUnknownMemory}, nil, transport.ErrUnknownMemory},
		{"other memory", message{kind: answer, memory: 5, bytes: 1000}, f, errMessage},
		{"ack", message{kind: acked, seq: 1}, nil, errMessage},
		{"grant", message{kind: granted}, nil, errMessage},
		{"question", message{kind: ask}, nil, errMessage},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := shortDir(t)
			addr := reader(t, dir, func(conn *net.UnixConn) {
				hear(conn, message{kind: welcome, bytes: int64(time.Second)}, nil)
				hear(conn, c.m, c.f)
			})
			m := newMover(t, dir, "m", Options{})
			if err := postOne(t, m, addr); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// TestRegisterRefuses memory that a peer could not map, or would share.
func TestRegisterRefuses(t *testing.T) {
	m := newMover(t, shortDir(t), "m", Options{})
	if err := m.Register(1, transport.Memory{Bytes: make([]byte, 10)}); !errors.Is(err, memory.ErrNotMemory) {
		t.Errorf("memory without a file: %v, want ErrNotMemory", err)
	}
	f, b, err := memory.CreateSealed("twice", 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(f.Close(), memory.Unmap(b)); err != nil {
			t.Error(err)
		}
	}()
	if err := m.Register(1, transport.Memory{Bytes: b, File: f}); err != nil {
		t.Fatal(err)
	}
	if err := m.Register(2, transport.Memory{Bytes: b, File: f}); !errors.Is(err, memory.ErrOverlap) {
		t.Errorf("the same file again: %v, want ErrOverlap", err)
	}
	m.Unregister(1)
	if err := m.Register(2, transport.Memory{Bytes: b, File: f}); err != nil {
		t.Errorf("after Unregister: %v", err)
	}
	m.Unregister(2)
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []Options{{Workers: -1}, {Workers: 257}, {Queue: maxQueue + 1}, {AckTimeout: -1}, {Lease: -1}, {Lease: maxLease + 1}} {
		if m, err := New(shortDir(t), "m", o); err == nil {
			m.Close() //nolint:errcheck // it should not be there
			t.Errorf("%+v was taken", o)
		}
	}
}
