package enginesim

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/pdpool/pdpool/transferagent/kvclient"
	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// An agent that does not read fails the transfer that it is told of, and not the rest.
func TestAgentDoesNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	welcomed := make(chan *kvconn.Conn, 1)
	go func() {
		defer close(welcomed)
		socket, err := listener.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		c := kvconn.New(socket)
		welcomed <- c
		if _, _, err := c.Read(); err != nil {
			t.Error(err)
		}
		if err := c.Write(kvproto.Welcome{Epoch: 1}, nil); err != nil {
			t.Error(err)
		}
	}()
	c, err := kvclient.Dial(t.Context(), path, kvproto.Hello{Version: kvproto.ProtocolVersion, Connection: kvproto.Scheduler})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = (<-welcomed).Close()
		_ = listener.Close()
	})
	l := &link{scheduler: c, gone: make(chan struct{})}
	hold := kvproto.Hold{Transfer: "t", Blocks: make([]int32, 4096)}
	for range 4 * kvclient.Queue {
		if err = l.send(c, hold); err != nil {
			break
		}
	}
	if failed, ok := errors.AsType[*TransferError](err); !ok || failed.Rule != "agent-slow" {
		t.Errorf("a full queue: %v", err)
	}
	select {
	case <-l.gone:
		t.Error("the link was given up for one transfer")
	default:
	}
}
