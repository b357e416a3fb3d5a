package session

import "time"

// advance does all that can be done for a transfer after any change. That it has
// not failed is looked at before each step.
func (d *Decode) advance(now time.Time, t *decodeTransfer) {
	if t.failure == nil && t.receive != nil && t.sentAt.IsZero() && !t.sated {
		d.reach(now, t)
	}
	if t.failure != nil {
		d.release(t)
	}
	if t.mustRevoke() {
		t.revoking = true
		d.out.Revokes = append(d.out.Revokes, t.id)
	}
	if t.quiet() {
		d.end(now, t)
		return
	}
	_, at := d.nextWait(t)
	d.alarms.put(alarmKey{transfer: t.id}, at)
}

// release tells prefill that a transfer has ended here, so that it frees its blocks.
func (d *Decode) release(t *decodeTransfer) {
	if t.peer == (Peer{}) || t.released || t.terminal() {
		return
	}
	t.released = true
	d.send(t.peer, d.releaseOf(t.id, t.epoch, t.cause))
}

// mustRevoke reports whether the own mover has to refuse now what may still be
// written: when decode ends the transfer itself, else not before the last expected
// writer has ended, as those that are well may finish.
func (t *decodeTransfer) mustRevoke() bool {
	switch {
	case t.revoking || t.sentAt.IsZero():
		return false
	case t.terminal():
		return t.loose()
	}
	return t.failure != nil
}

// terminal reports whether every expected writer has ended.
func (t *decodeTransfer) terminal() bool {
	if t.sentAt.IsZero() {
		return false
	}
	for _, f := range t.flows {
		if f.ended.IsZero() {
			return false
		}
	}
	return true
}

// loose reports whether bytes may still be placed though every writer has ended: a
// writer that failed has given up on its copies, but what it had sent by then is
// placed here whenever this side comes to it.
func (t *decodeTransfer) loose() bool {
	for _, f := range t.flows {
		if f.failure != nil {
			return true
		}
	}
	return false
}

// quiet reports whether a transfer has ended: every writer's bytes are in place, or
// nobody was asked to write, or nobody can any more.
func (t *decodeTransfer) quiet() bool {
	switch {
	case t.revoked, t.sated:
		return true
	case t.terminal():
		return !t.loose()
	}
	return t.failure != nil && t.sentAt.IsZero()
}

// nextWait is the deadline of what a transfer waits for, none when it waits for
// the own mover to revoke.
func (d *Decode) nextWait(t *decodeTransfer) (rule string, at time.Time) {
	limits := d.cfg.Timeouts
	switch {
	case t.failure != nil || t.revoking:
		return "", time.Time{}
	case t.receive == nil:
		// The own engine's queue may be long; prefill does not wait longer than this.
		return RuleDecodeSilent, t.started.Add(limits.Defer + limits.ReceiveAbort)
	case t.sentAt.IsZero():
		return RuleHandshakeDeadline, t.reachBy
	}
	// From the moment that prefill was asked: before, the wait was our own.
	return RuleReceiveDeadline, t.sentAt.Add(limits.ReceiveAbort)
}

// overdue ends a transfer whose wait has run out.
func (d *Decode) overdue(now time.Time, id string) {
	t := d.transfers[id]
	if t == nil {
		return
	}
	rule, at := d.nextWait(t)
	if rule == "" || now.Before(at) {
		d.alarms.put(alarmKey{transfer: id}, at)
		return
	}
	limits := d.cfg.Timeouts
	switch rule {
	case RuleHandshakeDeadline:
		t.fail(d.handshakeLate(t.peer))
	case RuleReceiveDeadline:
		t.fail(endingf(rule, "prefill's writers did not end within %s", limits.ReceiveAbort))
	default:
		t.fail(endingf(rule, "decode's engine named no blocks within %s", limits.Defer+limits.ReceiveAbort))
	}
	d.advance(now, t)
}
