package session

import "time"

// copied takes the answer of a copy order. A failed one fails its flow at once;
// the flow ends when its other orders are answered too.
func (p *Prefill) copied(now time.Time, ev Copied) error {
	o, ok := p.orders[ev.ID]
	if !ok {
		return wrongf(UnknownOrder, "copy order %d is not open", ev.ID)
	}
	t, f := o.transfer, o.flow
	p.answeredOrder(ev.ID, o)
	f.bytes += max(ev.Moved, 0)
	switch {
	case ev.Err != nil && ev.Revoked:
		// Its release may still be on the way. Nothing is wrong with the peer.
		if f.failure == nil {
			f.failure = endingf(RuleAborted, "decode has ended it: %s", ev.Err)
		}
		t.blame(f.failure)
	case ev.Err != nil:
		if f.failure == nil {
			f.failure = endingf(RuleCopy, "copying from prefill tp %d to decode tp %d failed: %s", f.writer, f.reader, ev.Err)
		}
		t.blame(f.failure)
		if t.failure == nil {
			// The memory that it names may be one that decode has no more.
			p.distrust(t.target.peer)
		}
	}
	p.feed(now, t.target.peer, t)
	p.advance(now, t)
	return nil
}
