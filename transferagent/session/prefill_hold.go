package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// hold takes the blocks of a transfer. It is answered by one Released or Failed,
// whatever has happened before and whatever comes.
func (p *Prefill) hold(now time.Time, c Conn, m kvproto.Hold) error {
	if err := p.checkMessage(c, kvproto.Scheduler, m, m.Transfer); err != nil {
		return err
	}
	if r := p.past.find(m.Transfer); r != nil {
		if err := r.belongsTo(c.DP); err != nil {
			return err
		}
		if r.claimed || r.settled {
			return wrongf(Duplicate, "transfer %q was held or aborted before", m.Transfer)
		}
		p.failedEarly(r, c.DP)
		return nil
	}
	t, err := p.find(now, m.Transfer, c.DP)
	if err != nil {
		return p.refuseHold(now, c, m, err)
	}
	if t.hold != nil {
		return wrongf(Duplicate, "blocks of transfer %q were held before", m.Transfer)
	}
	t.hold, t.heldAt = &m, now
	// A worker that came back since takes part from here on, if only to be told.
	t.lost = map[Conn]struct{}{}
	for _, c := range p.down(t.dp) {
		t.lost[c] = struct{}{}
	}
	var why *ending
	if n := len(m.Blocks); n > p.cfg.Limits.Blocks {
		why = endingf(RuleBlocksLimit, "%d blocks are held, a transfer may have %d", n, p.cfg.Limits.Blocks)
	} else {
		why = p.keep(&t.life, n)
	}
	if why != nil {
		t.hold.Blocks = nil
		t.fail(why)
	}
	p.advance(now, t)
	return nil
}

// refuseHold fails a transfer that is one too many.
func (p *Prefill) refuseHold(now time.Time, c Conn, m kvproto.Hold, err error) error {
	r := p.overflow(now, m.Transfer, c.DP, m.Tokens, err)
	if r == nil {
		return err
	}
	p.failedEarly(r, c.DP)
	return nil
}

// overflow also tells decode, if it has asked already.
func (p *Prefill) overflow(now time.Time, id string, dp, tokens int, err error) *record {
	r := p.machine.overflow(now, id, dp, tokens, err)
	if r == nil {
		return nil
	}
	if early := p.early[id]; early != nil {
		p.dropEarly(id)
		p.refuse(early.target, id, r.failure)
		r.peerTold = true
	}
	if p.foregone.find(id) != nil {
		p.unforgo(id)
	}
	return r
}
