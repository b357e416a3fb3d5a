// Package mem moves memory within one process, over a Network whose links can
// drop, delay, reorder, freeze and be cut: for tests and simulations. What the
// faults do is decided by the network's seed and by the order in which batches
// are posted on a link, not by goroutine scheduling. Time is the runtime's, so
// it is testing/synctest's inside a bubble.
package mem

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
)

// ErrDropped says that the network lost the batch; some of its bytes may have arrived.
var ErrDropped = errors.New("batch was dropped by the simulated network")

// DefaultStall is how long a batch may stay on a frozen link before its session
// ends with transport.ErrFrozen.
const DefaultStall = 10 * time.Second

// Faults is what one direction of a link does to batches.
type Faults struct {
	Drop    float64       // share of batches that fail with ErrDropped after a random part of their bytes
	Delay   time.Duration // before each batch moves
	Jitter  time.Duration // up to this much more, drawn per batch
	Reorder bool          // whether a batch may overtake another by its jitter
}

// Network connects movers by name. All methods may be called from several goroutines.
type Network struct {
	seed  uint64
	stall time.Duration

	mu     sync.Mutex
	born   uint64
	movers map[string]*Mover
	links  map[direction]*link
}

type direction struct{ from, to string }

// link is one direction between two names. Its fields are guarded by Network.mu.
type link struct {
	faults      Faults
	random      *rand.Rand
	cut, frozen bool
	changed     chan struct{} // closed and replaced at each change
}

// NewNetwork makes a network without faults. The same seed and the same order
// of posts on each link give the same drops, delays and orders.
func NewNetwork(seed uint64) *Network {
	return &Network{seed: seed, stall: DefaultStall, movers: map[string]*Mover{}, links: map[direction]*link{}}
}

// SetStall replaces DefaultStall for sessions that are dialled from now on.
func (n *Network) SetStall(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stall = d
}

// SetFaults replaces the faults of batches that from posts to to from now on.
func (n *Network) SetFaults(from, to string, f Faults) {
	n.change(from, to, func(l *link) { l.faults = f })
}

// Cut ends all sessions between a and b, in both directions, with
// transport.ErrPeerGone and refuses new ones until Heal.
func (n *Network) Cut(a, b string) { n.both(a, b, func(l *link) { l.cut = true }) }

// Heal undoes Cut. Ended sessions stay ended.
func (n *Network) Heal(a, b string) { n.both(a, b, func(l *link) { l.cut = false }) }

// Freeze keeps batches between a and b from moving, as a stopped process would.
func (n *Network) Freeze(a, b string) { n.both(a, b, func(l *link) { l.frozen = true }) }

// Thaw undoes Freeze.
func (n *Network) Thaw(a, b string) { n.both(a, b, func(l *link) { l.frozen = false }) }

func (n *Network) both(a, b string, f func(*link)) {
	n.change(a, b, f)
	n.change(b, a, f)
}

func (n *Network) change(from, to string, f func(*link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.linkLocked(from, to)
	f(l)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (n *Network) linkLocked(from, to string) *link {
	d := direction{from, to}
	l := n.links[d]
	if l == nil {
		l = &link{random: rand.New(rand.NewPCG(n.seed, hash(from+"\x00"+to))), changed: make(chan struct{})}
		n.links[d] = l
	}
	return l
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return h.Sum64()
}

// state is what a link does now, and a channel that is closed when that changes.
type state struct {
	cut, frozen bool
	changed     <-chan struct{}
}

func (n *Network) state(d direction) state {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.linkLocked(d.from, d.to)
	return state{l.cut, l.frozen, l.changed}
}

// fate is what the network does to one batch.
type fate struct {
	wait    time.Duration
	reorder bool
	drop    bool
	part    float64 // of a dropped batch's bytes that arrive
}

// draw always takes the same number of random values, so that a change of
// faults does not shift the fate of later batches.
func (n *Network) draw(d direction) fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.linkLocked(d.from, d.to)
	drop, part, jitter := l.random.Float64(), l.random.Float64(), l.random.Float64()
	return fate{
		wait:    l.faults.Delay + time.Duration(jitter*float64(l.faults.Jitter)),
		reorder: l.faults.Reorder,
		drop:    drop < l.faults.Drop,
		part:    part,
	}
}

// join adds a mover under its name.
func (n *Network) join(m *Mover) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.movers[m.name] != nil {
		return fmt.Errorf("network has a mover %q already", m.name)
	}
	n.born++
	m.incarnation = n.born
	n.movers[m.name] = m
	return nil
}

func (n *Network) leave(m *Mover) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.movers[m.name] == m {
		delete(n.movers, m.name)
	}
}

// find gives the mover that an address means, if it is reachable from a name.
func (n *Network) find(from string, a address) (*Mover, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := n.movers[a.name]
	switch {
	case m == nil || n.linkLocked(from, a.name).cut:
		return nil, fmt.Errorf("dial %q: %w", a.name, transport.ErrPeerGone)
	case m.incarnation != a.incarnation:
		return nil, fmt.Errorf("dial %q, incarnation %d, it is now %d: %w", a.name, a.incarnation, m.incarnation, transport.ErrStale)
	}
	return m, nil
}
