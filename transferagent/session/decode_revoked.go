package session

import "time"

// revoked takes the mover's word that nobody writes into the blocks of a transfer
// any more.
func (d *Decode) revoked(now time.Time, ev Revoked) error {
	if r := d.past.find(ev.Transfer); r != nil && r.revoking {
		// The writers' write_done were faster.
		r.revoking = false
		return nil
	}
	t := d.transfers[ev.Transfer]
	if t == nil || !t.revoking || t.revoked {
		return wrongf(Unasked, "transfer %q was not to be revoked", ev.Transfer)
	}
	t.revoked = true
	d.advance(now, t)
	return nil
}
