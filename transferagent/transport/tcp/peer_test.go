package tcp_test

import (
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/child"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
	"github.com/pdpool/pdpool/transferagent/transport/tcp"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

func TestMain(m *testing.M) {
	child.Main(m, func(string) (transport.Mover, error) {
		mover, err := tcp.New("127.0.0.1:0", tcp.Options{})
		if err != nil {
			return nil, err
		}
		f, b, err := memory.CreateSealed("child", child.Size)
		if err != nil {
			return nil, err
		}
		return mover, mover.Register(1, transport.Memory{Bytes: b, File: f})
	})
}

func TestProcesses(t *testing.T) {
	transporttest.RunProcesses(t, func(t *testing.T, patience time.Duration) (a, b transport.Mover, host string, peer *child.Process) {
		return mover(t, tcp.Options{WriteStall: patience, AckTimeout: patience}), mover(t, tcp.Options{}), "127.0.0.1", child.Start(t, "")
	})
}
