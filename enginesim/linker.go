package enginesim

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// linker keeps a group registered at the agent, and registers it again when the
// agent has restarted.
type linker struct {
	mu       sync.Mutex
	now      *link
	last     error // why there is no link
	restless []remnant
}

// remnant is what a lost link has left: transfers whose blocks may yet be touched.
type remnant struct {
	epoch     uint64        // of the agent that had them
	linger    time.Duration // see kvproto.Welcome
	transfers []*transfer
}

// Waits between two tries to register.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 500 * time.Millisecond // a try costs next to nothing
)

var errNotRegistered = errors.New("the instance is not registered at its transfer agent")

// current is the link, or why there is none.
func (k *linker) current() (*link, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.now != nil {
		return k.now, nil
	}
	return nil, errors.Join(errNotRegistered, k.last)
}

// lack says why there is no link.
func (k *linker) lack(why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now, k.last = nil, why
}

// take uses a new link, and settles what those before have left. The agent that they
// led to has let go of the memory, if it is the one that welcomes now. Else it has
// ended, and nothing of its life touches the blocks once its peers have heard of it or
// their leases are over. Before there is a new link it may only have been stopped.
func (k *linker) take(l *link, g *group) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now, k.last = l, nil
	for _, r := range k.restless {
		wait := r.linger
		if r.epoch == l.scheduler.Epoch() {
			wait = 0
		}
		g.background.Go(func() { r.settle(wait, g.stop) })
	}
	k.restless = nil
}

// settle tells that nothing touches the blocks, after the wait.
func (r *remnant) settle(wait time.Duration, stop <-chan struct{}) {
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-over.C:
	case <-stop:
		return
	}
	for _, t := range r.transfers {
		t.end(nil, true)
	}
}

// leave takes over the transfers of a lost link.
func (k *linker) leave(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.transfers) > 0 {
		k.restless = append(k.restless, remnant{l.scheduler.Epoch(), l.scheduler.Linger(), slices.Collect(maps.Values(l.transfers))})
	}
	l.transfers = nil
}

// run keeps the group registered until ctx ends.
func (k *linker) run(ctx context.Context, g *group) {
	wait := firstRetry
	var missing sparse
	for ctx.Err() == nil {
		l, err := g.open(ctx)
		if err == nil {
			wait = firstRetry
			g.log.Info("registered at the transfer agent", "dp", g.dp, "epoch", l.scheduler.Epoch())
			k.take(l, g)
			err = l.serve(ctx, g)
			k.leave(l)
		}
		k.lack(err)
		if ctx.Err() != nil {
			return
		}
		if omitted, ok := missing.admit(time.Now()); ok {
			g.log.Warn("no transfer agent", "dp", g.dp, "error", reason(err), "omitted", omitted)
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
		wait = min(2*wait, lastRetry)
	}
}
