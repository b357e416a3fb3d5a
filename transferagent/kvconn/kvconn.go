// Package kvconn carries the messages of the KV socket, and the file descriptors
// that travel with them, over a unix stream socket. Both ends use it.
package kvconn

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/moriio/msgpack"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

const (
	// FrameTimeout bounds the time from a frame's first byte to its last, and the
	// time that the other end has to take a frame.
	FrameTimeout = 10 * time.Second

	// keptBuffer is the largest buffer that is kept from one frame to the next.
	keptBuffer = 64 << 10

	// maxDescriptors is how many descriptors one read can receive, enough to see
	// that a frame has more than the one it may have. The kernel closes the others.
	maxDescriptors = 4
)

// Conn is one connection. One goroutine may read while others write.
type Conn struct {
	socket  *net.UnixConn
	timeout time.Duration // FrameTimeout but in tests

	buf, control []byte // of the reader

	mu  sync.Mutex // of the writers
	out []byte
}

// New takes over a connected socket.
func New(socket *net.UnixConn) *Conn {
	return &Conn{
		socket:  socket,
		timeout: FrameTimeout,
		buf:     make([]byte, 4096),
		control: make([]byte, syscall.CmsgSpace(4*maxDescriptors)),
	}
}

// Close ends the connection; a Read or Write under way returns.
func (c *Conn) Close() error { return c.socket.Close() }

// Read returns the next message, however long it takes to come. With Memory comes
// its descriptor, which the caller closes; with all others the file is nil.
//
// A *kvproto.Error says that the frame was refused, its descriptors closed. The
// next Read returns the next frame, or fails when the stream can't be followed any
// more. io.EOF says that the other end has closed.
func (c *Conn) Read() (kvproto.Message, *os.File, error) {
	return c.read(time.Time{})
}

// ReadWithin is Read with a limit on the wait; the connection can't be used after
// the limit has passed.
func (c *Conn) ReadWithin(d time.Duration) (kvproto.Message, *os.File, error) {
	return c.read(time.Now().Add(d))
}

func (c *Conn) read(first time.Time) (kvproto.Message, *os.File, error) {
	var got descriptors
	m, err := c.readMessage(first, &got)
	if err != nil {
		got.close()
		return nil, nil, err
	}
	_, memory := m.(kvproto.Memory)
	switch {
	case memory && got.count == 1:
		return m, os.NewFile(uintptr(got.fds[0]), "kv-memory"), nil
	case memory:
		got.close()
		return nil, nil, msgpack.Errorf(kvproto.BadField, "memory", "came with %d descriptors instead of one", got.count)
	case got.count > 0:
		got.close()
		return nil, nil, msgpack.Errorf(kvproto.BadField, m.Type(), "came with %d descriptors, it takes none", got.count)
	}
	return m, nil, nil
}

func (c *Conn) readMessage(first time.Time, got *descriptors) (kvproto.Message, error) {
	var header [kvproto.HeaderBytes]byte
	if err := c.socket.SetReadDeadline(first); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	n, err := c.receive(header[:], got)
	if err != nil {
		return nil, err
	}
	if err := c.socket.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if err := c.fill(header[n:], got); err != nil {
		return nil, err
	}
	length, err := kvproto.BodyLength(header)
	if err != nil {
		// Where the next frame begins is not known.
		_ = c.Close()
		return nil, err
	}
	body := c.buffer(length)
	if err := c.fill(body, got); err != nil {
		return nil, err
	}
	return kvproto.Parse(body)
}

func (c *Conn) buffer(n int) []byte {
	if n > keptBuffer {
		return make([]byte, n)
	}
	if n > len(c.buf) {
		c.buf = make([]byte, min(keptBuffer, 2*n))
	}
	return c.buf[:n]
}

func (c *Conn) fill(b []byte, got *descriptors) error {
	for len(b) > 0 {
		n, err := c.receive(b, got)
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("read: frame ends early: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// receive reads at least one byte. It never reads past the frame that b is part
// of, so that descriptors which come with its bytes are the frame's.
func (c *Conn) receive(b []byte, got *descriptors) (int, error) {
	n, controls, flags, _, err := c.socket.ReadMsgUnix(b, c.control)
	if controls > 0 {
		got.take(c.control[:controls])
	}
	if flags&syscall.MSG_CTRUNC != 0 {
		got.count++
	}
	switch {
	case errors.Is(err, io.EOF) || err == nil && n == 0:
		return 0, io.EOF
	case err != nil:
		return 0, fmt.Errorf("read: %w", err)
	}
	return n, nil
}

// descriptors are those that came with one frame. Count may be higher than the
// number of fds: the kernel had closed some.
type descriptors struct {
	fds   []int
	count int
}

func (d *descriptors) take(control []byte) {
	messages, err := syscall.ParseSocketControlMessage(control)
	if err != nil {
		d.count++
		return
	}
	for i := range messages {
		fds, err := syscall.ParseUnixRights(&messages[i])
		if err != nil {
			continue
		}
		d.fds = append(d.fds, fds...)
		d.count += len(fds)
	}
}

func (d *descriptors) close() {
	for _, fd := range d.fds {
		// Closing what was never used loses nothing.
		_ = syscall.Close(fd)
	}
	d.fds = nil
}

// Write sends m, and with a Memory the descriptor f, which remains the caller's.
// A *kvproto.Error says that m breaks a limit of the protocol: nothing was sent.
// After any other error the connection is closed.
func (c *Conn) Write(m kvproto.Message, f *os.File) error {
	if _, memory := m.(kvproto.Memory); memory != (f != nil) {
		return msgpack.Errorf(kvproto.BadField, "memory", "goes with one descriptor, no other message with any")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := kvproto.Append(c.out[:0], m)
	if err != nil {
		return err
	}
	if cap(out) <= keptBuffer {
		c.out = out
	}
	if err := c.send(out, f); err != nil {
		_ = c.Close()
		return fmt.Errorf("write %s: %w", m.Type(), err)
	}
	return nil
}

func (c *Conn) send(b []byte, f *os.File) error {
	if err := c.socket.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	if f == nil {
		_, err := c.socket.Write(b)
		return err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	n := 0
	controlErr := raw.Control(func(fd uintptr) {
		n, _, err = c.socket.WriteMsgUnix(b, syscall.UnixRights(int(fd)), nil)
	})
	if controlErr != nil {
		return controlErr
	}
	if err == nil && n < len(b) {
		_, err = c.socket.Write(b[n:])
	}
	return err
}
