package mem_test

import (
	"testing"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/mem"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

func TestConformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (transport.Mover, transport.Mover, string) {
		n := mem.NewNetwork(1)
		return mover(t, n, "a"), mover(t, n, "b"), ""
	})
}

func mover(t *testing.T, n *mem.Network, name string) *mem.Mover {
	t.Helper()
	m, err := mem.New(n, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // it never fails
	return m
}
