//go:build linux

package shm_test

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/child"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
	"github.com/pdpool/pdpool/transferagent/transport/shm"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

var whole = transport.Batch{
	Flow: transport.Flow{Transfer: "flood"}, Source: 1, Target: 1, Copies: []kvlayout.Copy{{Length: child.Size, Count: 1}},
}

// brisk is the lease of the children: one that a test can wait for.
const brisk = 300 * time.Millisecond

// TestMain: a child with a directory is a reader; with "engine" after a newline its
// memory is the one that it inherits; with an address after a newline it is a writer
// that floods memory 1 there, and has started when the first batch is in place; with
// "once " before the address that batch is the only one.
func TestMain(m *testing.M) {
	child.Main(m, func(arg string) (transport.Mover, error) {
		dir, addr, _ := strings.Cut(arg, "\n")
		name := "reader"
		if addr != "" && addr != "engine" {
			name = "writer"
		}
		mover, err := shm.New(dir, name, shm.Options{Lease: brisk})
		if err != nil {
			return nil, err
		}
		if addr == "engine" {
			return mover, adopt(mover)
		}
		if err := provide(mover); err != nil || addr == "" {
			return mover, err
		}
		addr, once := strings.CutPrefix(addr, "once ")
		to, err := hex.DecodeString(addr)
		if err != nil {
			return nil, err
		}
		s, err := mover.Dial(context.Background(), "", to)
		if err != nil {
			return nil, err
		}
		first := make(chan error, 1)
		if err := s.Post(context.Background(), whole, func(_ int64, err error) { first <- err }); err != nil {
			return nil, err
		}
		if err := <-first; err != nil || once {
			return mover, err
		}
		go flood(context.Background(), s)
		return mover, nil
	})
}

func provide(m *shm.Mover) error {
	f, b, err := memory.CreateSealed("child", child.Size)
	if err != nil {
		return err
	}
	return m.Register(1, transport.Memory{Bytes: b, File: f})
}

// adopt registers the memory of an engine, which the test is.
func adopt(m *shm.Mover) error {
	f := child.Inherited()
	b, err := memory.MapSealed(f, child.Size)
	if err != nil {
		return err
	}
	return m.Register(1, transport.Memory{Bytes: b, File: f})
}

// engineMemory is memory that outlives the agents of a test.
func engineMemory(t *testing.T) (*os.File, []byte) {
	t.Helper()
	f, b, err := memory.CreateSealed("engine", child.Size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.Close(), memory.Unmap(b)); err != nil {
			t.Error(err)
		}
	})
	return f, b
}

// flood posts until the session ends.
func flood(ctx context.Context, s transport.Session) {
	for s.Post(ctx, whole, func(int64, error) {}) == nil { // it blocks while the queue is full
	}
}

// received is what has come of the flood.
func received(m *shm.Mover) int64 {
	n := int64(0)
	for _, c := range m.Received("flood") {
		n += c.Bytes
	}
	return n
}

func TestProcesses(t *testing.T) {
	transporttest.RunProcesses(t, func(t *testing.T, patience time.Duration) (a, b transport.Mover, host string, peer *child.Process) {
		dir := socketDir(t)
		return mover(t, dir, "a", shm.Options{AckTimeout: patience}), mover(t, dir, "b", shm.Options{}), "", child.Start(t, dir)
	})
}

// TestWriterProcess: a living writer lets go when told, a dead one has, and one
// that is stopped is warned of.
func TestWriterProcess(t *testing.T) {
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		stuck  int
	}{
		{"alive", syscall.SIGCONT, 0},
		{"killed", syscall.SIGKILL, 0},
		{"stopped", syscall.SIGSTOP, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := socketDir(t)
			stuck := make(chan error, 10)
			withdrawal, patience := time.Minute, time.Minute
			if c.stuck > 0 {
				withdrawal, patience = 2*time.Second, 100*time.Millisecond
			}
			m := mover(t, dir, "m", shm.Options{Withdrawal: withdrawal, OnStuck: func(err error) { stuck <- err }})
			if err := provide(m); err != nil {
				t.Fatal(err)
			}
			peer := child.Start(t, dir+"\n"+hex.EncodeToString(m.Address()))
			transporttest.Await(t, "the child writes all the time", func() bool { return received(m) >= 3*child.Size })
			peer.Signal(c.signal)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := m.Revoke(ctx, "flood"); (err != nil) != (c.stuck > 0) {
				t.Errorf("revoke: %v", err)
			}
			m.Unregister(1)
			if len(stuck) != c.stuck {
				t.Errorf("%d warnings, want %d", len(stuck), c.stuck)
			}
		})
	}
}
