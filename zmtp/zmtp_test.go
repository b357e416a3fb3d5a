package zmtp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/zmtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what should come at once.
const patience = time.Minute

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

func TestConnectionLimits(t *testing.T) {
	ended := make(chan string, 10)
	r := serve(t, "127.0.0.1:0", zmtp.Options{MaxConnections: 3, MaxPerHost: 2, Count: func(reason string) {
		select {
		case ended <- reason:
		default: // of those that try again below, however often
		}
	}}, echo)
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
	_, err = zmtp.Dial(ctx, addr, zmtp.Options{Handshake: 200 * time.Millisecond})
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

// Connections together take no more than the Router's budget, and what is handled
// or cut off is given back.
func TestReceivingIsBoundedForAll(t *testing.T) {
	const size = 64 << 10
	r := serve(t, "127.0.0.1:0", zmtp.Options{Budget: zmtp.NewBudget(size+size/2, 0)}, echo)
	half := connect(t, r, greeting+ready+"\x02\x00\x00\x00\x00\x00\x01\x00\x00"+strings.Repeat("x", size/2))
	deadline := time.Now().Add(patience)
	refused := func() bool {
		d := dial(t, r.Addr().String(), zmtp.Options{})
		defer func() { _ = d.Close() }()
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		defer cancel()
		if err := d.Send(ctx, []byte(strings.Repeat("x", size))); err != nil {
			return true
		}
		_, err := d.Receive(ctx)
		return err != nil
	}
	for !refused() {
		if time.Now().After(deadline) {
			t.Fatal("two messages at a time fit into the budget of one and a half")
		}
	}
	for r.Stats().Ended[zmtp.BuffersFull] == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("ended: %v", r.Stats().Ended)
		}
	}
	_ = half.Close()
	for refused() {
		if time.Now().After(deadline) {
			t.Fatal("the budget of a connection that was cut off is not given back")
		}
	}
	for range 3 {
		for refused() { // its budget comes back after its answer
			if time.Now().After(deadline) {
				t.Fatal("the budget of a handled message is not given back")
			}
		}
	}
}
