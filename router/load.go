package router

import (
	"sync/atomic"
	"time"
)

// avoidFor is how long a rank that could not be reached is passed over where there
// is another one. It is short: whoever comes back is in use within it.
const avoidFor = time.Second

// load is what the router knows of a rank from its own requests. It outlives the
// snapshots in which the rank appears.
type load struct {
	open  atomic.Int64 // legs that have not ended
	avoid atomic.Int64 // Unix time in nanoseconds until which it is passed over
}

// shun passes the rank over for a while.
func (l *load) shun(now time.Time) { l.avoid.Store(now.Add(avoidFor).UnixNano()) }

// choice are the slots that a policy chooses from, at one time.
type choice struct {
	slots []*slot
	now   int64
}

// Len implements policy.Candidates.
func (c choice) Len() int { return len(c.slots) }

// Load implements policy.Candidates.
func (c choice) Load(i int) int64 { return c.slots[i].open.Load() }

// Avoid implements policy.Candidates.
func (c choice) Avoid(i int) bool { return c.slots[i].avoid.Load() > c.now }
