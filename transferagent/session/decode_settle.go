package session

import "time"

// advance does all that can be done for a transfer after any change. That it has
// not failed is looked at before each step.
func (d *Decode) advance(now time.Time, t *decodeTransfer) {
	if t.failure == nil && t.receive != nil && t.sentAt.IsZero() {
		d.reach(now, t)
	}
	if t.failure != nil {
		d.stop(t)
	}
	if t.quiet() {
		d.end(now, t)
		return
	}
	_, at := d.nextWait(t)
	d.alarms.put(alarmKey{transfer: t.id}, at)
}

// stop tells prefill that a transfer has ended here, so that it frees its blocks,
// and has the own mover refuse what prefill may still write.
func (d *Decode) stop(t *decodeTransfer) {
	if t.receive == nil || t.released || t.terminal() {
		return
	}
	t.released = true
	d.send(t.peer, d.releaseOf(t.id, t.cause))
	if !t.sentAt.IsZero() {
		t.revoking = true
		d.out.Revokes = append(d.out.Revokes, t.id)
	}
}

// terminal reports whether every expected writer has ended, so that none of its
// bytes is under way.
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

// quiet reports whether a transfer has ended: every writer has, or decode ends it
// itself and nobody was asked to write or nobody can any more.
func (t *decodeTransfer) quiet() bool {
	if t.terminal() {
		return true
	}
	return t.failure != nil && (t.sentAt.IsZero() || t.revoked)
}

// nextWait is the deadline of what a transfer waits for, none when it waits for
// the own mover to revoke.
func (d *Decode) nextWait(t *decodeTransfer) (rule string, at time.Time) {
	limits := d.cfg.Timeouts
	switch {
	case t.failure != nil:
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
