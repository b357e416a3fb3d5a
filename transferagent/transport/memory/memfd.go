//go:build linux

// Package memory makes, checks and maps the sealed memfds that carry KV memory
// between an engine, its agent and the agents of the same node.
package memory

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MaxSize is the largest memfd that is mapped: no pod has as much memory.
const MaxSize = 1 << 40

// Why MapSealed and Inspect refuse a file, told apart with errors.Is.
var (
	// ErrNotMemory: the file is not memory (a memfd, or a file of a tmpfs).
	ErrNotMemory = errors.New("not a memfd")
	// ErrUnsealed: somebody could still shrink the memory, which would kill
	// whoever copies from or into it.
	ErrUnsealed = errors.New("memfd is not sealed")
	// ErrSparse: pages are missing. Whoever touched them first would pay for them.
	ErrSparse = errors.New("memfd is sparse")
	// ErrShort: the file is smaller than what was announced.
	ErrShort = errors.New("memfd is too short")
	// ErrSize: the announced size is not one that can be mapped.
	ErrSize = errors.New("memory size out of range")
)

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// CreateSealed makes a memfd of size bytes, zeroed, all pages present (so they
// are charged to the calling process) and sealed against shrinking, growing and
// further seals. The caller owns both: Unmap the bytes, Close the file. The
// memory lives until the last process has done so.
func CreateSealed(name string, size int64) (*os.File, []byte, error) {
	if err := checkSize(size); err != nil {
		return nil, nil, err
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("create memfd %q: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	b, err := fill(f, size)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("memfd %q of %d bytes: %w", name, size, err), f.Close())
	}
	return f, b, nil
}

func fill(f *os.File, size int64) ([]byte, error) {
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	b, err := mapped(f, size)
	if err != nil {
		return nil, err
	}
	if err := populate(f, b); err != nil {
		return nil, errors.Join(fmt.Errorf("allocate its pages: %w", err), unix.Munmap(b))
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal: %w", err), unix.Munmap(b))
	}
	return b, nil
}

// mapped maps a file, with huge pages where the node allows them for shared
// memory on request (shmem_enabled=advise): copies are faster with them.
func mapped(f *os.File, size int64) ([]byte, error) {
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memfd: %w", size, err)
	}
	unix.Madvise(b, unix.MADV_HUGEPAGE) //nolint:errcheck // without them it works as well
	return b, nil
}

// populate allocates piecewise, because a signal ends the whole call. Through
// the mapping, so that the advice on it holds; kernels before 5.14 cannot.
func populate(f *os.File, b []byte) error {
	const piece = 256 << 20
	for at := 0; at < len(b); {
		part := b[at:min(at+piece, len(b))]
		err := unix.Madvise(part, unix.MADV_POPULATE_WRITE)
		if errors.Is(err, unix.EINVAL) {
			err = unix.Fallocate(int(f.Fd()), 0, int64(at), int64(len(part)))
		}
		switch {
		case err == nil:
			at += piece
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN):
			return err
		}
	}
	return nil
}

// MapSealed maps the first size bytes of a memfd that another process handed
// over, after Inspect has passed it. The file stays the caller's and may be
// closed at once; the bytes are given back with Unmap.
func MapSealed(f *os.File, size int64) ([]byte, error) {
	if err := Inspect(f, size); err != nil {
		return nil, err
	}
	return mapped(f, size)
}

// Unmap gives back what CreateSealed or MapSealed mapped. Nobody may touch the
// bytes afterwards.
func Unmap(b []byte) error {
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(b), err)
	}
	return nil
}

// Inspect refuses a file that is not safe to map for size bytes: not memory
// (ErrNotMemory), unsealed (ErrUnsealed), smaller (ErrShort) or with missing
// pages (ErrSparse), or a size out of range (ErrSize).
func Inspect(f *os.File, size int64) error {
	if err := checkSize(size); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fmt.Errorf("stat memfd: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("file mode is %#o: %w", st.Mode, ErrNotMemory)
	}
	got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("it cannot carry seals (%w): %w", err, ErrNotMemory)
	}
	if got&seals != seals {
		return fmt.Errorf("seals are %#x, %#x (shrink, grow, seal) are needed: %w", got, seals, ErrUnsealed)
	}
	if got&(unix.F_SEAL_WRITE|unix.F_SEAL_FUTURE_WRITE) != 0 {
		return fmt.Errorf("seals %#x forbid writing: %w", got, ErrNotMemory)
	}
	if st.Size < size {
		return fmt.Errorf("it has %d bytes, %d were announced: %w", st.Size, size, ErrShort)
	}
	if held := st.Blocks * 512; held < size {
		return fmt.Errorf("%d of %d bytes have pages: %w", held, size, ErrSparse)
	}
	return nil
}

func checkSize(size int64) error {
	if size <= 0 || size > MaxSize {
		return fmt.Errorf("%d bytes, not 1 to %d: %w", size, int64(MaxSize), ErrSize)
	}
	return nil
}
