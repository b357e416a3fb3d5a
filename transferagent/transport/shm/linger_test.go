//go:build linux

package shm_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"syscall"
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/child"
	"github.com/pdpool/pdpool/transferagent/transport/shm"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

// mark overwrites memory, for unmarked to see whether anybody else does. The writers
// of these tests write zeros.
func mark(b []byte) {
	for i := range b {
		b[i] = 0xEE
	}
}

func marked(b []byte) bool { return bytes.Count(b, []byte{0xEE}) == len(b) }

// passes lets time pass: that of a lease is what these tests are about.
func passes(t *testing.T, d time.Duration) {
	t.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

// pauses waits until a writer that has lost its reader's agent writes no more: when the
// lease and its margin have passed, or when a machine that is busy has let it see that.
func pauses(t *testing.T, b []byte) {
	t.Helper()
	passes(t, brisk+shm.Margin)
	transporttest.Await(t, "bytes stay as they are", func() bool {
		mark(b)
		passes(t, brisk)
		return marked(b)
	})
}

// TestAgentKilled: an engine's agent is killed while another process writes into the
// engine's memory. After Linger nothing is written any more.
func TestAgentKilled(t *testing.T) {
	file, b := engineMemory(t)
	dir := socketDir(t)
	agent := child.Start(t, dir+"\nengine", file)
	child.Start(t, dir+"\n"+hex.EncodeToString(agent.Address))
	mark(b)
	transporttest.Await(t, "the writer writes", func() bool { return !marked(b) })
	agent.Signal(syscall.SIGKILL)
	pauses(t, b)
}

// TestAgentStopped: a writer pauses when the reader's agent is stopped, though its
// connection stands, and goes on when the agent does.
func TestAgentStopped(t *testing.T) {
	file, b := engineMemory(t)
	dir := socketDir(t)
	agent := child.Start(t, dir+"\nengine", file)
	writer := mover(t, dir, "w", shm.Options{AckTimeout: time.Hour})
	if err := provide(writer); err != nil {
		t.Fatal(err)
	}
	s, err := writer.Dial(t.Context(), "", agent.Address)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		flood(t.Context(), s)
	}()
	mark(b)
	transporttest.Await(t, "the writer writes", func() bool { return !marked(b) })
	agent.Signal(syscall.SIGSTOP)
	pauses(t, b)
	select {
	case <-s.Done():
		t.Errorf("the session ended: %v", s.Err())
	default:
	}
	agent.Signal(syscall.SIGCONT)
	transporttest.Await(t, "the writer goes on", func() bool { return !marked(b) })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestStoppedWriterIsWaitedFor: no lease and no time lets Revoke return before a
// stopped writer has answered or its process has ended: it may be in mid-portion.
func TestStoppedWriterIsWaitedFor(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "continued": syscall.SIGCONT} {
		t.Run(name, func(t *testing.T) {
			file, b := engineMemory(t)
			dir := socketDir(t)
			m := mover(t, dir, "m", shm.Options{Lease: brisk})
			if err := m.Register(1, transport.Memory{Bytes: b, File: file}); err != nil {
				t.Fatal(err)
			}
			writer := child.Start(t, dir+"\n"+hex.EncodeToString(m.Address()))
			transporttest.Await(t, "the child writes all the time", func() bool { return received(m) >= 3*child.Size })
			writer.Signal(syscall.SIGSTOP)
			quiet := make(chan error, 1)
			go func() { quiet <- m.Revoke(t.Context(), "flood") }()
			if err := m.Revoke(t.Context(), "another"); err != nil { // which nobody writes for
				t.Error(err)
			}
			passes(t, m.Linger())
			select {
			case err := <-quiet:
				t.Fatalf("revoked while the writer is stopped, %v", err)
			default:
			}
			writer.Signal(signal)
			select {
			case err := <-quiet:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it was not revoked")
			}
			mark(b)
			passes(t, brisk)
			if !marked(b) {
				t.Error("bytes changed after the transfer was revoked")
			}
			m.Unregister(1)
		})
	}
}

// TestIdleWriterIsNotWaitedFor: a stopped writer that has nothing to write holds up
// no revocation.
func TestIdleWriterIsNotWaitedFor(t *testing.T) {
	dir := socketDir(t)
	reader := mover(t, dir, "m", shm.Options{Withdrawal: 10 * time.Millisecond})
	if err := provide(reader); err != nil {
		t.Fatal(err)
	}
	writer := child.Start(t, dir+"\nonce "+hex.EncodeToString(reader.Address()))
	writer.Signal(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := reader.Revoke(ctx, whole.Flow.Transfer); err != nil {
		t.Error(err)
	}
	if got := received(reader); got != child.Size {
		t.Errorf("%d bytes were written", got)
	}
}
