//go:build linux

package shm_test

import (
	"testing"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/shm"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

func BenchmarkMover(b *testing.B) {
	transporttest.Benchmark(b, func(b *testing.B) (transport.Mover, transport.Mover, string) {
		dir := b.TempDir()
		return benchMover(b, dir, "a"), benchMover(b, dir, "b"), ""
	})
}

func benchMover(b *testing.B, dir, name string) *shm.Mover {
	b.Helper()
	m, err := shm.New(dir, name, shm.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close() }) //nolint:errcheck // the process ends soon
	return m
}
