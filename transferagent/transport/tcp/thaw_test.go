package tcp

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// relayed dials a mover through what stands for its kernel while it is frozen: of
// the bytes that a session sends it keeps all. They come out of kept when the
// session has ended; to is the connection that the mover takes them from.
func relayed(t *testing.T, m *Mover) (addr []byte, to *net.TCPConn, kept <-chan []byte) {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Port())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // the test is over
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	out := make(chan []byte, 1)
	fakeAddr := fake(t, func(from *net.TCPConn) {
		io.CopyN(c, from, helloSize)   //nolint:errcheck // the dial would fail
		io.CopyN(from, c, welcomeSize) //nolint:errcheck // likewise
		b, _ := io.ReadAll(from)       // a session that breaks resets the connection
		out <- b
	})
	a, err := parseAddress(fakeAddr)
	if err != nil {
		t.Fatal(err)
	}
	a.token = m.address.token
	return a.bytes(), c.(*net.TCPConn), out
}

// outlived posts a batch of transfer x, of so many ones, to a mover that does not
// answer within a time, and gives what the session sent until it gave up.
func outlived(t *testing.T, receiver *Mover, size int64, within time.Duration) (sent []byte, to *net.TCPConn) {
	t.Helper()
	sender := newMover(t, Options{Connections: 1, AckTimeout: within})
	if err := sender.Register(1, transport.Memory{Bytes: bytes.Repeat([]byte{1}, int(size))}); err != nil {
		t.Fatal(err)
	}
	addr, to, kept := relayed(t, receiver)
	s, err := sender.Dial(t.Context(), "127.0.0.1", addr)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	b := transport.Batch{Flow: transport.Flow{Transfer: "x"}, Source: 1, Target: 1, Copies: []kvlayout.Copy{{Length: size, Count: 1}}}
	if err := s.Post(t.Context(), b, func(_ int64, err error) { failed <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, transport.ErrFrozen) {
		t.Fatalf("%v, want ErrFrozen", err)
	}
	<-s.Done()
	return <-kept, to
}

// TestRevokeOutlivesTheSession: a receiver that is frozen for longer than its peer
// waits goes on with what has arrived, though the batch was told as failed and the
// session has ended. After its Revoke no byte changes any more.
func TestRevokeOutlivesTheSession(t *testing.T) {
	const size = 3 * framePayload
	receiver := newMover(t, Options{})
	target := bytes.Repeat([]byte{9}, size)
	if err := receiver.Register(1, transport.Memory{Bytes: target}); err != nil {
		t.Fatal(err)
	}
	first := headerSize + len("x") + runSize + framePayload
	half := first + first/2
	var arrived []byte
	var to *net.TCPConn
	for within := time.Second; len(arrived) < half+framePayload/4; within *= 2 {
		if within > time.Minute {
			t.Fatalf("only %d bytes were sent", len(arrived))
		}
		arrived, to = outlived(t, receiver, size, within)
	}
	// The receiver thaws: the first frame is placed, and half of the second.
	if _, err := to.Write(arrived[:half]); err != nil {
		t.Fatal(err)
	}
	var answer [ackSize]byte
	if _, err := io.ReadFull(to, answer[:]); err != nil {
		t.Fatal(err)
	}
	if a, err := parseAck(answer); err != nil || a.status != statusOK || a.placed != framePayload {
		t.Fatalf("the first frame was answered with %+v, %v", a, err)
	}

	if err := receiver.Revoke(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	then := slices.Clone(target)
	if !bytes.Equal(then[:framePayload], bytes.Repeat([]byte{1}, framePayload)) {
		t.Error("the frame that was answered is not in place")
	}
	if _, err := to.Write(arrived[half:]); err != nil {
		t.Fatal(err)
	}
	if err := to.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(to); err != nil { // it ends when all has been taken
		t.Fatal(err)
	}
	if !bytes.Equal(then, target) {
		t.Error("bytes changed after the transfer was revoked")
	}
}
