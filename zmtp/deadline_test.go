package zmtp

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes, so that time can be simulated.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	select {
	case <-p.done:
	default:
		close(p.done)
	}
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// connect returns the far end of a connection that the Router has accepted.
func (p *pipes) connect() net.Conn {
	near, far := net.Pipe()
	p.conns <- near
	return far
}

// serving runs a Router on pipes, in a bubble, for the length of do.
func serving(t *testing.T, o Options, handle Handler, do func(p *pipes, r *Router)) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipes()
		r := routerOn(p, o)
		done := make(chan error, 1)
		go func() { done <- r.Serve(t.Context(), handle) }()
		do(p, r)
		r.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

// handshaken writes a DEALER's handshake on a raw end and reads the Router's.
func handshaken(t *testing.T, c net.Conn) {
	t.Helper()
	go func() { _, _ = c.Write(appendReady(greeting(), dealer)) }()
	if _, err := io.ReadFull(c, make([]byte, greetingLength+len(appendReady(nil, router)))); err != nil {
		t.Fatal(err)
	}
}

// endsAfter checks that the far end is closed, at what time and for which reason.
func endsAfter(t *testing.T, r *Router, c net.Conn, started time.Time, want time.Duration, reason string) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); err != nil || n != 0 {
		t.Errorf("%d bytes and %v instead of the end", n, err)
	}
	if took := time.Since(started); took != want {
		t.Errorf("ended after %v, want %v", took, want)
	}
	synctest.Wait()
	if s := r.Stats(); s.Ended[reason] != 1 || s.Open != 0 {
		t.Errorf("stats are %+v, want one %s", s, reason)
	}
}

func ignore(*Peer, [][]byte) {}

func TestHandshakeTimeout(t *testing.T) {
	for name, text := range map[string][]byte{
		"silent": nil, "signature": signature, "greeting": greeting(), "half a READY": appendReady(greeting(), dealer)[:80],
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, Options{Handshake: 7 * time.Second}, ignore, func(p *pipes, r *Router) {
				started := time.Now()
				c := p.connect()
				go func() { _, _ = c.Write(text) }()
				synctest.Wait()
				if len(text) >= signatureLength {
					if _, err := io.ReadFull(c, make([]byte, greetingLength)); err != nil {
						t.Fatal(err)
					}
				}
				endsAfter(t, r, c, started, 7*time.Second, HandshakeTimeout)
			})
		})
	}
}

func TestIdle(t *testing.T) {
	serving(t, Options{Idle: time.Minute}, ignore, func(p *pipes, r *Router) {
		c := p.connect()
		handshaken(t, c)
		time.Sleep(59 * time.Second)
		if _, err := c.Write([]byte("\x00\x01x")); err != nil {
			t.Fatal(err)
		}
		endsAfter(t, r, c, time.Now(), time.Minute, Idle)
	})
}

func TestWithoutIdleLimitAConnectionStays(t *testing.T) {
	got := make(chan int, 1)
	serving(t, Options{}, func(_ *Peer, frames [][]byte) { got <- len(frames) }, func(p *pipes, _ *Router) {
		c := p.connect()
		handshaken(t, c)
		time.Sleep(1000 * time.Hour)
		if _, err := c.Write([]byte("\x00\x01x")); err != nil {
			t.Fatal(err)
		}
		if n := <-got; n != 1 {
			t.Errorf("message of %d frames", n)
		}
	})
}

func TestSlowSender(t *testing.T) {
	for name, text := range map[string]string{
		"flags": "\x00", "half a frame": "\x00\x05ab", "half a message": "\x01\x01a", "a long frame": "\x02\x00\x00\x00\x00\x00\x0f\xff\xff",
	} {
		t.Run(name, func(t *testing.T) {
			serving(t, Options{Message: 3 * time.Second}, ignore, func(p *pipes, r *Router) {
				c := p.connect()
				handshaken(t, c)
				started := time.Now()
				if _, err := c.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				endsAfter(t, r, c, started, 3*time.Second, SlowSender)
			})
		})
	}
}

func TestSlowReader(t *testing.T) {
	serving(t, Options{Write: 5 * time.Second, Queue: 2}, func(p *Peer, _ [][]byte) {
		var err error
		n := 0
		for ; err == nil; n++ {
			err = p.Send([]byte("answer"))
		}
		if !errors.Is(err, ErrFull) || n > 4 {
			t.Errorf("the %dth send: %v", n, err)
		}
	}, func(p *pipes, r *Router) {
		c := p.connect()
		handshaken(t, c)
		started := time.Now()
		if _, err := c.Write([]byte("\x00\x01x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		endsAfter(t, r, c, started, 5*time.Second, SlowReader)
	})
}

// A peer that asks and never reads ends itself, not the Router.
func TestPingFlood(t *testing.T) {
	serving(t, Options{Queue: 4}, ignore, func(p *pipes, r *Router) {
		c := p.connect()
		handshaken(t, c)
		ping := appendCommand(nil, "PING", []byte{0, 1})
		var err error
		for n := 0; err == nil; n++ {
			if n > 10 {
				t.Fatal("still connected")
			}
			_, err = c.Write(ping)
		}
		endsAfter(t, r, c, time.Now(), 0, SlowReader)
	})
}

func TestDealerDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		listening := newConn(far, Options{}.withDefaults())
		shaken := make(chan error, 1)
		go func() { shaken <- listening.handshake(t.Context(), router, dealer, true) }()
		d, err := dealerOn(t.Context(), near, Options{Write: time.Hour})
		if err := errors.Join(err, <-shaken); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("receive: %v", err)
		}
		if err := d.Send(ctx, []byte("never sent")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("send after the deadline: %v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := d.Send(ctx, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("send: %v", err)
		}
		// The connection has not suffered: the message is still on its way.
		frames, err := listening.readMessage()
		if err != nil || len(frames) != 1 || string(frames[0]) != "x" {
			t.Errorf("the other end reads %q, %v", frames, err)
		}
		// Close ends a write that is stuck.
		go func() { _ = d.Send(t.Context(), []byte("y")) }()
		synctest.Wait()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestDialDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = far.Close() }()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		started := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := dealerOn(ctx, near, Options{})
		var e *Error
		if !errors.As(err, &e) || e.Reason() != HandshakeTimeout || time.Since(started) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(started), err)
		}
	})
}

// A system without descriptors is no reason to stop listening.
func TestAcceptFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failing{pipes: newPipes(), failures: 3}
		r := routerOn(l, Options{})
		done := make(chan error, 1)
		go func() { done <- r.Serve(t.Context(), ignore) }()
		started := time.Now()
		c := l.connect()
		handshaken(t, c)
		if took := time.Since(started); took != 3*acceptPause {
			t.Errorf("accepted after %v", took)
		}
		if n := r.Stats().Ended[AcceptFailed]; n != 3 {
			t.Errorf("%d failures counted", n)
		}
		r.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

type failing struct {
	*pipes
	failures int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.failures > 0 {
		l.failures--
		return nil, errors.New("too many open files")
	}
	return l.pipes.Accept()
}

func TestTrialEnds(t *testing.T) {
	const limit = 5 * time.Second
	hello := string(appendReady(greeting(), dealer))
	for name, c := range map[string]struct{ sent, reason string }{
		"silent":              {hello, Unproven},
		"inside a message":    {hello + "\x00\x05h", Unproven},
		"after a message":     {hello + "\x00\x01x", Unproven},
		"inside the greeting": {hello[:20], HandshakeTimeout},
		"nothing at all":      {"", HandshakeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			prove := func(p *Peer, frames [][]byte) {
				if string(frames[0]) == "proof" {
					p.Prove("")
				}
			}
			serving(t, Options{Trial: &Trial{Within: limit}}, prove, func(p *pipes, r *Router) {
				peer := p.connect()
				handshaken(t, peer)
				if _, err := io.WriteString(peer, "\x00\x05proof"); err != nil {
					t.Fatal(err)
				}
				started := time.Now()
				c2 := p.connect()
				go func() { _, _ = io.WriteString(c2, c.sent) }()
				if _, err := io.Copy(io.Discard, c2); err != nil {
					t.Error(err)
				}
				if took := time.Since(started); took != limit {
					t.Errorf("ended after %v", took)
				}
				synctest.Wait()
				if s := r.Stats(); s.Ended[c.reason] != 1 || s.Open != 1 {
					t.Errorf("stats are %+v, want one %s", s, c.reason)
				}
				if _, err := io.WriteString(peer, "\x00\x05later"); err != nil {
					t.Errorf("after the trial: %v", err)
				}
				_ = peer.Close()
			})
		})
	}
}

// A message that could not be written is told by what has ended the connection, not by
// what the write met then.
func TestSendTellsWhatEndedTheConnection(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _ = far.Close() }()
			listening := newConn(far, Options{}.withDefaults())
			shaken := make(chan error, 1)
			go func() { shaken <- listening.handshake(t.Context(), router, dealer, true) }()
			d, err := dealerOn(t.Context(), near, Options{})
			if err := errors.Join(err, <-shaken); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d.Close() }()
			sent := make(chan error, 1)
			go func() { sent <- d.Send(t.Context(), []byte("never read")) }()
			synctest.Wait()
			if _, err := far.Write([]byte("\x08\x01")); err != nil {
				t.Fatal(err)
			}
			if ended, ok := errors.AsType[*Error](<-sent); !ok || ended.Reason() != BadFrame {
				t.Errorf("send: %v", ended)
			}
		})
	}
}
