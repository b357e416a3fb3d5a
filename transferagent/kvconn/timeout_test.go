package kvconn

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// shortPair returns a connection with a short timeout and its other end.
func shortPair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = ends[0].Close(); _ = ends[1].Close() })
	c := New(ends[0].(*net.UnixConn))
	c.timeout = 20 * time.Millisecond
	return c, ends[1]
}

func TestHalfAFrameTimesOut(t *testing.T) {
	for _, part := range [][]byte{{0}, {0, 0, 0, 9}, {0, 0, 0, 9, 0x81}} {
		c, other := shortPair(t)
		if _, err := other.Write(part); err != nil {
			t.Fatal(err)
		}
		if m, _, err := c.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes: %v, %v", len(part), m, err)
		}
	}
}

func TestPeerThatDoesNotRead(t *testing.T) {
	c, _ := shortPair(t)
	big := kvproto.Hold{Transfer: "tx-1", Blocks: make([]int32, kvproto.MaxBlocks)}
	var err error
	for range 100 {
		if err = c.Write(big, nil); err != nil {
			break
		}
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("write: %v", err)
	}
	if err := c.Write(kvproto.Ready{}, nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("next write: %v", err)
	}
}
