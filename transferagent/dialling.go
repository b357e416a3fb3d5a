package transferagent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pdpool/pdpool/transferagent/session"
)

var (
	errMadeRoom = errors.New("it did not answer while others waited to be asked")
	errNoTurn   = errors.New("others that do not answer were asked all the while")
)

// dialling bounds the handshakes that are under way, in all and with one host, and
// keeps the others waiting. Of those that wait the host with the fewest under way is
// next. A peer that does not answer keeps its place for as long as nobody waits for it,
// but at least for a while. Turns of the loop only touch it.
type dialling struct {
	total, perHost int
	within         time.Duration // one handshake, from when it was asked for

	active  []*dial // the oldest first
	waiting []*dial // likewise
}

// dial is one handshake that was asked for.
type dial struct {
	at     session.Peer
	by     time.Time // its deadline
	cancel context.CancelCauseFunc
	old    bool // under way for so long that it may make room
	cut    bool // it is making room
}

// ask queues a handshake.
func (d *dialling) ask(now time.Time, at session.Peer) {
	d.waiting = append(d.waiting, &dial{at: at, by: now.Add(d.within)})
}

// late takes those that wait and have no time left.
func (d *dialling) late(now time.Time) []*dial {
	var out []*dial
	d.waiting = slices.DeleteFunc(d.waiting, func(w *dial) bool {
		if now.Before(w.by) {
			return false
		}
		out = append(out, w)
		return true
	})
	return out
}

// next takes the one whose turn it is, nil when there is none or no place for it.
func (d *dialling) next() *dial {
	hosts := d.hosts()
	best := -1
	for i, w := range d.waiting {
		if best < 0 || hosts[w.at.Host] < hosts[d.waiting[best].at.Host] {
			best = i
		}
	}
	if best < 0 || len(d.active) >= d.total || hosts[d.waiting[best].at.Host] >= d.perHost {
		return nil
	}
	w := d.waiting[best]
	d.waiting = slices.Delete(d.waiting, best, best+1)
	d.active = append(d.active, w)
	return w
}

// makeRoom ends old handshakes, no more than there are some that wait for their places.
func (d *dialling) makeRoom() {
	hosts, wanted, places := d.hosts(), map[string]int{}, 0
	for _, w := range d.waiting {
		if hosts[w.at.Host] >= d.perHost {
			wanted[w.at.Host]++
		} else {
			places++
		}
	}
	for _, a := range d.active {
		if a.cut {
			if wanted[a.at.Host] > 0 {
				wanted[a.at.Host]--
			} else {
				places--
			}
		}
	}
	for _, a := range d.active {
		switch {
		case a.cut || !a.old:
			continue
		case wanted[a.at.Host] > 0:
			wanted[a.at.Host]--
		case places > 0:
			places--
		default:
			continue
		}
		a.cut = true
		a.cancel(errMadeRoom)
	}
}

// over gives the place of a handshake back.
func (d *dialling) over(a *dial) {
	d.active = slices.DeleteFunc(d.active, func(o *dial) bool { return o == a })
}

// hosts counts those under way by host.
func (d *dialling) hosts() map[string]int {
	n := make(map[string]int, len(d.active))
	for _, a := range d.active {
		n[a.at.Host]++
	}
	return n
}

// handshake has a peer asked for its metadata as soon as there is a place. When it has
// them, a connection to its notify port is opened and kept.
func (l *loop) handshake(ctx context.Context, at session.Peer) {
	if err := checkPeer(at, l.limits.own); err != nil {
		l.shaken(ctx, at, nil, err)
		return
	}
	l.dials.ask(time.Now(), at)
	l.dialNext(ctx)
}

// dialNext starts what there is a place for.
func (l *loop) dialNext(ctx context.Context) {
	for _, w := range l.dials.late(time.Now()) {
		l.shaken(ctx, w.at, nil, fmt.Errorf("not asked within %v: %w", l.dials.within, errNoTurn))
	}
	for d := l.dials.next(); d != nil; d = l.dials.next() {
		l.dial(ctx, d)
	}
	l.dials.makeRoom()
}

// dial carries out one handshake.
func (l *loop) dial(ctx context.Context, d *dial) {
	within, cancel := context.WithCancelCause(ctx)
	d.cancel = cancel
	l.group.Go(func() {
		// Those that wait have their deadlines looked at here as well: while some do,
		// every place is taken.
		pause(within, l.limits.patience)
		if within.Err() == nil {
			l.do(func(ctx context.Context) {
				d.old = true
				l.dialNext(ctx)
			})
		}
	})
	l.group.Go(func() {
		timed, stop := context.WithDeadline(within, d.by)
		m, err := l.askMetadata(timed, d.at)
		stop()
		cut := errors.Is(context.Cause(within), errMadeRoom)
		cancel(nil)
		if err != nil && cut {
			err = errors.Join(errMadeRoom, err)
		}
		l.do(func(ctx context.Context) {
			l.dials.over(d)
			l.shaken(ctx, d.at, m, err)
			l.dialNext(ctx)
		})
	})
}
