// Package wire is the router's HTTP/1.1 client to engines and agents. A request is
// written and its answer read by the goroutine that asks: at thousands of requests a
// second the goroutines of net/http's client would cost more than all else that the
// router does. It follows no redirect, asks no proxy, repeats nothing and speaks
// plain HTTP only.
package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options are the limits of a Client; all of them must be set.
type Options struct {
	Dial      time.Duration // to connect
	Idle      time.Duration // after which an unused connection is closed
	MaxIdle   int           // unused connections kept for one address
	MaxHeader int           // bytes of an answer's headers

	// Connect makes a connection; nil: TCP, with Dial as its limit.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
}

// Connections are found dead, where the peer's host has gone without a word, within
// about this time.
const (
	keepIdle     = 10 * time.Second
	keepInterval = 5 * time.Second
	keepCount    = 3
	userTimeout  = 25 * time.Second
)

const (
	readSize  = 8 << 10 // a connection keeps its buffer while it is idle
	writeSize = 16 << 10
	// maxInterim bounds the answers with status 1xx before the real one.
	maxInterim = 5
	maxStatus  = 599
	// restful is how long a connection is unused before it is worth a look whether its
	// peer has closed it.
	restful = 5 * time.Millisecond
)

// Errors of a connection, beside those of the network.
var (
	errHeader  = errors.New("the answer's headers are too large")
	errInterim = errors.New("the answer has not come after several interim ones")
	errStatus  = errors.New("the answer's status is none of HTTP")
)

// Client keeps connections that can be used again. It is safe for several goroutines.
type Client struct {
	o Options

	mu       sync.Mutex
	idle     map[string][]*conn // by address, the one used last at the end
	sweeping bool
	closed   bool
}

// New makes a client.
func New(o Options) *Client {
	if o.Connect == nil {
		o.Connect = dialer(o.Dial).DialContext
	}
	return &Client{o: o, idle: map[string][]*conn{}}
}

// dialer is of connections that are found dead.
func dialer(within time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         within,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			// Keep-alive does not run while sent bytes are not acknowledged.
			set := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
			})
			return errors.Join(set, err)
		},
	}
}

// RoundTrip implements http.RoundTripper. The context ends the request and the reading
// of its answer. An answer that is read to its end gives its connection back.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	conn, err := c.take(r.Context(), r.URL.Host)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	stop := context.AfterFunc(ctx, conn.interrupt)
	answer, err := conn.exchange(r, c.o.MaxHeader)
	if err != nil {
		stop()
		conn.close()
		return nil, err
	}
	answer.Body = &body{ReadCloser: answer.Body, client: c, conn: conn, stop: stop, reuse: !answer.Close}
	return answer, nil
}

// CloseIdleConnections closes what is not in use. Connections that are given back
// later are closed then.
func (c *Client) CloseIdleConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, conns := range c.idle {
		for _, conn := range conns {
			conn.close()
		}
	}
	clear(c.idle)
}

// take returns a connection to an address, one that was used before if there is one.
func (c *Client) take(ctx context.Context, address string) (*conn, error) {
	for {
		conn := c.pop(address)
		if conn == nil {
			break
		}
		if rested := time.Since(conn.since); rested < restful || rested < c.o.Idle && conn.alive() {
			return conn, nil
		}
		conn.close()
	}
	made, err := c.o.Connect(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	out := &conn{Conn: made, address: address, unlimited: true}
	out.in = bufio.NewReaderSize(out, readSize)
	return out, nil
}

func (c *Client) pop(address string) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	conns := c.idle[address]
	if len(conns) == 0 {
		return nil
	}
	last := conns[len(conns)-1]
	conns[len(conns)-1] = nil
	c.idle[address] = conns[:len(conns)-1]
	return last
}

// give keeps a connection for another request.
func (c *Client) give(conn *conn) {
	conn.since = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || len(c.idle[conn.address]) >= c.o.MaxIdle {
		conn.close()
		return
	}
	c.idle[conn.address] = append(c.idle[conn.address], conn)
	if !c.sweeping {
		c.sweeping = true
		time.AfterFunc(c.o.Idle, c.sweep)
	}
}

// sweep closes connections that were not used for long, as long as there are any.
func (c *Client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for address, conns := range c.idle {
		old := 0
		for old < len(conns) && now.Sub(conns[old].since) >= c.o.Idle {
			conns[old].close()
			old++
		}
		if old == len(conns) {
			delete(c.idle, address)
		} else {
			c.idle[address] = append(conns[:0:0], conns[old:]...)
		}
	}
	if c.sweeping = len(c.idle) > 0; c.sweeping {
		time.AfterFunc(c.o.Idle, c.sweep)
	}
}

// conn is a connection to an engine. One request uses it at a time.
type conn struct {
	net.Conn
	address string
	in      *bufio.Reader
	since   time.Time // when it was given back

	unlimited bool
	left      int // bytes that may still be read of the headers, unless unlimited
}

// Read implements io.Reader for in.
func (c *conn) Read(b []byte) (int, error) {
	if c.unlimited {
		return c.Conn.Read(b)
	}
	if c.left == 0 {
		return 0, errHeader
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// interrupt ends what reads or writes.
func (c *conn) interrupt() { _ = c.SetDeadline(time.Unix(1, 0)) }

func (c *conn) close() { _ = c.Close() } // what was to be read was read or is not wanted

// alive says that the peer has neither closed the connection nor sent what nobody
// asked for. One that can't be looked at counts as closed.
func (c *conn) alive() bool {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	alive := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		alive = errors.Is(err, unix.EAGAIN)
		return true
	})
	return err == nil && alive && c.in.Buffered() == 0
}

// asked stands for every request: only its method matters to how an answer is read.
var (
	asked = &http.Request{Method: http.MethodPost}
	got   = &http.Request{Method: http.MethodGet}
)

// exchange writes a request and reads the head of its answer.
func (c *conn) exchange(r *http.Request, maxHeader int) (*http.Response, error) {
	// An engine may refuse a request before it has read it: its answer counts then.
	unsent := c.write(r)
	c.unlimited, c.left = false, maxHeader
	request := asked
	if r.Method == http.MethodGet {
		request = got
	}
	for range maxInterim {
		answer, err := http.ReadResponse(c.in, request)
		switch {
		case err != nil && unsent != nil:
			return nil, unsent
		case errors.Is(err, io.EOF):
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		case answer.StatusCode < http.StatusContinue || answer.StatusCode > maxStatus:
			return nil, fmt.Errorf("%w: %03d", errStatus, answer.StatusCode)
		}
		if answer.StatusCode >= http.StatusOK || answer.StatusCode == http.StatusSwitchingProtocols {
			c.unlimited = true
			answer.Close = answer.Close || unsent != nil || answer.StatusCode == http.StatusSwitchingProtocols
			return answer, nil //nolint:nilerr // an answer that came early
		}
		_ = answer.Body.Close() // it has none
	}
	return nil, errInterim
}

// out are the buffers of writes.
var out = sync.Pool{New: func() any { b := make([]byte, 0, writeSize); return &b }}

// write sends a request. Short ones are one write.
func (c *conn) write(r *http.Request) error {
	buffer := out.Get().(*[]byte)
	defer out.Put(buffer)
	b := head((*buffer)[:0], r)
	*buffer = b
	if r.Body == nil || r.ContentLength == 0 {
		_, err := c.Write(b)
		return err
	}
	defer func() { _ = r.Body.Close() }()
	for left := r.ContentLength; ; {
		for left > 0 && len(b) < cap(b) {
			n, err := r.Body.Read(b[len(b):min(int64(cap(b)), int64(len(b))+left)])
			b = b[:len(b)+n]
			left -= int64(n)
			if err != nil && left > 0 {
				return fmt.Errorf("the body has %d bytes less than told: %w", left, err)
			}
		}
		if _, err := c.Write(b); err != nil || left == 0 {
			return err
		}
		b = b[:0]
	}
}

// head appends the request line and the headers.
func head(b []byte, r *http.Request) []byte {
	b = append(append(append(b, r.Method...), ' '), r.URL.RequestURI()...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), r.URL.Host...)
	for key, values := range r.Header {
		for _, v := range values {
			if !strings.ContainsAny(v, "\r\n") {
				b = append(append(append(append(b, "\r\n"...), key...), ": "...), v...)
			}
		}
	}
	if r.ContentLength > 0 || r.Method == http.MethodPost {
		b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), r.ContentLength, 10)
	}
	return append(b, "\r\n\r\n"...)
}

// body is an answer's body.
type body struct {
	io.ReadCloser
	client *Client
	conn   *conn // nil when it was given back or closed
	stop   func() bool
	reuse  bool
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.release(errors.Is(err, io.EOF))
	}
	return n, err
}

// Close implements io.Closer. What has not been read goes with the connection.
func (b *body) Close() error {
	b.release(b.ReadCloser == http.NoBody)
	return nil
}

// release gives the connection back when the answer was read to its end and nobody has
// interrupted it.
func (b *body) release(whole bool) {
	conn := b.conn
	if conn == nil {
		return
	}
	b.conn = nil
	if b.stop() && whole && b.reuse && conn.in.Buffered() == 0 {
		b.client.give(conn)
		return
	}
	conn.close()
}
