package mem

import (
	"container/heap"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/outbox"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
)

// session is one goroutine that moves batches when they are due.
type session struct {
	from, to *Mover
	link     direction
	stall    time.Duration
	box      *outbox.Box
	quiet    chan struct{} // closed when run has stopped copying
	arrived  chan struct{}
	user     regions.User

	mu     sync.Mutex
	queued schedule
	last   time.Time // due time of the newest batch that keeps its order
}

var _ transport.Session = (*session)(nil)

// Post implements transport.Session.
func (s *session) Post(ctx context.Context, b transport.Batch, done func(int64, error)) error {
	source, err := s.from.memory.Find(b.Source)
	if err != nil {
		return err
	}
	total, err := regions.CheckBatch(b, source.Size())
	if err != nil {
		return err
	}
	e, err := s.box.Admit(ctx, b, done)
	if err != nil {
		return err
	}
	s.mu.Lock()
	f := s.from.network.draw(s.link)
	p := &parcel{entry: e, source: source, due: time.Now().Add(f.wait), left: total, drop: f.drop}
	if f.drop {
		p.left = int64(f.part * float64(total))
	}
	if !f.reorder {
		if p.due.Before(s.last) {
			p.due = s.last
		}
		s.last = p.due
	}
	heap.Push(&s.queued, p)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	return nil
}

// Done implements transport.Session.
func (s *session) Done() <-chan struct{} { return s.box.Ended() }

// Err implements transport.Session.
func (s *session) Err() error { return s.box.Err() }

// Close implements transport.Session.
func (s *session) Close() error {
	s.box.End(transport.ErrClosed)
	<-s.box.Ended()
	return nil
}

func (s *session) run() {
	defer func() {
		close(s.quiet)
		s.box.Flush()
		s.from.forget(s)
		s.to.forget(s)
	}()
	for {
		p := s.next()
		if p == nil {
			return
		}
		p.entry.Finish(s.deliver(p))
	}
}

// next waits for the batch that is due first; nil when the session ends.
func (s *session) next() *parcel {
	var frozenSince time.Time
	for {
		now, link := time.Now(), s.from.network.state(s.link)
		if link.cut {
			s.box.End(fmt.Errorf("link from %q to %q was cut: %w", s.link.from, s.link.to, transport.ErrPeerGone))
			return nil
		}
		if !link.frozen {
			frozenSince = time.Time{}
		}
		p, wait := s.pop(now, link.frozen)
		switch {
		case p != nil:
			return p
		case wait == 0 && link.frozen:
			if frozenSince.IsZero() {
				frozenSince = now
			}
			if wait = s.stall - now.Sub(frozenSince); wait <= 0 {
				s.box.End(fmt.Errorf("%q did nothing for %v: %w", s.link.to, s.stall, transport.ErrFrozen))
				return nil
			}
		}
		if !s.wait(wait, link.changed) {
			return nil
		}
	}
}

// pop takes a batch that is due, or tells how long none will be: 0 when one is
// due but frozen, -1 when there is none at all.
func (s *session) pop(now time.Time, frozen bool) (*parcel, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queued) == 0 {
		return nil, -1
	}
	if wait := s.queued[0].due.Sub(now); wait > 0 {
		return nil, wait
	}
	if frozen {
		return nil, 0
	}
	return heap.Pop(&s.queued).(*parcel), 0
}

// wait returns when something may have changed, false when the session ends.
func (s *session) wait(d time.Duration, changed <-chan struct{}) bool {
	var due <-chan time.Time
	if d >= 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-changed:
	case <-s.arrived:
	case <-s.box.Ending():
		return false
	}
	return true
}

// deliver copies piece by piece, so that an end of the session, a cut link or
// withdrawn memory stops it soon.
func (s *session) deliver(p *parcel) error {
	b := p.entry.Batch
	target, err := s.to.memory.Find(b.Target)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if err := regions.CheckTarget(b, target.Size()); err != nil {
		return err
	}
	for i := range b.Copies {
		if err := s.interrupted(); err != nil {
			return err
		}
		if err := s.move(p, target, b.Copies[i]); err != nil {
			return err
		}
	}
	if p.drop {
		return ErrDropped
	}
	return nil
}

func (s *session) interrupted() error {
	select {
	case <-s.box.Ending():
		return s.box.Err()
	default:
	}
	if s.from.network.state(s.link).cut {
		return fmt.Errorf("link from %q to %q was cut: %w", s.link.from, s.link.to, transport.ErrPeerGone)
	}
	return nil
}

func (s *session) move(p *parcel, target *regions.Region, c kvlayout.Copy) error {
	if !p.source.Acquire(&s.user) {
		return fmt.Errorf("source memory %d: %w", p.source.ID, transport.ErrUnknownMemory)
	}
	defer p.source.Release(&s.user)
	if !target.Acquire(&s.user) {
		return fmt.Errorf("target memory %d: %w", target.ID, transport.ErrUnknownMemory)
	}
	defer target.Release(&s.user)
	transfer := p.entry.Batch.Flow.Transfer
	pass, ok := s.to.gate.Enter(transfer, &s.user)
	if !ok {
		return fmt.Errorf("transfer %q: %w", transfer, transport.ErrRevoked)
	}
	defer pass.Leave(&s.user)
	moved := int64(0)
	for i := range int64(c.Count) {
		n := min(c.Length, p.left)
		src, dst := c.Src+i*c.SrcStride, c.Dst+i*c.DstStride
		copy(target.Bytes()[dst:dst+n], p.source.Bytes()[src:src+n])
		p.left -= n
		moved += n
		if p.left == 0 {
			break
		}
	}
	p.entry.Count(moved)
	s.to.received.Add(p.entry.Batch.Flow, moved)
	return nil
}

// parcel is a batch on its way.
type parcel struct {
	entry  *outbox.Entry
	source *regions.Region
	due    time.Time
	left   int64 // bytes that will still be moved
	drop   bool
}

// schedule is a heap by due time, then by order of posting.
type schedule []*parcel

func (q schedule) Len() int { return len(q) }

func (q schedule) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].entry.Seq < q[j].entry.Seq
}

func (q schedule) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

func (q *schedule) Push(x any) { *q = append(*q, x.(*parcel)) }

func (q *schedule) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return p
}
