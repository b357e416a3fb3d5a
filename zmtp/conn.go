package zmtp

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one connection, of a Router or of a Dealer. After the handshake it has
// one goroutine that reads and one that writes; both end when done is closed.
type conn struct {
	nc        net.Conn
	r         *bufio.Reader
	o         Options
	identity  []byte // of the peer
	challenge string // of this connection, see Options.Challenge
	out       chan outgoing
	held      int    // bytes taken out of the budget
	free      int    // bytes that were not charged
	trial     *trial // of a Router's connection until Prove, nil without

	end  sync.Once
	done chan struct{}
	err  error // set before done is closed
}

// outgoing is a message that waits to be written. Written, when not nil, has room
// for the one result.
type outgoing struct {
	bytes   net.Buffers
	written chan error
}

func newConn(nc net.Conn, o Options) *conn {
	return &conn{
		nc:   nc,
		r:    bufio.NewReader(nc),
		o:    o,
		out:  make(chan outgoing, o.Queue),
		done: make(chan struct{}),
	}
}

// close ends the connection; only the first reason counts.
func (c *conn) close(err error) {
	c.end.Do(func() {
		c.err = err
		close(c.done)
		// The error of closing a socket says nothing that the owner could act on.
		_ = c.nc.Close()
		if c.o.Count != nil {
			c.o.Count(reasonOf(err))
		}
	})
}

// reasonOf is the reason under which the end of a connection is counted.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.reason
	}
	return Shutdown
}

// handshake greets as one kind of socket and expects the other. An end that
// listens waits for the peer's signature, so that it answers nobody else.
func (c *conn) handshake(ctx context.Context, own, wanted string, listens bool) error {
	ctx, cancel := context.WithDeadline(ctx, c.sooner(time.Now().Add(c.o.Handshake)))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.nc.SetDeadline(time.Unix(1, 0)) })
	err := c.greet(own, wanted, listens)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return c.nc.SetDeadline(time.Time{})
	}
	return handshakeError(ctx, err)
}

func handshakeError(ctx context.Context, err error) error {
	over := ctx.Err() != nil && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, ctx.Err()))
	switch {
	case over && errors.Is(ctx.Err(), context.Canceled):
		return errorf(Shutdown, "handshake given up: %w", context.Cause(ctx))
	case over:
		return errorf(HandshakeTimeout, "no handshake: %w", context.Cause(ctx))
	case err == io.EOF: //nolint:errorlint // only a bare one means that no byte came
		return errorf(Probe, "closed without a byte: %w", err)
	}
	return received(err)
}

func (c *conn) greet(own, wanted string, listens bool) error {
	hello := greeting()
	if !listens {
		if _, err := c.nc.Write(hello); err != nil {
			return unexpected(err)
		}
	}
	if err := readSignature(c.r); err != nil {
		return err
	}
	if listens {
		if _, err := c.nc.Write(hello); err != nil {
			return unexpected(err)
		}
	}
	if err := readGreeting(c.r); err != nil {
		return err
	}
	if !listens {
		if _, err := c.nc.Write(appendReady(nil, own)); err != nil {
			return unexpected(err)
		}
	}
	said, err := readReady(c.r, wanted, c.o.Challenge)
	if err != nil {
		return err
	}
	c.identity, c.challenge = said.identity, said.challenge
	if listens {
		_, err = c.nc.Write(c.readyToListen(own))
	}
	return unexpected(err)
}

// readyToListen is the READY of a Router for this connection.
func (c *conn) readyToListen(own string) []byte {
	if c.o.Challenge == "" {
		return appendReady(nil, own)
	}
	c.challenge = rand.Text()
	return appendReady(nil, own, property{c.o.Challenge, c.challenge})
}

// received gives an error of reading its reason, unless it has one.
func received(err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	if err == io.EOF { //nolint:errorlint // inside a frame it is io.ErrUnexpectedEOF
		return &Error{Closed, err}
	}
	return &Error{Cut, err}
}

// readMessage reads the next message and answers commands on the way. The frames
// are the caller's.
func (c *conn) readMessage() ([][]byte, error) {
	if err := c.awaitByte(); err != nil {
		return nil, err
	}
	var frames [][]byte
	each, whole := c.sizes()
	left := whole
	for {
		flags, body, err := readFrame(c.r, each, c.charge)
		switch {
		case err != nil:
			return nil, c.late(unexpected(err), SlowSender, c.o.Message)
		case flags&flagCommand != 0:
			if err := c.command(body); err != nil {
				return nil, err
			}
			if len(frames) == 0 {
				if err := c.awaitByte(); err != nil {
					return nil, err
				}
			}
			continue
		}
		if left -= len(body); left < 0 {
			return nil, errorf(MessageTooLong, "message over the limit of %d bytes", whole)
		}
		if frames = append(frames, body); flags&flagMore == 0 {
			return frames, nil
		}
		if len(frames) == c.o.MaxFrames {
			return nil, errorf(TooManyFrames, "message of more than %d frames", c.o.MaxFrames)
		}
	}
}

// awaitByte waits for the first byte of a message, then sets the deadline for the rest.
func (c *conn) awaitByte() error {
	if c.r.Buffered() == 0 {
		var limit time.Time
		if c.o.Idle > 0 {
			limit = time.Now().Add(c.o.Idle)
		}
		if err := c.nc.SetReadDeadline(c.sooner(limit)); err != nil {
			return received(err)
		}
		if _, err := c.r.Peek(1); err != nil {
			return c.late(err, Idle, c.o.Idle)
		}
	}
	if err := c.nc.SetReadDeadline(c.sooner(time.Now().Add(c.o.Message))); err != nil {
		return received(err)
	}
	return nil
}

// late gives an error of reading its reason: the one given when after has passed
// without what was waited for.
func (c *conn) late(err error, reason string, after time.Duration) error {
	switch {
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return received(err)
	case c.overdue():
		return errorf(Unproven, "nothing proved within %v", c.trial.limits.Within)
	}
	return errorf(reason, "nothing, or no whole message, for %v", after)
}

// maxPingContext is what a peer may ask to get back, by the protocol.
const maxPingContext = 16

func (c *conn) command(body []byte) error {
	name, data, err := parseCommand(body)
	switch {
	case err != nil:
		return err
	case name == "PONG":
		return nil
	case name == "ERROR":
		return errorf(PeerError, "peer ends the connection: %q", errorText(data))
	case name != "PING":
		return errorf(BadCommand, "command %.16q", name)
	case len(data) < 2 || len(data)-2 > maxPingContext:
		return errorf(BadCommand, "PING of %d bytes", len(data))
	}
	return c.enqueue(outgoing{bytes: net.Buffers{appendCommand(nil, "PONG", data[2:])}})
}

// enqueue hands a message to the writing goroutine without waiting; a full queue
// means that the peer does not read.
func (c *conn) enqueue(m outgoing) error {
	select {
	case c.out <- m:
		return nil
	default:
		return errorf(SlowReader, "%w: %d messages wait", ErrFull, c.o.Queue)
	}
}

// writeMessages writes what is queued until the connection ends.
func (c *conn) writeMessages() {
	for {
		select {
		case <-c.done:
			return
		case m := <-c.out:
			err := c.write(m.bytes)
			if m.written != nil {
				m.written <- err
			}
			if err != nil {
				c.close(err)
				return
			}
		}
	}
}

func (c *conn) write(b net.Buffers) error {
	err := c.nc.SetWriteDeadline(time.Now().Add(c.o.Write))
	if err == nil {
		_, err = b.WriteTo(c.nc)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errorf(SlowReader, "message not taken within %v", c.o.Write)
	}
	return &Error{Cut, err}
}

// encode puts the headers before the frames, which it refers to.
func encode(frames [][]byte) net.Buffers {
	headers := make([]byte, 0, maxHeader*len(frames))
	buffers := make(net.Buffers, 0, 2*len(frames))
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		start := len(headers)
		headers = appendHeader(headers, flags, len(f))
		buffers = append(buffers, headers[start:len(headers):len(headers)])
		if len(f) > 0 {
			buffers = append(buffers, f)
		}
	}
	return buffers
}
