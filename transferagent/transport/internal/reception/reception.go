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

// Reception takes connections C and remembers sessions S until Close.
type Reception[C, S comparable] struct {
	max   int
	drops *ledger.Drops

	mu       sync.Mutex
	closing  chan struct{} // closed by Close, under mu
	incoming map[C]struct{}
	sessions map[S]struct{}
	serving  sync.WaitGroup // Accept and its connections
}

// New makes one that serves at most so many connections at a time. It counts what
// it turns away in drops.
func New[C, S comparable](most int, drops *ledger.Drops) *Reception[C, S] {
	return &Reception[C, S]{
		max: most, drops: drops, closing: make(chan struct{}),
		incoming: map[C]struct{}{}, sessions: map[S]struct{}{},
	}
}

// Accept serves each connection on a goroutine, and ends it when it was served or
// is one too many. It returns at once and goes on until next gives net.ErrClosed:
// nothing that a peer sends ends it.
func (r *Reception[C, S]) Accept(next func() (C, error), serve, end func(C)) {
	r.serving.Go(func() {
		for {
			c, err := next()
			switch {
			case err == nil:
				r.admit(c, serve, end)
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

func (r *Reception[C, S]) admit(c C, serve, end func(C)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed() || len(r.incoming) >= r.max {
		r.drops.Add("crowded")
		end(c)
		return
	}
	r.incoming[c] = struct{}{}
	r.serving.Go(func() {
		defer func() {
			r.mu.Lock()
			delete(r.incoming, c)
			r.mu.Unlock()
			end(c)
		}()
		serve(c)
	})
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
