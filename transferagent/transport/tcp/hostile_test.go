package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
)

func newMover(t *testing.T, o Options) *Mover {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	m, err := New("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // nothing depends on it
	return m
}

// raw is a connection to a mover that speaks by hand.
func raw(t *testing.T, m *Mover) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Port())))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// closed waits for the other end to close a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); isTimeout(err) {
		t.Fatal("the connection stays open")
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// greeted is a raw connection that was welcomed.
func greeted(t *testing.T, m *Mover) net.Conn {
	t.Helper()
	c := raw(t, m)
	if err := greet(c.(*net.TCPConn), m.address.token, m.options.Keys); err != nil {
		t.Fatal(err)
	}
	return c
}

// works demands that a mover still serves.
func works(t *testing.T, m *Mover) {
	t.Helper()
	src, dst := bytes.Repeat([]byte{5}, 1000), make([]byte, 1000)
	if err := m.Register(901, transport.Memory{Bytes: src}); err != nil {
		t.Fatal(err)
	}
	if err := m.Register(902, transport.Memory{Bytes: dst}); err != nil {
		t.Fatal(err)
	}
	s, err := m.Dial(t.Context(), "127.0.0.1", m.Address())
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
	m.Unregister(901)
	m.Unregister(902)
}

// TestGarbage: what is not ours is counted and dropped, and the mover lives.
func TestGarbage(t *testing.T) {
	var counted ledger.Drops
	m := newMover(t, Options{Count: counted.Add})
	// Who says nothing is soon given up by this one, who is slow to say something by neither.
	hasty := newMover(t, Options{DialTimeout: 200 * time.Millisecond, Count: counted.Add})
	other := helloBytes(m.address.token)
	other[4] = 99
	for _, c := range []struct {
		name, reason string
		bytes        []byte
	}{
		{"http", "hello", []byte("GET /metrics HTTP/1.1\r\nHost: agent\r\n\r\n")},
		{"tls", "hello", append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 32)...)},
		{"zeros", "hello", make([]byte, 1000)},
		{"version", "version", other},
		{"stale", "stale", helloBytes(token{1})},
		{"short", "silent", []byte("PD")},
		{"silence", "silent", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := m
			if c.reason == "silent" {
				m = hasty
			}
			before := m.Dropped()[c.reason]
			conn := raw(t, m)
			if _, err := conn.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			closed(t, conn)
			if got := m.Dropped()[c.reason]; got != before+1 {
				t.Errorf("dropped for %q: %d, want %d", c.reason, got, before+1)
			}
		})
	}
	works(t, m)
	dropped := m.Dropped()
	maps.Copy(dropped, hasty.Dropped())
	if got := counted.Counts(); !maps.Equal(got, dropped) {
		t.Errorf("told of %v, dropped %v", got, dropped)
	}
}

// TestBadFrames: a peer that knows the token cannot do harm either.
func TestBadFrames(t *testing.T) {
	m := newMover(t, Options{})
	// A frame that does not end is soon given up by this one, a bad one by neither.
	hasty := newMover(t, Options{FrameTimeout: 300 * time.Millisecond})
	mem := bytes.Repeat([]byte{9}, 100)
	for _, m := range []*Mover{m, hasty} {
		if err := m.Register(1, transport.Memory{Bytes: mem}); err != nil {
			t.Fatal(err)
		}
	}
	frame := func(h header, runs ...run) []byte {
		h.runs, h.target = len(runs), 1
		b := appendHeader(nil, h)
		for _, r := range runs {
			b = appendRun(b, r)
		}
		return b
	}
	many := frame(header{payload: 1}, run{0, 0, 1, 1})
	binary.BigEndian.PutUint32(many[20:], math.MaxUint32)
	long := frame(header{payload: 1}, run{0, 0, 1, 1})
	binary.BigEndian.PutUint16(long[40:], math.MaxUint16)
	for _, c := range []struct {
		name, reason string
		bytes        []byte
	}{
		{"no frame", "frame", bytes.Repeat([]byte("x"), headerSize)},
		{"huge payload", "frame", frame(header{payload: math.MaxUint32}, run{0, 0, math.MaxUint32, 1})},
		{"many runs", "frame", many},
		{"long transfer", "frame", long},
		{"less than the runs", "frame", frame(header{payload: 5}, run{0, 0, 6, 1})},
		{"more than the runs", "frame", frame(header{payload: 5}, run{0, 0, 4, 1})},
		{"negative", "frame", frame(header{payload: 5}, run{0, 0, -5, 1})},
		{"overflow", "frame", frame(header{payload: 8}, run{0, 1, 1 << 62, 4}, run{0, 0, 8, 1})},
		{"no end", "stalled", append(frame(header{payload: 8}, run{0, 0, 8, 1}), 7, 7)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := m
			if c.reason == "stalled" {
				m = hasty
			}
			before := m.Dropped()[c.reason]
			conn := greeted(t, m)
			if _, err := conn.Write(c.bytes); err != nil {
				t.Fatal(err)
			}
			closed(t, conn)
			if got := m.Dropped()[c.reason]; got != before+1 {
				t.Errorf("dropped for %q: %d, want %d", c.reason, got, before+1)
			}
		})
	}
	if bytes.Count(mem[8:], []byte{9}) != 92 {
		t.Error("memory was touched")
	}
	works(t, m)
}

// TestBoundsAtTheReceiver: runs that a sender should not have sent are refused
// and answered, their payload is skipped, and the connection goes on.
func TestBoundsAtTheReceiver(t *testing.T) {
	m := newMover(t, Options{})
	mem := bytes.Repeat([]byte{9}, 100)
	if err := m.Register(1, transport.Memory{Bytes: mem}); err != nil {
		t.Fatal(err)
	}
	conn := greeted(t, m)
	for i, r := range []run{
		{93, 0, 8, 1},
		{-1, 0, 8, 1},
		{0, 25, 8, 5},
		{40, -20, 8, 4},
		{math.MaxInt64, 0, 8, 1},
		{math.MinInt64, math.MaxInt64, 8, 2},
		{4, math.MinInt64, 8, 2},
	} {
		payload := r.length * r.count
		b := appendHeader(nil, header{target: 1, seq: uint64(i), payload: int(payload), runs: 1})
		b = append(appendRun(b, r), make([]byte, payload)...)
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
		var got [ackSize]byte
		if _, err := io.ReadFull(conn, got[:]); err != nil {
			t.Fatal(err)
		}
		if a, err := parseAck(got); err != nil || a != (ack{statusBounds, uint64(i), 0}) {
			t.Errorf("%+v was answered with %+v, %v", r, a, err)
		}
	}
	if bytes.Count(mem, []byte{9}) != len(mem) {
		t.Error("memory was touched")
	}
}

func TestCrowded(t *testing.T) {
	m := newMover(t, Options{MaxIncoming: 2})
	first, second := greeted(t, m), greeted(t, m)
	third := raw(t, m)
	closed(t, third)
	if got := m.Dropped()["crowded"]; got != 1 {
		t.Errorf("crowded %d, want 1", got)
	}
	for _, c := range []net.Conn{first, second} { // make room
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		closed(t, c)
	}
	works(t, m)
}

// TestRestartedPeerIsAnother: a new mover at the same port refuses the old address.
func TestRestartedPeerIsAnother(t *testing.T) {
	a := newMover(t, Options{})
	old := newMover(t, Options{})
	s, err := a.Dial(t.Context(), "127.0.0.1", old.Address())
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	again, err := New(net.JoinHostPort("127.0.0.1", strconv.Itoa(old.Port())), Options{})
	if err != nil {
		t.Skipf("the port was taken meanwhile: %v", err)
	}
	t.Cleanup(func() { again.Close() }) //nolint:errcheck // nothing depends on it
	if _, err := a.Dial(t.Context(), "127.0.0.1", old.Address()); !errors.Is(err, transport.ErrStale) {
		t.Errorf("%v, want ErrStale", err)
	}
	if again.Dropped()["stale"] != 1 {
		t.Errorf("dropped %v", again.Dropped())
	}
	if _, err := a.Dial(t.Context(), "127.0.0.1", again.Address()); err != nil {
		t.Error(err)
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, o := range []Options{{Connections: -1}, {Connections: 65}, {Queue: -1}, {AckTimeout: -1}} {
		if m, err := New("127.0.0.1:0", o); err == nil {
			m.Close() //nolint:errcheck // it should not be there
			t.Errorf("%+v was taken", o)
		}
	}
}
