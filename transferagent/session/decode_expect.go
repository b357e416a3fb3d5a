package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// expect takes the announcement of a transfer at admission.
func (d *Decode) expect(now time.Time, c Conn, m kvproto.Expect) error {
	if err := d.checkMessage(c, m, m.Transfer); err != nil {
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

// find returns the live transfer of a data parallel rank, or begins it.
func (d *Decode) find(now time.Time, id string, dp int) (*decodeTransfer, error) {
	t := d.transfers[id]
	switch {
	case t == nil && len(d.transfers) >= d.cfg.Limits.Transfers:
		return nil, wrongf(OverLimit, "transfer %q is one more than the %d that may be live", id, d.cfg.Limits.Transfers)
	case t == nil:
		return d.begin(now, id, dp), nil
	case t.dp != dp:
		return nil, wrongf(WrongRank, "transfer %q belongs to dp %d, not to dp %d", id, t.dp, dp)
	}
	return t, nil
}

func (d *Decode) checkMessage(c Conn, m kvproto.Message, id string) error {
	if err := d.checkSender(c, kvproto.Scheduler, m); err != nil {
		return err
	}
	return checkID(id)
}
