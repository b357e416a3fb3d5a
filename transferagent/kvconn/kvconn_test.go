package kvconn_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/test/descriptors"
	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// pair returns two ends of a socket, both closed at the end of the test.
func pair(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if near, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path}); err != nil {
		t.Fatal(err)
	}
	if far, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	return near, far
}

func frameOf(t *testing.T, m kvproto.Message) []byte {
	t.Helper()
	b, err := kvproto.Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// memory returns a memfd with the given content.
func memory(t *testing.T, content string) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("kv", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "kv")
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// descriptors counts the open descriptors of this process.
// send writes bytes with descriptors in one call, as a foreign engine may.
func send(t *testing.T, c *net.UnixConn, b []byte, files ...*os.File) {
	t.Helper()
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	var control []byte
	if len(fds) > 0 {
		control = syscall.UnixRights(fds...)
	}
	if n, _, err := c.WriteMsgUnix(b, control, nil); err != nil || n != len(b) {
		t.Fatalf("wrote %d of %d bytes: %v", n, len(b), err)
	}
}

func wantMessage(t *testing.T, c *kvconn.Conn, want kvproto.Message) {
	t.Helper()
	m, f, err := c.ReadWithin(10 * time.Second)
	if err != nil || f != nil {
		t.Fatalf("read %v, %v, %v", m, f, err)
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Fatalf("read (-want +got):\n%s", diff)
	}
}

func wantMemory(t *testing.T, c *kvconn.Conn, bytes int64, content string) {
	t.Helper()
	m, f, err := c.ReadWithin(10 * time.Second)
	if err != nil || f == nil {
		t.Fatalf("read %v, %v, %v", m, f, err)
	}
	defer func() { _ = f.Close() }()
	if m != (kvproto.Memory{Bytes: bytes}) {
		t.Errorf("read %+v", m)
	}
	got := make([]byte, len(content))
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != content {
		t.Errorf("memory holds %q, %v; want %q", got, err, content)
	}
	if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a child process would inherit the memory (%v)", err)
	}
}

func wantRefused(t *testing.T, c *kvconn.Conn, reason string) {
	t.Helper()
	m, f, err := c.ReadWithin(10 * time.Second)
	var e *kvproto.Error
	if !errors.As(err, &e) || e.Reason() != reason || m != nil || f != nil {
		t.Fatalf("read %v, %v, %v; want the reason %s", m, f, err, reason)
	}
}

func TestWriteAndRead(t *testing.T) {
	a, b := pair(t)
	near, far := kvconn.New(a), kvconn.New(b)
	long := kvproto.Hold{Transfer: "tx-2", Blocks: make([]int32, kvproto.MaxBlocks), Tokens: 1}
	mem := memory(t, "content")
	wrote := make(chan error, 1)
	go func() {
		wrote <- errors.Join(
			near.Write(kvproto.Save{Transfer: "tx-1", Layer: 3}, nil),
			near.Write(long, nil),
			near.Write(kvproto.Memory{Bytes: 7}, mem),
			near.Write(kvproto.Ready{}, nil),
		)
	}()
	wantMessage(t, far, kvproto.Save{Transfer: "tx-1", Layer: 3})
	wantMessage(t, far, long)
	wantMemory(t, far, 7, "content")
	wantMessage(t, far, kvproto.Ready{})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if err := near.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := far.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

func TestWriteRefusesWhatParseWould(t *testing.T) {
	a, b := pair(t)
	near, far := kvconn.New(a), kvconn.New(b)
	for _, err := range []error{
		near.Write(kvproto.Done{}, nil),
		near.Write(kvproto.Memory{Bytes: 1}, nil),
		near.Write(kvproto.Ready{}, memory(t, "")),
	} {
		if _, ok := errors.AsType[*kvproto.Error](err); !ok {
			t.Errorf("error is %v", err)
		}
	}
	if err := near.Write(kvproto.Ready{}, nil); err != nil {
		t.Fatal(err)
	}
	wantMessage(t, far, kvproto.Ready{})
}

// A descriptor belongs to the frame with whose bytes it came, whatever else is in
// the socket's buffer.
func TestDescriptorsBelongToTheirFrame(t *testing.T) {
	before := descriptors.Open(t)
	t.Run("", func(t *testing.T) {
		a, b := pair(t)
		far := kvconn.New(b)
		one, two := memory(t, "one"), memory(t, "two")
		mem := frameOf(t, kvproto.Memory{Bytes: 3})
		ready := frameOf(t, kvproto.Ready{})

		send(t, a, ready)
		send(t, a, mem, one)
		send(t, a, ready)
		// Two frames in one call: the descriptor goes with the first byte.
		send(t, a, append(bytes.Clone(mem), ready...), two)
		// In pieces, the descriptor with the last byte of the frame.
		send(t, a, mem[:2])
		send(t, a, mem[2:len(mem)-1])
		send(t, a, mem[len(mem)-1:], one)

		wantMessage(t, far, kvproto.Ready{})
		wantMemory(t, far, 3, "one")
		wantMessage(t, far, kvproto.Ready{})
		wantMemory(t, far, 3, "two")
		wantMessage(t, far, kvproto.Ready{})
		wantMemory(t, far, 3, "one")
	})
	if after := descriptors.Open(t); after != before {
		t.Errorf("%d descriptors are open, before there were %d", after, before)
	}
}

func TestWrongDescriptorsAreRefusedAndClosed(t *testing.T) {
	before := descriptors.Open(t)
	t.Run("", func(t *testing.T) {
		a, b := pair(t)
		far := kvconn.New(b)
		f := memory(t, "x")
		many := make([]*os.File, 100)
		for i := range many {
			many[i] = f
		}
		mem, ready := frameOf(t, kvproto.Memory{Bytes: 1}), frameOf(t, kvproto.Ready{})
		open := descriptors.Open(t)
		for _, tc := range []struct {
			frame []byte
			files []*os.File
		}{
			{mem, nil},
			{mem, many[:2]},
			{mem, many},
			{ready, many[:1]},
			{ready, many},
			{[]byte{0, 0, 0, 1, 0xc1}, many[:1]},
			{[]byte{0, 0, 0, 1, 0x80}, many[:3]},
		} {
			send(t, a, tc.frame, tc.files...)
			m, got, err := far.ReadWithin(10 * time.Second)
			var e *kvproto.Error
			if !errors.As(err, &e) || m != nil || got != nil {
				t.Fatalf("frame %x with %d descriptors: %v, %v, %v", tc.frame, len(tc.files), m, got, err)
			}
			if now := descriptors.Open(t); now != open {
				t.Fatalf("frame %x with %d descriptors left %d open", tc.frame, len(tc.files), now-open)
			}
		}
		// The stream is still in step.
		send(t, a, ready)
		wantMessage(t, far, kvproto.Ready{})

		send(t, a, mem[:len(mem)-1], f)
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := far.Read(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut frame: %v", err)
		}
	})
	if after := descriptors.Open(t); after != before {
		t.Errorf("%d descriptors are open, before there were %d", after, before)
	}
}

func TestFrameOverTheLimitEndsTheConnection(t *testing.T) {
	a, b := pair(t)
	far := kvconn.New(b)
	send(t, a, binary.BigEndian.AppendUint32(nil, kvproto.MaxFrame+1))
	wantRefused(t, far, kvproto.TooLong)
	if _, _, err := far.Read(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("next read: %v", err)
	}
}

func TestReadWithin(t *testing.T) {
	_, b := pair(t)
	far := kvconn.New(b)
	if _, _, err := far.ReadWithin(time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silent peer: %v", err)
	}
}

func TestCloseEndsRead(t *testing.T) {
	_, b := pair(t)
	far := kvconn.New(b)
	read := make(chan error, 1)
	go func() {
		_, _, err := far.Read()
		read <- err
	}()
	if err := far.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; !errors.Is(err, net.ErrClosed) {
		t.Errorf("read: %v", err)
	}
}
