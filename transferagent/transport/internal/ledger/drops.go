package ledger

import (
	"maps"
	"sync"
)

// Drops counts what a listener threw away, by reason. The zero value is ready.
// Reasons are constants of the code, never text of a peer.
type Drops struct {
	Count func(reason string) // if set before first use, called for each as well

	mu sync.Mutex
	m  map[string]int64
}

// Add counts one more.
func (d *Drops) Add(reason string) {
	if d.Count != nil {
		d.Count(reason)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.m == nil {
		d.m = map[string]int64{}
	}
	d.m[reason]++
}

// Counts is a copy of all reasons that have occurred.
func (d *Drops) Counts() map[string]int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.m)
}
