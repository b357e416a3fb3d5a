package tcp_test

import (
	"testing"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/tcp"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

func BenchmarkMover(b *testing.B) {
	transporttest.Benchmark(b, func(b *testing.B) (transport.Mover, transport.Mover, string) {
		return benchMover(b), benchMover(b), "127.0.0.1"
	})
}

func benchMover(b *testing.B) *tcp.Mover {
	b.Helper()
	m, err := tcp.New("127.0.0.1:0", tcp.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() }) //nolint:errcheck // the process ends soon
	return m
}
