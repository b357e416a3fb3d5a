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

// Claims refuses files that are registered twice. The zero value is ready.
type Claims struct {
	mu   sync.Mutex
	held map[Identity]struct{}
}

// Claim holds a file until Release, or fails with ErrOverlap when it is held. The file
// may be closed before: what is released is its identity.
func (c *Claims) Claim(f *os.File) (Identity, error) {
	id, err := Identify(f)
	if err != nil {
		return Identity{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, held := c.held[id]; held {
		return Identity{}, fmt.Errorf("memfd inode %d: %w", id.Inode, ErrOverlap)
	}
	if c.held == nil {
		c.held = map[Identity]struct{}{}
	}
	c.held[id] = struct{}{}
	return id, nil
}

// Release gives back what Claim held.
func (c *Claims) Release(id Identity) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.held, id)
}
