package zmtp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// script is a connection that reads given bytes and writes to nowhere.
type script struct{ io.Reader }

func (script) Write(b []byte) (int, error)      { return len(b), nil }
func (script) Close() error                     { return nil }
func (script) LocalAddr() net.Addr              { return nil }
func (script) RemoteAddr() net.Addr             { return nil }
func (script) SetDeadline(time.Time) error      { return nil }
func (script) SetReadDeadline(time.Time) error  { return nil }
func (script) SetWriteDeadline(time.Time) error { return nil }

func wire(frames ...[]byte) []byte { return bytes.Join(encode(frames), nil) }

// Whatever a peer sends: no panic, every error has a reason, every message is
// within the limits, and written again it is the same.
func FuzzConnection(f *testing.F) {
	hello := appendReady(greeting(), dealer)
	f.Add(hello)
	f.Add(append(bytes.Clone(hello), wire([]byte("get_meta_msg"))...))
	f.Add(append(bytes.Clone(hello), wire(nil, bytes.Repeat([]byte{1}, 300))...))
	f.Add(append(bytes.Clone(hello), appendCommand(nil, "PING", []byte{0, 1, 2})...))
	f.Add(append(greeting(), appendCommand(nil, "ERROR", []byte{1, 'x'})...))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	o := Options{MaxFrame: 400, MaxMessage: 500, MaxFrames: 4}.withDefaults()
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newConn(script{bytes.NewReader(b)}, o)
		if err := c.handshake(t.Context(), router, dealer, true); err != nil {
			needReason(t, err)
			return
		}
		if len(c.identity) > maxIdentity {
			t.Fatalf("identity of %d bytes", len(c.identity))
		}
		for {
			frames, err := c.readMessage()
			if err != nil {
				needReason(t, err)
				return
			}
			total := 0
			for _, frame := range frames {
				total += len(frame)
			}
			if len(frames) == 0 || len(frames) > o.MaxFrames || total > o.MaxMessage {
				t.Fatalf("%d frames of %d bytes", len(frames), total)
			}
			again, err := newConn(script{bytes.NewReader(wire(frames...))}, o).readMessage()
			if err != nil || !bytes.Equal(bytes.Join(again, []byte("|")), bytes.Join(frames, []byte("|"))) {
				t.Fatalf("%q was written and read as %q, %v", frames, again, err)
			}
		}
	})
}

func needReason(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Reason() == "" {
		t.Fatalf("error without a reason: %v", err)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte("\x00\x02hi"))
	f.Add([]byte("\x03\x00\x00\x00\x00\x00\x00\x00\x02hi"))
	f.Add([]byte("\x04\x05\x04PING"))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1 << 20
		flags, body, err := readFrame(bufio.NewReader(bytes.NewReader(b)), limit, uncharged)
		if err != nil {
			if body != nil {
				t.Fatalf("%d bytes beside %v", len(body), err)
			}
			return
		}
		if len(body) > limit || len(body) > len(b) {
			t.Fatalf("frame of %d bytes out of %d", len(body), len(b))
		}
		encoded := append(appendHeader(nil, flags&^flagLong, len(body)), body...)
		flags2, body2, err := readFrame(bufio.NewReader(bytes.NewReader(encoded)), limit, uncharged)
		if err != nil || flags2&^flagLong != flags&^flagLong || !bytes.Equal(body, body2) {
			t.Fatalf("written and read: 0x%02x %q, %v", flags2, body2, err)
		}
	})
}

// A length is not believed: memory grows with what has come.
func TestLengthAllocatesNothing(t *testing.T) {
	const claimed = 1 << 30
	header := appendHeader(nil, 0, claimed)
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(header)), claimed, uncharged); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 2*firstChunk {
		t.Errorf("%d bytes allocated for a frame that never came", allocated)
	}
}
