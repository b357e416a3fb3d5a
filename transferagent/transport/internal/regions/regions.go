// Package regions keeps the memory that is registered with a mover: who is
// copying from or into it right now, and how it is withdrawn from under them.
package regions

import (
	"fmt"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
)

// MaxBytes is the largest memory that can be registered.
const MaxBytes = 1 << 40

// Region is one registered memory. Its bytes may be touched only between a
// successful Acquire and the Release of the same user.
type Region struct {
	ID     transport.MemoryID
	Memory transport.Memory
	latch
}

// New makes a region that belongs to no table, for memory mapped from a peer.
func New(id transport.MemoryID, m transport.Memory) *Region {
	r := &Region{ID: id, Memory: m}
	r.init()
	return r
}

// Bytes is the memory; see Acquire.
func (r *Region) Bytes() []byte { return r.Memory.Bytes }

// Size is the length of the memory in bytes.
func (r *Region) Size() int64 { return int64(len(r.Memory.Bytes)) }

// Withdraw refuses further users, hurries those there are, cuts those that are
// still there after grace, and returns when nobody touches the bytes.
func (r *Region) Withdraw(grace time.Duration) {
	r.close()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-r.quiet:
		return
	case <-timer.C:
	}
	r.cut()
	<-r.quiet
}

// Table is the registered memory of one mover. The zero value is ready.
type Table struct {
	mu sync.Mutex
	m  map[transport.MemoryID]*Region
}

// Register adds memory. It refuses an id that is taken, also while it is being
// withdrawn, and memory that is empty or larger than MaxBytes.
func (t *Table) Register(id transport.MemoryID, m transport.Memory) error {
	if n := len(m.Bytes); n == 0 || n > MaxBytes {
		return fmt.Errorf("memory %d has %d bytes, not 1 to %d", id, n, int64(MaxBytes))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, taken := t.m[id]; taken {
		return fmt.Errorf("memory %d is registered already", id)
	}
	if t.m == nil {
		t.m = map[transport.MemoryID]*Region{}
	}
	t.m[id] = New(id, m)
	return nil
}

// Find gives the region of an id, or ErrUnknownMemory.
func (t *Table) Find(id transport.MemoryID) (*Region, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.m[id]; r != nil && !r.Gone() {
		return r, nil
	}
	return nil, fmt.Errorf("memory %d: %w", id, transport.ErrUnknownMemory)
}

// Source gives the memory that a batch reads, if CheckBatch lets it start.
func (t *Table) Source(b transport.Batch) (*Region, error) {
	r, err := t.Find(b.Source)
	if err != nil {
		return nil, err
	}
	if _, err := CheckBatch(b, r.Size()); err != nil {
		return nil, err
	}
	return r, nil
}

// Unregister withdraws the region of an id, calls after (which may be nil) when
// nobody here touches it any more, and then frees the id. It gives the region,
// or nil when there was none or another call freed it.
func (t *Table) Unregister(id transport.MemoryID, grace time.Duration, after func()) *Region {
	t.mu.Lock()
	r := t.m[id]
	t.mu.Unlock()
	if r == nil {
		return nil
	}
	r.Withdraw(grace)
	if after != nil {
		after()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m[id] != r {
		return nil
	}
	delete(t.m, id)
	return r
}

// IDs lists what is registered, in no order.
func (t *Table) IDs() []transport.MemoryID {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]transport.MemoryID, 0, len(t.m))
	for id := range t.m {
		ids = append(ids, id)
	}
	return ids
}
