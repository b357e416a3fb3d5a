package kvclient_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/test/descriptors"
	"github.com/pdpool/pdpool/transferagent/kvclient"
	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var hello = kvproto.Hello{Version: kvproto.ProtocolVersion, Connection: kvproto.Worker, TP: 3}

const patience = time.Minute

// agent is the other end: a listener that hands over each connection after its
// Hello was answered.
type agent struct {
	path  string
	conns chan *kvconn.Conn
	hello chan kvproto.Message
}

func newAgent(t *testing.T, answer kvproto.Message) *agent {
	t.Helper()
	a := &agent{
		path:  filepath.Join(t.TempDir(), "kv.sock"),
		conns: make(chan *kvconn.Conn, 1),
		hello: make(chan kvproto.Message, 1),
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: a.path})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		socket, err := l.AcceptUnix()
		if err != nil {
			return
		}
		c := kvconn.New(socket)
		a.conns <- c
		m, _, err := c.ReadWithin(patience)
		if err != nil {
			return
		}
		a.hello <- m
		if answer != nil {
			if err := c.Write(answer, nil); err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
		select {
		case c := <-a.conns:
			_ = c.Close()
		default:
		}
	})
	return a
}

// conn returns the agent's end of the connection.
func (a *agent) conn(t *testing.T) *kvconn.Conn {
	t.Helper()
	c := <-a.conns
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dial(t *testing.T, a *agent) *kvclient.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := kvclient.Dial(ctx, a.path, hello)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func memfd(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("kv", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "kv")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestConversation(t *testing.T) {
	a := newAgent(t, kvproto.Welcome{Epoch: 42, Linger: 1500 * time.Microsecond, Silence: time.Minute})
	c := dial(t, a)
	far := a.conn(t)
	if c.Epoch() != 42 || c.Linger() != 2*time.Millisecond || c.Silence() != time.Minute || c.Err() != nil {
		t.Errorf("epoch %d, linger %s, silence %s, error %v", c.Epoch(), c.Linger(), c.Silence(), c.Err())
	}
	if diff := cmp.Diff(kvproto.Message(hello), <-a.hello); diff != "" {
		t.Errorf("hello (-want +got):\n%s", diff)
	}

	f := memfd(t)
	if _, err := f.WriteString("rows"); err != nil {
		t.Fatal(err)
	}
	// The agent gets the memory though this end closes it at once.
	if err := errors.Join(c.SendMemory(4, f), c.Send(kvproto.Ready{})); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	wantMemory(t, far, "rows")
	if m, _, err := far.ReadWithin(patience); err != nil || m != (kvproto.Ready{}) {
		t.Errorf("agent reads %v, %v", m, err)
	}
}

func wantMemory(t *testing.T, far *kvconn.Conn, content string) {
	t.Helper()
	m, f, err := far.ReadWithin(patience)
	if err != nil || m != (kvproto.Memory{Bytes: int64(len(content))}) {
		t.Fatalf("agent reads %v, %v", m, err)
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, len(content))
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != content {
		t.Errorf("memory holds %q, %v", b, err)
	}
}

func TestMessagesUntilTheEnd(t *testing.T) {
	a := newAgent(t, kvproto.Welcome{})
	c := dial(t, a)
	far := a.conn(t)
	want := []kvproto.Message{kvproto.Done{Transfer: "a"}, kvproto.Released{Transfer: "b"}}
	for _, m := range want {
		if err := far.Write(m, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	var seen []kvproto.Message
	for m := range c.Messages() {
		seen = append(seen, m)
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if !errors.Is(c.Err(), io.EOF) {
		t.Errorf("end: %v", c.Err())
	}
	if err := c.Send(kvproto.Ready{}); !errors.Is(err, io.EOF) {
		t.Errorf("send after the end: %v", err)
	}
}

func TestRefused(t *testing.T) {
	a := newAgent(t, kvproto.Refused{Rule: "kv-shape", Text: "blocks of 64 tokens belong here"})
	_, err := kvclient.Dial(t.Context(), a.path, hello)
	var refused *kvclient.RefusedError
	if !errors.As(err, &refused) || refused.Rule != "kv-shape" {
		t.Errorf("dial: %v", err)
	}
}

func TestWrongAnswer(t *testing.T) {
	a := newAgent(t, kvproto.Ready{})
	if _, err := kvclient.Dial(t.Context(), a.path, hello); err == nil {
		t.Error("dialled")
	}
}

func TestSilentAgent(t *testing.T) {
	a := newAgent(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-a.hello
		cancel()
	}()
	if _, err := kvclient.Dial(ctx, a.path, hello); !errors.Is(err, context.Canceled) {
		t.Errorf("dial: %v", err)
	}
}

func TestNoAgent(t *testing.T) {
	_, err := kvclient.Dial(t.Context(), filepath.Join(t.TempDir(), "none"), hello)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("dial: %v", err)
	}
}

func TestAgentThatDoesNotRead(t *testing.T) {
	a := newAgent(t, kvproto.Welcome{})
	c := dial(t, a)
	a.conn(t)
	m := kvproto.Hold{Transfer: "tx-1", Blocks: make([]int32, 2048)}
	var err error
	for i := 0; i <= 4*kvclient.Queue && err == nil; i++ {
		err = c.Send(m)
	}
	if !errors.Is(err, kvclient.ErrFull) {
		t.Errorf("send: %v", err)
	}
}

func TestSendRefuses(t *testing.T) {
	a := newAgent(t, kvproto.Welcome{})
	c := dial(t, a)
	far := a.conn(t)
	var e *kvproto.Error
	if err := c.Send(kvproto.Done{}); !errors.As(err, &e) {
		t.Errorf("empty transfer: %v", err)
	}
	if err := c.SendMemory(0, memfd(t)); !errors.As(err, &e) {
		t.Errorf("no memory: %v", err)
	}
	if err := c.Send(kvproto.Memory{Bytes: 1}); err == nil {
		t.Error("memory without a descriptor was taken")
	}
	if err := c.Send(kvproto.Ready{}); err != nil {
		t.Error(err)
	}
	if m, _, err := far.ReadWithin(patience); err != nil || m != (kvproto.Ready{}) {
		t.Errorf("agent reads %v, %v", m, err)
	}
}

func TestAgentThatSendsMemory(t *testing.T) {
	a := newAgent(t, kvproto.Welcome{})
	c := dial(t, a)
	far := a.conn(t)
	if err := far.Write(kvproto.Memory{Bytes: 1}, memfd(t)); err != nil {
		t.Fatal(err)
	}
	for m := range c.Messages() {
		t.Errorf("the engine is told %s", m.Type())
	}
	if c.Err() == nil {
		t.Error("no error")
	}
}

// Nothing that was queued and not written keeps its descriptor.
func TestCloseLeavesNoDescriptor(t *testing.T) {
	f := memfd(t)
	before := descriptors.Open(t)
	t.Run("", func(t *testing.T) {
		a := newAgent(t, kvproto.Welcome{})
		c := dial(t, a)
		a.conn(t)
		big := kvproto.Hold{Transfer: "tx-1", Blocks: make([]int32, kvproto.MaxBlocks)}
		for range 20 {
			if err := errors.Join(c.Send(big), c.SendMemory(1, f)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := c.Send(kvproto.Ready{}); !errors.Is(err, kvclient.ErrClosed) {
			t.Errorf("send: %v", err)
		}
		if err := c.SendMemory(1, f); !errors.Is(err, kvclient.ErrClosed) {
			t.Errorf("send memory: %v", err)
		}
		if _, open := <-c.Messages(); open {
			t.Error("a message came")
		}
	})
	if after := descriptors.Open(t); after != before {
		t.Errorf("%d descriptors are open, before there were %d", after, before)
	}
}

// What waits is bounded in bytes too, and what is taken again makes room.
func TestLongMessagesFillTheQueueSooner(t *testing.T) {
	a := newAgent(t, kvproto.Welcome{})
	c := dial(t, a)
	far := a.conn(t)
	m := kvproto.Hold{Transfer: "tx-1", Blocks: slices.Repeat([]int32{math.MaxInt32}, kvproto.MaxBlocks)}
	frame, err := kvproto.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for ; err == nil; sent++ {
		err = c.Send(m)
	}
	// One more than fits may be on its way into the socket.
	if most := kvclient.QueueBytes/len(frame) + 2; !errors.Is(err, kvclient.ErrFull) || sent > most {
		t.Fatalf("%d messages of %d bytes, then %v", sent, len(frame), err)
	}
	for range sent - 1 {
		if got, _, err := far.Read(); err != nil || got.Type() != m.Type() {
			t.Fatalf("agent reads %v, %v", got, err)
		}
	}
	if err := c.Send(kvproto.Abort{Transfer: "tx-1"}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := far.Read(); err != nil || got != kvproto.Message(kvproto.Abort{Transfer: "tx-1"}) {
		t.Fatalf("agent reads %v, %v", got, err)
	}
}
