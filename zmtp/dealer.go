package zmtp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// keepAlive lets the system find out that a peer's machine is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Dealer is one connection to a ROUTER socket. Its methods may be called from
// several goroutines.
type Dealer struct {
	conn *conn
	in   chan [][]byte
	ends sync.WaitGroup
}

// Dial connects to the ROUTER at addr, "host:port" or "[IPv6]:port", and completes
// the handshake within ctx and Options.Handshake. When the peer is reached but
// does not speak as it should, the error is an *Error.
func Dial(ctx context.Context, addr string, o Options) (*Dealer, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive, Timeout: o.withDefaults().Handshake}
	nc, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	d, err := dealerOn(ctx, nc, o)
	if err != nil {
		return nil, fmt.Errorf("handshake with %s: %w", addr, err)
	}
	return d, nil
}

// dealerOn makes a Dealer of a fresh connection, which it closes when it fails.
func dealerOn(ctx context.Context, nc net.Conn, o Options) (*Dealer, error) {
	o = o.withDefaults()
	d := &Dealer{conn: newConn(nc, o), in: make(chan [][]byte, o.Inbox)}
	if err := d.conn.handshake(ctx, dealer, router, false); err != nil {
		d.conn.close(err)
		return nil, err
	}
	d.ends.Go(d.conn.writeMessages)
	d.ends.Go(d.receive)
	return d, nil
}

func (d *Dealer) receive() {
	defer d.conn.handled()
	for {
		frames, err := d.conn.readMessage()
		if err != nil {
			d.conn.close(err)
			return
		}
		select {
		case d.in <- frames:
		case <-d.conn.done:
			return
		}
	}
}

// Send sends one message of at least one frame and returns when the system has
// taken it, which doesn't mean that the peer has. The frames must not change
// until then. When ctx ends first the message may still be sent.
func (d *Dealer) Send(ctx context.Context, frames ...[]byte) error {
	if len(frames) == 0 {
		return fmt.Errorf("message of 0 frames")
	}
	m := outgoing{bytes: encode(frames), written: make(chan error, 1)}
	select {
	case <-d.conn.done:
		return d.conn.err
	case <-ctx.Done():
		return fmt.Errorf("send: %w", ctx.Err())
	default:
	}
	select {
	case d.conn.out <- m:
	case <-d.conn.done:
		return d.conn.err
	case <-ctx.Done():
		return fmt.Errorf("send: %w", ctx.Err())
	}
	select {
	case err := <-m.written:
		return d.first(err)
	case <-ctx.Done():
		return fmt.Errorf("send: %w", ctx.Err())
	case <-d.conn.done:
	}
	// The connection may have ended after the message was written.
	select {
	case err := <-m.written:
		return d.first(err)
	default:
		return d.conn.err
	}
}

// first is why the connection has ended when a write has failed: what was written to may
// have been closed already, for a reason that says more.
func (d *Dealer) first(err error) error {
	if err == nil {
		return nil
	}
	<-d.conn.done
	return d.conn.err
}

// Receive returns the next message; the frames are the caller's. What came before
// the connection ended is returned before its error.
func (d *Dealer) Receive(ctx context.Context) ([][]byte, error) {
	select {
	case frames := <-d.in:
		return frames, nil
	default:
	}
	select {
	case frames := <-d.in:
		return frames, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("receive: %w", ctx.Err())
	case <-d.conn.done:
	}
	select {
	case frames := <-d.in:
		return frames, nil
	default:
		return nil, d.conn.err
	}
}

// Challenge is the text that the peer gave this connection, see Options.Challenge; empty
// when it gave none. The peer chooses it, up to some 4 KiB.
func (d *Dealer) Challenge() string { return d.conn.challenge }

// Done is closed as soon as the connection has ended, by either side. It is late
// only while messages that nobody receives fill the inbox.
func (d *Dealer) Done() <-chan struct{} { return d.conn.done }

// Err is nil until Done is closed; then it is ErrClosed after Close, an *Error otherwise.
func (d *Dealer) Err() error {
	select {
	case <-d.conn.done:
		return d.conn.err
	default:
		return nil
	}
}

// Close ends the connection and waits for its goroutines. What Send has returned
// for is still delivered, unless the peer has sent more than was received.
func (d *Dealer) Close() error {
	d.conn.close(ErrClosed)
	d.ends.Wait()
	return nil
}
