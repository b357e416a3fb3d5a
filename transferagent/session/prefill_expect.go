package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// expect takes the announcement of a transfer at admission.
func (p *Prefill) expect(now time.Time, c Conn, m kvproto.Expect) error {
	if err := p.checkMessage(c, kvproto.Scheduler, m, m.Transfer); err != nil {
		return err
	}
	if m.Tokens < 0 {
		return wrongf(BadNumber, "transfer %q of %d tokens", m.Transfer, m.Tokens)
	}
	if r := p.past.find(m.Transfer); r != nil {
		if err := r.belongsTo(c.DP); err != nil {
			return err
		}
		if r.expected {
			return wrongf(Duplicate, "transfer %q was announced before", m.Transfer)
		}
		// It failed before its own engine came to it; the hold is answered so.
		r.expected = true
		return nil
	}
	t, err := p.find(now, m.Transfer, c.DP)
	if err != nil {
		p.overflow(now, m.Transfer, c.DP, m.Tokens, err)
		return err
	}
	if t.expect != nil {
		return wrongf(Duplicate, "transfer %q was announced before", m.Transfer)
	}
	t.expect = &m
	p.advance(now, t)
	return nil
}
