package transferagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// ruleDraining refuses transfers that would begin at an agent that has drained. Those
// that it knows go on to their end.
const ruleDraining = "draining"

// Why a draining agent is not ready, and, in the end, takes nothing new.
var (
	errDraining  = errors.New("the pod is draining")
	errNotLooked = errors.New("it was not looked at")
	errClosing   = errors.New("the pod is draining, nothing begins any more")
)

// departure is the way of a pod out, from the first /drain on. Routers stop at once,
// but what they have sent by then is still on its way, or queued in the engine, and its
// transfer begins later. So new transfers are refused only once routers have had time
// to notice and the engine has counted no request since.
type departure struct {
	log    *slog.Logger
	engine *enginePages
	settle time.Duration // that routers take to notice
	every  time.Duration // between two looks at the engine

	settled atomic.Pointer[time.Time] // nil before the first /drain
	closed  atomic.Bool               // nothing begins any more
}

// begin starts it and reports whether it is the first to do so. Of a pod that was not
// ready nobody has to notice.
func (d *departure) begin(ready bool) bool {
	at := time.Now()
	if ready {
		at = at.Add(d.settle)
	}
	return d.settled.CompareAndSwap(nil, &at)
}

func (d *departure) draining() bool { return d.settled.Load() != nil }

// reason says how far it is, nil before the first /drain.
func (d *departure) reason() error {
	switch {
	case d.closed.Load():
		return errClosing
	case d.draining():
		return errDraining
	}
	return nil
}

// remnant is what the agent itself still has: how many transfers are live, and, if there
// are any, what is closed when none is.
type remnant func(ctx context.Context) (live int, idle <-chan struct{}, err error)

// wait returns once nothing begins any more, no transfer is live and the engine has
// ended its requests. One that does not count them is waited for no longer than routers
// take to notice; one that is slow, or answers something else, is asked again.
func (d *departure) wait(ctx context.Context, left remnant) error {
	settled := *d.settled.Load()
	requests := count{err: errNotLooked}
	for {
		closed := d.closed.Load()
		live, idle, err := left(ctx)
		if err != nil {
			return err
		}
		// Asked after the transfers: what they have left behind is among the requests.
		now := d.engine.countOf(ctx)
		if now.err == nil || ctx.Err() == nil { // else it was cut short, and the look before is the last
			requests = now
		}
		switch quiet := now == (count{}); {
		case quiet && closed && live == 0:
			return nil
		case quiet && !closed && !time.Now().Before(settled):
			d.log.Info("draining: nothing begins any more", "live transfers", live)
			d.closed.Store(true)
			continue
		}
		d.pause(ctx, settled, idle)
		if ctx.Err() != nil {
			return fmt.Errorf("%v, %d transfers live: %w", requests, live, context.Cause(ctx))
		}
	}
}

// pause waits until there may be something new.
func (d *departure) pause(ctx context.Context, settled time.Time, idle <-chan struct{}) {
	wait := d.every
	if left := time.Until(settled); left > 0 {
		wait = min(wait, left)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-idle:
	case <-ctx.Done():
	}
}

// begins says that a message about this transfer would begin it, at an agent where
// nothing begins any more.
func (l *loop) begins(transfer string) bool {
	if transfer == "" || !l.leaving.closed.Load() {
		return false
	}
	_, known := l.machine.Transfer(transfer)
	return !known
}

// turnDown refuses a message of the engine that would begin a transfer, and reports
// whether it did. Prefill, which may hold blocks for it, is told at once.
func (l *loop) turnDown(ctx context.Context, s *slot, m kvproto.Message) bool {
	id := kvproto.TransferOf(m)
	if _, abort := m.(kvproto.Abort); abort || !l.begins(id) {
		return false
	}
	l.metrics.refuse(ruleDraining)
	l.door.refuse(s.who, m, ruleDraining, errClosing)
	if peer := l.prefillOf(m); peer != (kvproto.Peer{}) {
		l.send(ctx, session.Outgoing{
			Peer: session.Peer{Host: peer.Host, Handshake: peer.Handshake, Notify: peer.Notify},
			Message: &moriio.Release{Transfer: id, PDPool: &moriio.Released{
				Epoch: l.self.Epoch, Rule: ruleDraining, Text: "decode: " + errClosing.Error(),
			}},
		})
	}
	return true
}

// prefillOf is the peer that a message of decode's engine names; zero when it names none.
func (l *loop) prefillOf(m kvproto.Message) kvproto.Peer {
	switch m := m.(type) {
	case kvproto.Expect:
		if l.self.Role == kvlayout.Decode {
			return m.Peer
		}
	case kvproto.Receive:
		return m.Peer
	}
	return kvproto.Peer{}
}

// turnAway answers a peer that asks for a transfer which would begin, and reports
// whether it did.
func (l *loop) turnAway(ctx context.Context, message any) bool {
	m, ok := message.(*moriio.RemoteBlocks)
	if !ok || m.PDPool == nil || !l.begins(m.Transfer) {
		return false
	}
	l.metrics.refuse(ruleDraining)
	a := m.PDPool
	l.send(ctx, session.Outgoing{
		Peer: session.Peer{Host: a.Host, Handshake: a.Handshake, Notify: a.Notify},
		Message: &moriio.WriteFailed{Transfer: m.Transfer, PDPool: &moriio.Report{
			Epoch: l.self.Epoch, PeerEpoch: a.Epoch, WriterDP: a.PrefillDP, WriterTP: session.AllRanks, ReaderTP: session.AllRanks,
			Rule: ruleDraining, Text: "prefill: " + errClosing.Error(),
		}},
	})
	return true
}
