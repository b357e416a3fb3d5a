//go:build linux

package memory_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

const size = 1 << 20

func TestSealedIsShared(t *testing.T) {
	f, b := sealed(t, size)
	other, err := memory.MapSealed(f, size)
	if err != nil {
		t.Fatal(err)
	}
	b[size-1] = 7
	if other[size-1] != 7 {
		t.Error("the mappings are of different memory")
	}
	if err := memory.Unmap(other); err != nil {
		t.Error(err)
	}
	if err := f.Truncate(size / 2); err == nil {
		t.Error("sealed memory could be shrunk")
	}
	part, err := memory.MapSealed(f, size/2)
	if err != nil {
		t.Fatalf("less than the file: %v", err)
	}
	if err := memory.Unmap(part); err != nil {
		t.Error(err)
	}
}

func TestMapSealedRefuses(t *testing.T) {
	const all = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	for _, c := range []struct {
		name string
		file func(t *testing.T) *os.File
		size int64
		want error
	}{
		{"no seals", func(t *testing.T) *os.File { return memfd(t, true, 0) }, size, memory.ErrUnsealed},
		{"may grow", func(t *testing.T) *os.File { return memfd(t, true, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL) }, size, memory.ErrUnsealed},
		{"may shrink", func(t *testing.T) *os.File { return memfd(t, true, unix.F_SEAL_GROW|unix.F_SEAL_SEAL) }, size, memory.ErrUnsealed},
		{"sealed later", func(t *testing.T) *os.File { return memfd(t, true, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK) }, size, memory.ErrUnsealed},
		{"read only", func(t *testing.T) *os.File { return memfd(t, true, all|unix.F_SEAL_WRITE) }, size, memory.ErrNotMemory},
		{"sparse", func(t *testing.T) *os.File { return memfd(t, false, all) }, size, memory.ErrSparse},
		{"short", func(t *testing.T) *os.File { return memfd(t, true, all) }, size + 1, memory.ErrShort},
		{"nothing", func(t *testing.T) *os.File { return memfd(t, true, all) }, 0, memory.ErrSize},
		{"negative", func(t *testing.T) *os.File { return memfd(t, true, all) }, -1, memory.ErrSize},
		{"too large", func(t *testing.T) *os.File { return memfd(t, true, all) }, memory.MaxSize + 1, memory.ErrSize},
		{"directory", func(t *testing.T) *os.File { return open(t, t.TempDir()) }, size, memory.ErrNotMemory},
		{"device", func(t *testing.T) *os.File { return open(t, "/dev/zero") }, size, memory.ErrNotMemory},
		{"file", plainFile, 4, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := memory.MapSealed(c.file(t), c.size)
			if b != nil || err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("mapped %d bytes, %v, want %v", len(b), err, c.want)
			}
		})
	}
}

func TestCreateSealedRefuses(t *testing.T) {
	for _, n := range []int64{0, -1, memory.MaxSize + 1} {
		if _, _, err := memory.CreateSealed("x", n); !errors.Is(err, memory.ErrSize) {
			t.Errorf("%d bytes: %v, want ErrSize", n, err)
		}
	}
}

func TestClaims(t *testing.T) {
	f, _ := sealed(t, size)
	g, _ := sealed(t, size)
	again, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	same := os.NewFile(uintptr(again), "same")
	t.Cleanup(func() { same.Close() }) //nolint:errcheck // the test is over
	var c memory.Claims
	first, err := c.Claim(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Claim(same); !errors.Is(err, memory.ErrOverlap) {
		t.Errorf("the same file by another descriptor: %v, want ErrOverlap", err)
	}
	if _, err := c.Claim(g); err != nil {
		t.Errorf("another file: %v", err)
	}
	c.Release(first)
	if _, err := c.Claim(same); err != nil {
		t.Errorf("after release: %v", err)
	}
}

func sealed(t *testing.T, n int64) (*os.File, []byte) {
	t.Helper()
	f, b, err := memory.CreateSealed("test", n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(memory.Unmap(b), f.Close()); err != nil {
			t.Error(err)
		}
	})
	return f, b
}

func memfd(t *testing.T, pages bool, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() }) //nolint:errcheck // the test is over
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if pages {
		if err := unix.Fallocate(fd, 0, 0, size); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() }) //nolint:errcheck // the test is over
	return f
}

// plainFile is refused as not memory, or as unsealed on a tmpfs.
func plainFile(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(path, []byte("some bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	return open(t, path)
}
