package zmtp_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/zmtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should come at once.
const patience = 20 * time.Second

// serve starts a Router and ends it with the test.
func serve(t *testing.T, addr string, o zmtp.Options, handle zmtp.Handler) *zmtp.Router {
	t.Helper()
	r, err := zmtp.Listen(t.Context(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Serve(context.WithoutCancel(t.Context()), handle) }()
	t.Cleanup(func() {
		r.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return r
}

// skipWithout skips where the loopback address can't be bound.
func skipWithout(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("this machine has no %s: %v", addr, err)
	}
	_ = l.Close()
}

func dial(t *testing.T, addr string, o zmtp.Options) *zmtp.Dealer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	d, err := zmtp.Dial(ctx, addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func receive(t *testing.T, d *zmtp.Dealer) [][]byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	frames, err := d.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return frames
}

func ask(t *testing.T, d *zmtp.Dealer, frames ...string) [][]byte {
	t.Helper()
	message := make([][]byte, len(frames))
	for i, f := range frames {
		message[i] = []byte(f)
	}
	if err := d.Send(t.Context(), message...); err != nil {
		t.Fatal(err)
	}
	return receive(t, d)
}

// within returns what c gives, its zero value when it is closed.
func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("not reached")
	}
}

func wantReason(t *testing.T, err error, reason string) {
	t.Helper()
	var e *zmtp.Error
	if !errors.As(err, &e) || e.Reason() != reason {
		t.Fatalf("error is %v, want the reason %s", err, reason)
	}
}

func echo(p *zmtp.Peer, frames [][]byte) { _ = p.Send(append([][]byte{nil}, frames...)...) }

func TestDealerAndRouter(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(listen, func(t *testing.T) {
			skipWithout(t, listen)
			r := serve(t, listen, zmtp.Options{}, func(p *zmtp.Peer, frames [][]byte) {
				if !p.Addr().Addr().IsLoopback() || p.Addr().Addr().Is4In6() {
					t.Errorf("peer is at %s", p.Addr())
				}
				echo(p, frames)
			})
			d := dial(t, r.Addr().String(), zmtp.Options{})
			for _, n := range []int{0, 1, 255, 256, 65536, 1 << 20} {
				if frames := ask(t, d, strings.Repeat("x", n)); len(frames) != 2 || len(frames[0]) != 0 || len(frames[1]) != n {
					t.Errorf("%d bytes came back as %d frames", n, len(frames))
				}
			}
			if err := d.Send(t.Context()); err == nil {
				t.Error("a message of 0 frames was sent")
			}
			if err := d.Close(); err != nil || !errors.Is(d.Err(), zmtp.ErrClosed) {
				t.Errorf("closed: %v, %v", err, d.Err())
			}
			if err := d.Send(t.Context(), nil); !errors.Is(err, zmtp.ErrClosed) {
				t.Errorf("send after close: %v", err)
			}
			if _, err := d.Receive(t.Context()); !errors.Is(err, zmtp.ErrClosed) {
				t.Errorf("receive after close: %v", err)
			}
		})
	}
}

// greeting and the READY of a DEALER, as libzmq puts them on a socket.
var (
	greeting = unhex("ff00000000000000017f03014e554c4c" + strings.Repeat("00", 48))
	ready    = unhex("04290552454144590b536f636b65742d54797065000000064445414c4552084964656e7469747900000000")
)

func unhex(s string) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// What real sockets send, byte for byte.
func TestBytesOnTheWire(t *testing.T) {
	r := serve(t, "127.0.0.1:0", zmtp.Options{}, echo)
	c := connect(t, r, greeting+ready+"\x00\x02hi")
	want := greeting + strings.NewReplacer("DEALER", "ROUTER").Replace(ready) + "\x01\x00\x00\x02hi"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Errorf("ROUTER sends (%v)\n%x, want\n%x", err, got, want)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	sent := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, want[:len(greeting)+len(ready)])
		got := make([]byte, len(greeting)+len(ready)+4)
		_, _ = io.ReadFull(c, got)
		sent <- string(got)
	}()
	d := dial(t, l.Addr().String(), zmtp.Options{})
	if err := d.Send(t.Context(), []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if got, want := within(t, sent), greeting+ready+"\x00\x02hi"; got != want {
		t.Errorf("DEALER sends\n%x, want\n%x", got, want)
	}
}

// connect opens a raw connection and writes text to it.
func connect(t *testing.T, r *zmtp.Router, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c
}

// Whatever connects is counted and turned away, and the listener goes on.
func TestRouterSurvives(t *testing.T) {
	noise := make([]byte, 4096)
	_, _ = rand.Read(noise)
	noise[0] &= 0x7f // not a signature
	hello := greeting + ready
	ended := make(chan string, 1)
	var handled atomic.Int64
	r := serve(t, "127.0.0.1:0", zmtp.Options{
		MaxFrame: 1000, MaxMessage: 1500, MaxFrames: 3, Count: func(reason string) { ended <- reason },
	}, func(p *zmtp.Peer, frames [][]byte) {
		handled.Add(1)
		echo(p, frames)
	})
	for _, tc := range []struct{ name, text, reason string }{
		{"a bare connect", "", zmtp.Probe},
		{"HTTP", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", zmtp.NotZMTP},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", zmtp.NotZMTP},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + string(noise[:500]), zmtp.NotZMTP},
		{"noise", string(noise), zmtp.NotZMTP},
		{"ZMTP 1.0", "\x01\x00\x0d\x00get_meta_msg", zmtp.NotZMTP},
		{"a signature with another end", "\xff" + strings.Repeat("\x00", 8) + "\x7e" + hello, zmtp.NotZMTP},
		{"ZMTP 2.0", greeting[:10] + "\x01\x05\x00\x00", zmtp.OldVersion},
		{"PLAIN", greeting[:12] + "PLAIN" + strings.Repeat("\x00", 47), zmtp.Mechanism},
		{"half a signature", greeting[:5], zmtp.Cut},
		{"half a greeting", greeting[:40], zmtp.Cut},
		{"no READY", greeting, zmtp.Cut},
		{"a message before READY", greeting + "\x00\x01x", zmtp.BadHandshake},
		{"another command before READY", greeting + "\x04\x05\x04PING", zmtp.BadHandshake},
		{"a READY over the limit", greeting + "\x06\x00\x00\x00\x00\x00\x10\x00\x00", zmtp.BadHandshake},
		{"a broken READY", greeting + "\x04\x0a\x05READY\x09abc", zmtp.BadHandshake},
		{"a READY with a value that ends early", greeting + "\x04\x0c\x05READY\x01x\xff\xff\xff\xff", zmtp.BadHandshake},
		{"a READY without a type", greeting + "\x04\x06\x05READY", zmtp.SocketType},
		{"a PUB", greeting + "\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB", zmtp.SocketType},
		{"ERROR", greeting + "\x04\x09\x05ERROR\x02no", zmtp.PeerError},
		{"end after READY", hello, zmtp.Closed},
		{"half a frame", hello + "\x00\x05abc", zmtp.Cut},
		{"a half message", hello + "\x01\x01a", zmtp.Cut},
		{"reserved flags", hello + "\x08\x01x", zmtp.BadFrame},
		{"a command that goes on", hello + "\x05\x01x", zmtp.BadFrame},
		{"a frame over the limit", hello + "\x02\x00\x00\x00\x00\x00\x00\x03\xe9", zmtp.FrameTooLong},
		{"a frame of 2^63 bytes", hello + "\x02\x80\x00\x00\x00\x00\x00\x00\x00", zmtp.FrameTooLong},
		{"frames over the limit", hello + strings.Repeat("\x01\x01x", 3) + "\x00\x01x", zmtp.TooManyFrames},
		{"a message over the limit", hello + strings.Repeat("\x01\xff"+strings.Repeat("x", 255), 2) + "\x02\x00\x00\x00\x00\x00\x00\x03\xe8" + strings.Repeat("x", 1000), zmtp.MessageTooLong},
		{"an unknown command", hello + "\x04\x06\x05HELLO", zmtp.BadCommand},
		{"a command without a name", hello + "\x04\x00", zmtp.BadCommand},
		{"a short PING", hello + "\x04\x06\x04PING\x00", zmtp.BadCommand},
		{"ERROR in between", hello + "\x04\x09\x05ERROR\x02no", zmtp.PeerError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := connect(t, r, tc.text)
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if reason := within(t, ended); reason != tc.reason {
				t.Errorf("counted as %s, want %s", reason, tc.reason)
			}
		})
	}
	if n := handled.Load(); n != 0 {
		t.Errorf("the handler saw %d messages", n)
	}
	d := dial(t, r.Addr().String(), zmtp.Options{})
	if frames := ask(t, d, "x"); string(frames[1]) != "x" {
		t.Errorf("answered by %q", frames)
	}
	s := r.Stats()
	if s.Messages != 1 || s.Ended[zmtp.NotZMTP] != 6 || s.Ended[zmtp.Probe] != 1 {
		t.Errorf("stats are %+v", s)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	within(t, ended)
}

func TestPingIsAnswered(t *testing.T) {
	r := serve(t, "127.0.0.1:0", zmtp.Options{}, echo)
	// Between the frames of a message too: libzmq does that.
	c := connect(t, r, greeting+ready+"\x04\x0a\x04PING\x00\x05abc"+"\x01\x01a"+"\x04\x07\x04PING\x00\x05"+"\x00\x01b")
	want := "\x04\x08\x04PONGabc" + "\x04\x05\x04PONG" + "\x01\x00\x01\x01a\x00\x01b"
	got := make([]byte, len(greeting)+len(ready)+len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got[len(greeting)+len(ready):]) != want {
		t.Errorf("got %x, %v; want %x", got[len(greeting)+len(ready):], err, want)
	}
}

func TestConnectionLimits(t *testing.T) {
	ended := make(chan string, 10)
	r := serve(t, "127.0.0.1:0", zmtp.Options{MaxConnections: 3, MaxPerHost: 2, Count: func(reason string) { ended <- reason }}, echo)
	from := func(ip string) (net.Conn, error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		c, err := dialer.Dial("tcp", r.Addr().String())
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return c, err
	}
	first := dial(t, r.Addr().String(), zmtp.Options{})
	dial(t, r.Addr().String(), zmtp.Options{})
	if _, err := zmtp.Dial(t.Context(), r.Addr().String(), zmtp.Options{}); err == nil {
		t.Error("a third connection of a host was let in")
	}
	if reason := within(t, ended); reason != zmtp.TooManyFromHost {
		t.Errorf("counted as %s", reason)
	}
	for _, want := range []string{"", zmtp.TooMany} {
		if _, err := from("127.0.0.2"); err != nil {
			t.Skipf("this machine has one loopback address: %v", err)
		}
		if want != "" && within(t, ended) != want {
			t.Errorf("not counted as %s", want)
		}
	}
	// A place that is given up can be had again.
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	within(t, ended)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		d, err := zmtp.Dial(ctx, r.Addr().String(), zmtp.Options{})
		if err == nil {
			_ = d.Close()
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestDealerSeesTheEndAtOnce(t *testing.T) {
	got := make(chan *zmtp.Peer, 1)
	r := serve(t, "127.0.0.1:0", zmtp.Options{}, func(p *zmtp.Peer, _ [][]byte) {
		_ = p.Send([]byte("last"))
		got <- p
	})
	d := dial(t, r.Addr().String(), zmtp.Options{})
	if err := d.Send(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	p := within(t, got)
	if d.Err() != nil {
		t.Errorf("error before the end: %v", d.Err())
	}
	if frames := receive(t, d); string(frames[0]) != "last" {
		t.Errorf("received %q", frames)
	}
	p.Close()
	within(t, d.Done())
	wantReason(t, d.Err(), zmtp.Closed)
	if _, err := d.Receive(t.Context()); !errors.Is(err, d.Err()) {
		t.Errorf("receive: %v", err)
	}
	within(t, p.Done())
	if err := p.Send([]byte("x")); !errors.Is(err, zmtp.ErrClosed) {
		t.Errorf("send: %v", err)
	}
}

func TestDialFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	// Nobody accepts: the system completes the connection, nobody speaks.
	ctx, cancel := context.WithCancel(t.Context())
	_, err = zmtp.Dial(ctx, addr, zmtp.Options{Handshake: time.Millisecond})
	wantReason(t, err, zmtp.HandshakeTimeout)
	cancel()
	if _, err = zmtp.Dial(ctx, addr, zmtp.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var e *zmtp.Error
	if _, err = zmtp.Dial(t.Context(), addr, zmtp.Options{}); err == nil || errors.As(err, &e) {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	r, err := zmtp.Listen(t.Context(), "127.0.0.1:0", zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, echo) }()
	d := dial(t, r.Addr().String(), zmtp.Options{})
	half := connect(t, r, greeting[:20])
	cancel()
	if err := within(t, done); err != nil {
		t.Errorf("serve: %v", err)
	}
	within(t, d.Done())
	if _, err := io.Copy(io.Discard, half); err != nil && errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connection in the handshake goes on: %v", err)
	}
	if s := r.Stats(); s.Open != 0 {
		t.Errorf("%d connections are open", s.Open)
	}
}
