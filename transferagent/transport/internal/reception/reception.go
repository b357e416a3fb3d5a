// Package reception keeps what a mover has open: the connections of peers that it
// serves and the sessions that it has dialled.
package reception

import (
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
)

// Bounds are how many connections are kept at a time.
type Bounds struct {
	Open     int // of all
	Unproved int // of those that Proved was not called for
	PerHost  int // of those, from one host
}

// Usual are the bounds of a mover that serves so many connections. A peer proves who
// it is within a few round trips, so the places of those that have not are for many at
// a time. Beyond, the oldest has to go: it is most likely one that will never prove
// anything, and keeping it would let whoever came first keep all others out.
func Usual(open int) Bounds { return Bounds{Open: open, Unproved: 256, PerHost: 32} }

// Door is where connections C come in.
type Door[C comparable] struct {
	Next  func() (C, error) // waits for one; net.ErrClosed is the last
	Host  func(C) string    // tells apart where they come from; nil: nothing does
	Serve func(C)           // on a goroutine of its own
	Cut   func(C)           // makes Serve return soon; it may be called at any time before End has
	End   func(C)           // last, once, also for those that are not served
}

// Reception takes connections C and remembers sessions S until Close.
type Reception[C, S comparable] struct {
	bounds Bounds
	drops  *ledger.Drops

	mu       sync.Mutex
	closing  chan struct{} // closed by Close, under mu
	incoming map[C]struct{}
	unproved []stranger[C] // oldest first
	sessions map[S]struct{}
	serving  sync.WaitGroup // Accept and its connections
}

type stranger[C comparable] struct {
	conn C
	host string
}

// New makes one with bounds that are all above 0. It counts what it turns away in drops.
func New[C, S comparable](b Bounds, drops *ledger.Drops) *Reception[C, S] {
	return &Reception[C, S]{
		bounds: b, drops: drops, closing: make(chan struct{}),
		incoming: map[C]struct{}{}, sessions: map[S]struct{}{},
	}
}

// Accept serves each connection on a goroutine, and ends it when it was served or
// is one too many. It returns at once and goes on until Next gives net.ErrClosed:
// nothing that a peer sends ends it.
func (r *Reception[C, S]) Accept(d Door[C]) {
	r.serving.Go(func() {
		for {
			c, err := d.Next()
			switch {
			case err == nil:
				r.admit(c, d)
			case errors.Is(err, net.ErrClosed):
				return
			default: // out of descriptors, most likely: let others give some back
				r.drops.Add("accept")
				select {
				case <-r.closing:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
	})
}

func (r *Reception[C, S]) admit(c C, d Door[C]) {
	s := stranger[C]{conn: c}
	if d.Host != nil {
		s.host = d.Host(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed() || len(r.incoming) >= r.bounds.Open {
		r.drops.Add("crowded")
		d.End(c)
		return
	}
	r.makeRoom(s.host, d)
	r.incoming[c] = struct{}{}
	r.unproved = append(r.unproved, s)
	r.serving.Go(func() {
		defer func() {
			r.mu.Lock()
			delete(r.incoming, c)
			r.forgetStranger(c)
			r.mu.Unlock()
			d.End(c)
		}()
		d.Serve(c)
	})
}

// makeRoom cuts the oldest stranger of a host, or of all, that is one too many now.
func (r *Reception[C, S]) makeRoom(host string, d Door[C]) {
	same := func(s stranger[C]) bool { return s.host == host }
	of := 0
	for _, s := range r.unproved {
		if same(s) {
			of++
		}
	}
	var oldest int
	switch {
	case d.Host != nil && of >= r.bounds.PerHost:
		oldest = slices.IndexFunc(r.unproved, same)
	case len(r.unproved) >= r.bounds.Unproved:
		oldest = 0
	default:
		return
	}
	r.drops.Add("crowded")
	d.Cut(r.unproved[oldest].conn)
	r.unproved = slices.Delete(r.unproved, oldest, oldest+1)
}

// Proved is for a connection that is a peer's: it no longer counts as a stranger.
func (r *Reception[C, S]) Proved(c C) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forgetStranger(c)
}

func (r *Reception[C, S]) forgetStranger(c C) {
	r.unproved = slices.DeleteFunc(r.unproved, func(s stranger[C]) bool { return s.conn == c })
}

func (r *Reception[C, S]) closed() bool {
	select {
	case <-r.closing:
		return true
	default:
		return false
	}
}

// Incoming lists the connections that are served now, in no order.
func (r *Reception[C, S]) Incoming() []C {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.incoming))
}

// Enter remembers a session until Forget; false: the mover is closed.
func (r *Reception[C, S]) Enter(s S) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed() {
		return false
	}
	r.sessions[s] = struct{}{}
	return true
}

// Forget is for a session that has ended.
func (r *Reception[C, S]) Forget(s S) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions, s)
}

// Close takes no connection and no session from now on, and gives the sessions
// there are. first is false when it was closed before.
func (r *Reception[C, S]) Close() (sessions []S, first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed() {
		return nil, false
	}
	close(r.closing)
	return slices.Collect(maps.Keys(r.sessions)), true
}

// Wait returns when Accept has returned and every connection was served.
func (r *Reception[C, S]) Wait() { r.serving.Wait() }
