package tcp

import (
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// fake listens as a mover would and hands each connection to serve.
func fake(t *testing.T, serve func(*net.TCPConn)) []byte {
	t.Helper()
	return fakeWith(t, net.ListenConfig{}, serve)
}

func fakeWith(t *testing.T, config net.ListenConfig, serve func(*net.TCPConn)) []byte {
	t.Helper()
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var conns []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			conns = append(conns, c)
			serve(c.(*net.TCPConn))
		}
		for _, c := range conns {
			c.Close() //nolint:errcheck // the test is over
		}
	}()
	t.Cleanup(func() {
		l.Close() //nolint:errcheck // the test is over
		<-ended
	})
	return address{port: uint16(l.Addr().(*net.TCPAddr).Port)}.bytes()
}

func welcomed(c *net.TCPConn) {
	var b [helloSize]byte
	io.ReadFull(c, b[:])            //nolint:errcheck // the dial would fail
	c.Write(welcomeBytes(statusOK)) //nolint:errcheck // likewise
}

// brisk is for sessions on which nothing good has to be in time.
var brisk = Options{WriteStall: 200 * time.Millisecond, AckTimeout: 200 * time.Millisecond, CloseTimeout: 100 * time.Millisecond}

func TestDialFrozen(t *testing.T) {
	addr := fake(t, func(*net.TCPConn) {}) // accepts and says nothing
	m := newMover(t, Options{DialTimeout: time.Second})
	if _, err := m.Dial(t.Context(), "127.0.0.1", addr); !errors.Is(err, transport.ErrFrozen) {
		t.Errorf("%v, want ErrFrozen", err)
	}
}

// TestFrozen: a peer that welcomes and then does nothing ends the session by
// the deadline of an answer, or by that of a write where more is sent than the
// sockets hold.
func TestFrozen(t *testing.T) {
	for name, size := range map[string]int{"little": 10, "much": 32 << 20} {
		t.Run(name, func(t *testing.T) {
			addr := fake(t, welcomed)
			m := newMover(t, brisk)
			if err := m.Register(1, transport.Memory{Bytes: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
			s, err := m.Dial(t.Context(), "127.0.0.1", addr)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			b := transport.Batch{Source: 1, Copies: []kvlayout.Copy{{Length: int64(size), Count: 1}}}
			if err := s.Post(t.Context(), b, func(_ int64, err error) { done <- err }); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, transport.ErrFrozen) {
				t.Errorf("%v, want ErrFrozen", err)
			}
			<-s.Done()
		})
	}
}

// TestStuckWriteIsCut: Unregister does not wait for a peer that stopped reading.
func TestStuckWriteIsCut(t *testing.T) {
	small := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, heldByASocket) })
		return errors.Join(err, failed)
	}}
	addr := fakeWith(t, small, welcomed)
	m := newMover(t, Options{Withdrawal: 100 * time.Millisecond, WriteStall: time.Hour, AckTimeout: time.Hour})
	const size = 8 * framePayload
	if err := m.Register(1, transport.Memory{Bytes: make([]byte, size)}); err != nil {
		t.Fatal(err)
	}
	s, err := m.Dial(t.Context(), "127.0.0.1", addr)
	if err != nil {
		t.Fatal(err)
	}
	lanes := s.(*session).lanes
	for _, l := range lanes {
		if err := l.conn.SetWriteBuffer(heldByASocket); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	b := transport.Batch{Source: 1, Copies: []kvlayout.Copy{{Length: size, Count: 1}}}
	if err := s.Post(t.Context(), b, func(_ int64, err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	awaitFrames(t, lanes)
	m.Unregister(1)
	if err := <-done; !errors.Is(err, transport.ErrFrozen) {
		t.Errorf("%v, want ErrFrozen", err)
	}
	<-s.Done()
}

// heldByASocket is a buffer that a frame does not fit into.
const heldByASocket = 64 << 10

// awaitFrames returns when each lane writes its first frame: it is noted when its
// memory is held, and let go of when all of it is in the socket.
func awaitFrames(t *testing.T, lanes []*lane) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for _, l := range lanes {
		for owed := 0; owed == 0; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatal("no frame is being written")
			}
			l.mu.Lock()
			owed = len(l.owed)
			l.mu.Unlock()
		}
	}
}

// TestIdleIsNotFrozen: deadlines run only while something is owed.
func TestIdleIsNotFrozen(t *testing.T) {
	m := newMover(t, brisk)
	s, err := m.Dial(t.Context(), "127.0.0.1", m.Address())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
		t.Errorf("an idle session ended: %v", s.Err())
	case <-time.After(3 * brisk.AckTimeout):
	}
}

// TestWrongAnswers: acks that fit no frame end the session.
func TestWrongAnswers(t *testing.T) {
	for name, answer := range map[string][]byte{
		"unasked":  appendAck(nil, ack{seq: 1}),
		"garbage":  slices.Repeat([]byte("x"), ackSize),
		"too much": appendAck(nil, ack{seq: 1, placed: maxPayload + 1}),
	} {
		t.Run(name, func(t *testing.T) {
			addr := fake(t, func(c *net.TCPConn) {
				welcomed(c)
				c.Write(answer) //nolint:errcheck // the session would not end
			})
			m := newMover(t, Options{})
			s, err := m.Dial(t.Context(), "127.0.0.1", addr)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-s.Done():
			case <-time.After(time.Minute):
				t.Fatal("the session goes on")
			}
			if !errors.Is(s.Err(), errFrame) {
				t.Errorf("%v, want errFrame", s.Err())
			}
		})
	}
}
