package enginesim

import (
	"context"
	"errors"
	"sync"
	"time"
)

// linker keeps a group registered at the agent, and registers it again when the
// agent has restarted.
type linker struct {
	mu   sync.Mutex
	now  *link
	last error // why there is no link
	// restless are transfers of lost links. Once the agent takes the engine again,
	// nothing of its life before touches their blocks.
	restless []*transfer
}

// Waits between two tries to register.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
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

func (k *linker) set(l *link, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now, k.last = l, why
	if l == nil {
		return
	}
	for _, t := range k.restless {
		t.end(why, true)
	}
	k.restless = nil
}

// leave takes over the transfers of a lost link.
func (k *linker) leave(l *link) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.transfers {
		k.restless = append(k.restless, t)
	}
	l.transfers = nil
}

// run keeps the group registered until ctx ends.
func (k *linker) run(ctx context.Context, g *group) {
	wait := firstRetry
	for ctx.Err() == nil {
		l, err := g.open(ctx)
		if err == nil {
			wait = firstRetry
			g.log.Info("registered at the transfer agent", "dp", g.dp, "epoch", l.scheduler.Epoch())
			k.set(l, nil)
			err = l.serve(ctx, g)
			k.set(nil, err)
			k.leave(l)
		} else {
			k.set(nil, err)
		}
		if ctx.Err() != nil {
			return
		}
		g.log.Warn("no transfer agent", "dp", g.dp, "error", reason(err), "retry", wait)
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		pause.Stop()
		wait = min(2*wait, lastRetry)
	}
}
