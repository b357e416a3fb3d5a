package transferagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// courier carries the copy orders for one incarnation of a peer to the mover's
// session with it.
type courier struct {
	epoch  uint64
	orders *queue[posted]
	cancel context.CancelFunc
}

// posted is an order on its way.
type posted struct {
	session.CopyOrder
	at time.Time
}

// post queues an order. An order that can't be queued is answered at once.
func (l *loop) post(ctx context.Context, o session.CopyOrder) {
	err := checkPeer(o.Peer, l.limits.own)
	if err == nil {
		if p := l.peer(ctx, o.Peer); p == nil {
			err = fmt.Errorf("no copy to %s: %d peers are the most", o.Peer.Host, l.limits.peers)
		} else {
			err = l.courier(ctx, p, o).orders.put(posted{o, time.Now()})
		}
	}
	if err != nil {
		l.raise(session.Copied{ID: o.ID, Err: err})
	}
}

// courier finds or starts the courier for an order's incarnation of the peer.
func (l *loop) courier(ctx context.Context, p *peer, o session.CopyOrder) *courier {
	if c := p.courier; c != nil {
		if c.epoch == o.Epoch {
			return c
		}
		c.cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &courier{epoch: o.Epoch, orders: newQueue[posted](l.limits.orders), cancel: cancel}
	p.courier = c
	l.metrics.sessions.Inc()
	l.group.Go(func() {
		defer cancel()
		err := l.carry(ctx, c, o.Peer.Host, o.Address)
		for _, rest := range c.orders.drain() {
			l.copied(&rest, 0, err)
		}
		l.do(func(context.Context) {
			l.metrics.sessions.Dec()
			// The notifications that tell of the failed copies still go out.
			if p := l.peers[o.Peer]; p != nil && p.courier == c {
				p.courier = nil
				l.log.Info("mover session with peer ended", "peer", p.at, "error", err)
				l.raise(session.PeerGone{Peer: p.at})
			}
		})
	})
	return c
}

// carry opens the session and posts orders until the session or ctx ends. When
// it returns, every order that it took has been answered.
func (l *loop) carry(ctx context.Context, c *courier, host string, address []byte) error {
	dialCtx, stop := context.WithTimeout(ctx, l.limits.dial)
	s, err := l.mover.Dial(dialCtx, host, address)
	stop()
	if err != nil {
		return fmt.Errorf("mover of %s: %w", host, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.group.Go(func() {
		select {
		case <-s.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		o, ok := c.orders.take(ctx)
		if !ok {
			break
		}
		b := transport.Batch{
			Flow: transport.Flow{
				Transfer: o.Transfer,
				Writer:   transport.Rank{DP: o.WriterDP, TP: o.WriterTP},
				Reader:   transport.Rank{DP: o.ReaderDP, TP: o.ReaderTP},
			},
			Source: transport.MemoryID(o.Source), Target: transport.MemoryID(o.Target), Copies: o.Copies,
		}
		if err := s.Post(ctx, b, func(moved int64, err error) { l.copied(&o, moved, err) }); err != nil {
			l.copied(&o, 0, err)
		}
	}
	why := cmp.Or(s.Err(), transport.ErrClosed)
	if err := s.Close(); err != nil {
		l.log.Error("mover session not closed", "peer", host, "error", err)
	}
	return fmt.Errorf("session of the mover with %s: %w", host, why)
}

// copied answers an order.
func (l *loop) copied(o *posted, moved int64, err error) {
	came, id := time.Now(), o.ID
	took := came.Sub(o.at)
	l.metrics.bytes.WithLabelValues("sent").Add(float64(moved))
	l.do(func(context.Context) {
		l.cause = came
		l.metrics.copySeconds.Observe(took.Seconds())
		l.raise(session.Copied{ID: id, Moved: moved, Err: err, Revoked: errors.Is(err, transport.ErrRevoked)})
	})
}

// revoke has the mover refuse a transfer and says so once nothing of it is
// written here any more. A mover that can't tell yet is asked again.
func (l *loop) revoke(ctx context.Context, id string) {
	l.group.Go(func() {
		for ctx.Err() == nil {
			within, stop := context.WithTimeout(ctx, l.limits.revoke)
			err := l.mover.Revoke(within, id)
			waited := within.Err() != nil
			stop()
			if err == nil {
				l.do(func(context.Context) { l.raise(session.Revoked{Transfer: id}) })
				return
			}
			l.log.Error("transfer is not quiet", "transfer", id, "error", err)
			if !waited {
				pause(ctx, l.limits.retry)
			}
		}
	})
}

// pause waits for d, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
