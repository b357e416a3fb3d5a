//go:build linux

package shm_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/shm"
	"github.com/pdpool/pdpool/transferagent/transport/transporttest"
)

func TestConformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) (transport.Mover, transport.Mover, string) {
		dir := socketDir(t)
		return mover(t, dir, "a", shm.Options{}), mover(t, dir, "b", shm.Options{}), ""
	})
}

func mover(t *testing.T, dir, name string, o shm.Options) *shm.Mover {
	t.Helper()
	m, err := shm.New(dir, name, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) //nolint:errcheck // tests that care close it themselves
	return m
}

// socketDir is shorter than t.TempDir: socket paths are limited.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shm") //nolint:usetesting // socket paths are limited, and t.TempDir is long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) }) //nolint:errcheck // it is below the temporary directory
	return dir
}

func TestProofs(t *testing.T) {
	transporttest.RunProofs(t, func(t *testing.T, a, b func() poolkey.Keys) (ma, mb transporttest.Proving, host string, connect func() (net.Conn, error)) {
		dir := socketDir(t)
		from, to := mover(t, dir, "a", shm.Options{Keys: a}), mover(t, dir, "b", shm.Options{Keys: b, DialTimeout: time.Second})
		return from, to, "", func() (net.Conn, error) { return net.Dial("unixpacket", to.Socket()) }
	})
}
