//go:build linux

package memory

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrOverlap says that two registrations would share bytes.
var ErrOverlap = errors.New("memory overlaps memory that is registered already")

// Identity tells files apart whatever descriptor they came by.
type Identity struct{ Device, Inode uint64 }

// Identify gives the identity of an open file.
func Identify(f *os.File) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Identity{}, fmt.Errorf("stat memfd: %w", err)
	}
	return Identity{Device: st.Dev, Inode: st.Ino}, nil
}

// Claims refuses memory that is registered twice. The zero value is ready.
type Claims struct {
	mu   sync.Mutex
	held map[Identity][]extent
}

type extent struct{ from, to int64 }

// Claim holds length bytes of a file from offset on, or fails with ErrOverlap
// when any of them is held. length 0 stands for the whole file: it overlaps
// every other claim on that file.
func (c *Claims) Claim(f *os.File, offset, length int64) error {
	want, err := span(offset, length)
	if err != nil {
		return err
	}
	id, err := Identify(f)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held[id] {
		if want.from < h.to && h.from < want.to {
			return fmt.Errorf("bytes %d to %d of memfd inode %d, held %d to %d: %w",
				want.from, want.to, id.Inode, h.from, h.to, ErrOverlap)
		}
	}
	if c.held == nil {
		c.held = map[Identity][]extent{}
	}
	c.held[id] = append(c.held[id], want)
	return nil
}

// Release gives back a claim made with the same arguments. Other arguments are
// without effect.
func (c *Claims) Release(f *os.File, offset, length int64) {
	want, err := span(offset, length)
	if err != nil {
		return
	}
	id, err := Identify(f)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.held[id][:0]
	for _, h := range c.held[id] {
		if h != want {
			kept = append(kept, h)
		}
	}
	c.held[id] = kept
	if len(kept) == 0 {
		delete(c.held, id)
	}
}

func span(offset, length int64) (extent, error) {
	if length == 0 {
		offset, length = 0, MaxSize
	}
	if offset < 0 || length < 0 || length > MaxSize || offset > MaxSize-length {
		return extent{}, fmt.Errorf("bytes %d and %d more: %w", offset, length, ErrSize)
	}
	return extent{offset, offset + length}, nil
}
