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
	var from Peer
	if m.Peer != (kvproto.Peer{}) {
		from = peerOf(m.Peer)
		if err := checkPeer(from); err != nil {
			return err
		}
	}
	if d.past.find(m.Transfer) != nil {
		return wrongf(Duplicate, "transfer %q was announced before", m.Transfer)
	}
	t, err := d.find(now, m.Transfer, c.DP)
	if err != nil {
		if r := d.overflow(now, m.Transfer, c.DP, m.Tokens, err); r != nil && from != (Peer{}) {
			r.peerTold = true
			d.send(from, d.releaseOf(m.Transfer, 0, r.failure))
		}
		return err
	}
	if t.expect != nil || t.receive != nil {
		return wrongf(Duplicate, "transfer %q was announced before", m.Transfer)
	}
	t.expect, t.peer = &m, from
	d.advance(now, t)
	return nil
}

func peerOf(p kvproto.Peer) Peer { return Peer{Host: p.Host, Handshake: p.Handshake, Notify: p.Notify} }
