package transferagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/zmtp"
)

// inboxTurns is how many turns may wait for the loop before their senders do.
const inboxTurns = 1024

// errEnded says that the agent is ending.
var errEnded = errors.New("the agent is ending")

// turn is what the loop does in one go. It may not wait for anything.
type turn func(ctx context.Context)

// loop owns the transfer machine and all that it drives: the engine's
// connections, the peers and the mover's sessions. Its state is touched by turns
// only; whatever may wait runs in goroutines of its group, bounded by deadlines,
// and comes back as a turn.
type loop struct {
	log     *slog.Logger
	metrics *metrics
	keys    *keyring
	mover   transport.Mover
	limits  limits
	config  *agentconfig.Config
	ports   agentconfig.Ports
	self    moriio.Agent // what peers are told, but for the ranks
	disown  func()       // ends the connections of peers to the notify port

	answers *zmtp.Budget // of handshakes

	strangers noisy

	leaving departure
	born    time.Time
	busy    atomic.Int64 // nanoseconds since born at which the current turn began, 0 between turns

	inbox chan turn
	ended chan struct{} // closed when no turn runs any more
	group sync.WaitGroup

	// State, for turns only.
	machine session.Machine
	events  []session.Event // raised by turns, not stepped yet
	door    door
	peers   map[session.Peer]*peer
	dials   dialling
	cause   time.Time     // when what this turn is about came, if that may end a flow
	idle    chan struct{} // closed when no transfer is live; nil while nobody waits for it
	endings chan struct{} // closed when a transfer ends; nil likewise
}

// do hands a turn to the loop. It waits while the inbox is full, and reports
// false when the loop has ended and the turn will not run.
func (l *loop) do(t turn) bool {
	select {
	case <-l.ended:
		return false
	default:
	}
	select {
	case l.inbox <- t:
		return true
	case <-l.ended:
		return false
	}
}

// through is do that waits until the turn has run. Who reads from others uses it, so
// that each has one message on the way and not as many as the inbox holds.
func (l *loop) through(t turn) bool {
	ran := make(chan struct{})
	if !l.do(func(ctx context.Context) { t(ctx); close(ran) }) {
		return false
	}
	select {
	case <-ran:
		return true
	case <-l.ended:
		return false
	}
}

// ask runs f as a turn and waits for it.
func (l *loop) ask(ctx context.Context, f turn) error {
	ran := make(chan struct{})
	select {
	case l.inbox <- func(ctx context.Context) { f(ctx); close(ran) }:
	case <-l.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-ran:
		return nil
	case <-l.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run drives the machine until ctx ends, then waits for what it started.
func (l *loop) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		if at, ok := l.machine.Deadline(); ok {
			timer.Reset(max(time.Until(at), time.Millisecond))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
		case t := <-l.inbox:
			l.busy.Store(max(1, int64(time.Since(l.born))))
			t(ctx)
		case <-timer.C:
			l.busy.Store(max(1, int64(time.Since(l.born))))
			l.raise(session.Tick{})
		}
		l.settle(ctx)
		l.busy.Store(0)
	}
	close(l.ended)
	for _, p := range l.peers {
		p.close()
	}
	l.group.Wait()
}

// stuck says since when the loop has been in one turn, if that is too long: nothing
// that a turn does may wait.
func (l *loop) stuck() error {
	since := l.busy.Load()
	if took := time.Since(l.born) - time.Duration(since); since > 0 && took > l.limits.turn {
		return fmt.Errorf("the agent's loop has been busy with one event for %v", took.Round(time.Second))
	}
	return nil
}

// raise queues an event for the machine; it is stepped before the turn's end.
func (l *loop) raise(ev session.Event) { l.events = append(l.events, ev) }

// settle steps what was raised and carries out what the machine wants, until
// neither is left.
func (l *loop) settle(ctx context.Context) {
	for {
		for len(l.events) > 0 {
			ev := l.events[0]
			l.events = l.events[1:]
			if err := l.machine.Step(time.Now(), ev); err != nil {
				l.wrong(ev, err)
			}
		}
		l.events = nil
		if !l.carryOut(ctx, l.machine.Ready()) {
			break
		}
	}
	l.cause = time.Time{}
	if l.idle != nil && l.live() == 0 {
		close(l.idle)
		l.idle = nil
	}
}

// carryOut does what the machine wants, in the order of Ready, and reports
// whether there was anything.
func (l *loop) carryOut(ctx context.Context, r session.Ready) bool {
	for _, t := range r.Ended {
		l.count(t)
	}
	if len(r.Ended) > 0 && l.endings != nil {
		close(l.endings)
		l.endings = nil
	}
	for _, n := range r.Notices {
		l.notice(n)
	}
	for _, m := range r.Messages {
		l.send(ctx, m)
	}
	for _, p := range r.Dials {
		l.handshake(ctx, p)
	}
	for _, o := range r.Copies {
		l.post(ctx, o)
	}
	for _, id := range r.Revokes {
		l.revoke(ctx, id)
	}
	return len(r.Notices)+len(r.Messages)+len(r.Dials)+len(r.Copies)+len(r.Revokes) > 0
}

// nextEnd is closed when another transfer has ended.
func (l *loop) nextEnd() <-chan struct{} {
	if l.endings == nil {
		l.endings = make(chan struct{})
	}
	return l.endings
}

// wrong accounts for an event that the machine did not take.
func (l *loop) wrong(ev session.Event, err error) {
	reason := reasonOf(err)
	switch ev := ev.(type) {
	case session.EngineMessage:
		l.metrics.refuse(reason)
		l.door.refuse(ev.Conn, ev.Message, reason, err)
	case session.PeerMessage:
		l.metrics.drop("notify", reason)
	default:
		l.log.Warn("event not taken", "event", ev, "error", err)
	}
}
