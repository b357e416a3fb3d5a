// Package kvclient is the engine's end of the KV socket: one connection to the
// transfer agent, of a scheduler or of a worker. It never blocks its caller for
// longer than a deadline; reconnecting after a connection has ended is the
// caller's decision, since all transfers of the connection have failed by then.
//
// An engine needs a deadline of its own for each transfer: an agent whose process is
// stopped tells of no end, and its connection does not end either. When it has passed,
// the engine closes its connections and begins anew; see kvproto.Welcome for when the
// blocks may be used again.
package kvclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// Queue is how many messages may wait to be written, and QueueBytes how long they are
// together.
const (
	Queue      = 1024
	QueueBytes = 16 << 20
)

// Inbox is how many messages may wait for the caller. When it is full the agent
// has to wait, and gives the connection up after kvconn.FrameTimeout.
const Inbox = 1024

// ErrFull says that Queue messages, or QueueBytes of them, wait for the agent to read.
// The message was not taken: whoever sends fails the transfer that it was for and goes
// on, as a forward pass must not wait for the agent.
var ErrFull = errors.New("send queue is full")

// ErrClosed says that Close was called.
var ErrClosed = errors.New("connection is closed")

// RefusedError is the agent's answer to a Hello that it doesn't take.
type RefusedError struct {
	Rule string
	Text string
}

func (e *RefusedError) Error() string { return "agent refuses the engine: " + e.Rule + ": " + e.Text }

// Client is one connection. Its methods may be called from several goroutines.
type Client struct {
	conn    *kvconn.Conn
	welcome kvproto.Welcome
	out     chan outgoing
	waiting atomic.Int64 // bytes of what is in out, or about to be
	in      chan kvproto.Message

	end  sync.Once
	done chan struct{}
	err  error // set before done is closed
	ends sync.WaitGroup
}

type outgoing struct {
	message kvproto.Message
	file    *os.File // closed when written
	bytes   int64    // of the frame
}

// Dial connects to the socket at path, says hello and waits for the agent's
// welcome, at most kvconn.FrameTimeout and until ctx ends. A *RefusedError says
// that the agent does not take this engine, and a retry changes nothing.
func Dial(ctx context.Context, path string, hello kvproto.Hello) (*Client, error) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	socket, ok := nc.(*net.UnixConn)
	if !ok {
		_ = nc.Close()
		return nil, fmt.Errorf("connect: %T is no unix socket", nc)
	}
	c := &Client{
		conn: kvconn.New(socket),
		out:  make(chan outgoing, Queue),
		in:   make(chan kvproto.Message, Inbox),
		done: make(chan struct{}),
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	err = c.greet(hello)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		_ = c.conn.Close()
		return nil, fmt.Errorf("hello: %w", err)
	}
	c.ends.Go(c.write)
	c.ends.Go(c.read)
	return c, nil
}

func (c *Client) greet(hello kvproto.Hello) error {
	if err := c.conn.Write(hello, nil); err != nil {
		return err
	}
	m, f, err := c.conn.ReadWithin(kvconn.FrameTimeout)
	if err != nil {
		return err
	}
	if f != nil {
		_ = f.Close()
	}
	switch m := m.(type) {
	case kvproto.Welcome:
		c.welcome = m
		return nil
	case kvproto.Refused:
		return &RefusedError{Rule: m.Rule, Text: m.Text}
	}
	return fmt.Errorf("agent answers with %s", m.Type())
}

// Epoch is the agent's incarnation, from its welcome.
func (c *Client) Epoch() uint64 { return c.welcome.Epoch }

// Linger is how long peers may go on writing into the engine's memory after the
// agent's process has ended, from its welcome.
func (c *Client) Linger() time.Duration { return c.welcome.Linger }

// Silence is the longest that the agent may have nothing to say of a transfer, from its
// welcome; 0 when it does not tell.
func (c *Client) Silence() time.Duration { return c.welcome.Silence }

// Send queues m and returns at once: nil, ErrFull, the reason why the connection
// has ended, or a *kvproto.Error when m breaks a limit. What m refers to must not
// change any more. Memory goes by SendMemory.
func (c *Client) Send(m kvproto.Message) error {
	if _, memory := m.(kvproto.Memory); memory {
		return errors.New("memory goes by SendMemory, with its descriptor")
	}
	frame, err := kvproto.Append(nil, m)
	if err != nil {
		return err
	}
	return c.enqueue(outgoing{message: m, bytes: int64(len(frame))})
}

// SendMemory queues the hand-over of the KV memory that f, a sealed memfd of the
// given number of bytes, stands for. The descriptor is duplicated: f remains the caller's.
func (c *Client) SendMemory(bytes int64, f *os.File) error {
	m := outgoing{message: kvproto.Memory{Bytes: bytes}}
	if _, err := kvproto.Append(nil, m.message); err != nil {
		return err
	}
	double, err := duplicate(f)
	if err != nil {
		return fmt.Errorf("duplicate the memory's descriptor: %w", err)
	}
	m.file = double
	if err := c.enqueue(m); err != nil {
		_ = double.Close()
		return err
	}
	return nil
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd, err := 0, error(nil)
	if controlErr := raw.Control(func(old uintptr) {
		fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	}); controlErr != nil {
		return nil, controlErr
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

func (c *Client) enqueue(m outgoing) error {
	select {
	case <-c.done:
		return c.err
	default:
	}
	if c.waiting.Add(m.bytes) > QueueBytes {
		c.waiting.Add(-m.bytes)
		return ErrFull
	}
	select {
	case c.out <- m:
	default:
		c.waiting.Add(-m.bytes)
		return ErrFull
	}
	select {
	case <-c.done:
		// The writer may be gone already, so nobody else closes the descriptors.
		c.discard()
		return c.err
	default:
		return nil
	}
}

// Messages are what the agent sends, in order; closed when the connection has
// ended and all that came before is received.
func (c *Client) Messages() <-chan kvproto.Message { return c.in }

// Err is nil until the connection has ended, then why: ErrClosed after Close,
// io.EOF when the agent has closed.
func (c *Client) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Close ends the connection and waits for its goroutines; what is queued and not
// written is lost.
func (c *Client) Close() error {
	c.close(ErrClosed)
	c.ends.Wait()
	return nil
}

func (c *Client) close(err error) {
	c.end.Do(func() {
		c.err = err
		close(c.done)
		// The error of closing a socket says nothing that the caller could act on.
		_ = c.conn.Close()
	})
}

func (c *Client) write() {
	defer c.discard()
	for {
		select {
		case <-c.done:
			return
		case m := <-c.out:
			err := c.conn.Write(m.message, m.file)
			c.waiting.Add(-m.bytes)
			if m.file != nil {
				_ = m.file.Close()
			}
			if err != nil {
				c.close(err)
				return
			}
		}
	}
}

// discard closes the descriptors of what was never written.
func (c *Client) discard() {
	for {
		select {
		case m := <-c.out:
			if m.file != nil {
				_ = m.file.Close()
			}
		default:
			return
		}
	}
}

func (c *Client) read() {
	defer close(c.in)
	for {
		m, f, err := c.conn.Read()
		if f != nil {
			// An agent has no memory to hand over.
			_ = f.Close()
			err = fmt.Errorf("agent sends %s", m.Type())
		}
		if errors.Is(err, net.ErrClosed) {
			// Closed at this end, by who knows why and is about to say it.
			<-c.done
			return
		}
		if err != nil {
			c.close(err)
			return
		}
		select {
		case c.in <- m:
		case <-c.done:
			return
		}
	}
}
