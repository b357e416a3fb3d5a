package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// expect takes the announcement of a transfer at admission.
func (d *Decode) expect(now time.Time, c Conn, m kvproto.Expect) error {
	if err := d.checkMessage(c, kvproto.Scheduler, m, m.Transfer); err != nil {
		return err
	}
	if m.Tokens < 0 {
		return wrongf(BadNumber, "transfer %q of %d tokens", m.Transfer, m.Tokens)
	}
	if d.past.find(m.Transfer) != nil {
		return wrongf(Duplicate, "transfer %q was announced before", m.Transfer)
	}
	t, err := d.find(now, m.Transfer, c.DP)
	if err != nil {
		d.overflow(now, m.Transfer, c.DP, m.Tokens, err)
		return err
	}
	if t.expect != nil || t.receive != nil {
		return wrongf(Duplicate, "transfer %q was announced before", m.Transfer)
	}
	t.expect = &m
	d.advance(now, t)
	return nil
}
