//go:build linux

package shm

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/transferagent/transport"
)

func TestSockets(t *testing.T) {
	dir := shortDir(t)
	long := filepath.Join(dir, strings.Repeat("d", 100))
	if _, err := New(long, "m", Options{}); !errors.Is(err, ErrPathTooLong) {
		t.Errorf("long path: %v, want ErrPathTooLong", err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "a\x00"} {
		if _, err := New(dir, name, Options{}); err == nil {
			t.Errorf("name %q was taken", name)
		}
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(dir, "plain", Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("a file in the way: %v, want ErrInUse", err)
	}
	deep := filepath.Join(dir, "x", "y")
	m := newMover(t, deep, "m", Options{})
	for path, want := range map[string]os.FileMode{deep: 0o770, m.Socket(): 0o660} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v (%v)", path, info.Mode().Perm(), want, err)
		}
	}
	if _, err := New(deep, "m", Options{}); !errors.Is(err, ErrInUse) {
		t.Errorf("socket of a live mover: %v, want ErrInUse", err)
	}
	works(t, m)
}

// TestStaleSocketIsReplaced: a killed process leaves its socket behind. The new
// mover there refuses the old one's address.
func TestStaleSocketIsReplaced(t *testing.T) {
	dir := shortDir(t)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(dir, "m"), Net: network})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m := newMover(t, dir, "m", Options{})
	works(t, m)
	if _, err := m.Dial(t.Context(), "", address{name: "m"}.bytes()); !errors.Is(err, transport.ErrStale) {
		t.Errorf("%v, want ErrStale", err)
	}
	for _, name := range []string{"../m", "/etc/passwd", ".."} {
		if _, err := m.Dial(t.Context(), "", address{name: name}.bytes()); !errors.Is(err, transport.ErrAddress) {
			t.Errorf("name %q in an address: %v, want ErrAddress", name, err)
		}
	}
}
