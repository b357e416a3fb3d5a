package tcp_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/tcp"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

func TestConformance(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
			if err != nil {
				t.Skipf("this machine has no %s: %v", host, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			transporttest.Run(t, func(t *testing.T) (transport.Mover, transport.Mover, string) {
				return mover(t, tcp.Options{}), mover(t, tcp.Options{}), host
			})
		})
	}
}

func mover(t *testing.T, o tcp.Options) *tcp.Mover {
	t.Helper()
	m, err := tcp.New(":0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // tests that care close it themselves
	return m
}

func TestProofs(t *testing.T) {
	transporttest.RunProofs(t, func(t *testing.T, a, b func() poolkey.Keys) (ma, mb transporttest.Proving, host string, connect func() (net.Conn, error)) {
		from, to := mover(t, tcp.Options{Keys: a}), mover(t, tcp.Options{Keys: b, DialTimeout: time.Second})
		return from, to, "127.0.0.1", func() (net.Conn, error) {
			return net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(to.Port())))
		}
	})
}
