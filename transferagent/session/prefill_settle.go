package session

import (
	"time"
)

// advance does all that can be done for a transfer after any change. That it has
// not failed is looked at before each step.
func (p *Prefill) advance(now time.Time, t *prefillTransfer) {
	if why := t.mismatch(); t.failure == nil && why != nil {
		t.fail(why)
	}
	if t.failure == nil && t.target != nil && !t.bound {
		p.reach(now, t)
	}
	if t.failure == nil && t.bound && t.hold != nil {
		if !t.planned {
			p.plan(t)
		}
		if t.failure == nil {
			p.pump(now, t)
		}
	}
	p.conclude(now, t)
}

// conclude tells what has become true of a transfer, ends it if that is all, and sets
// its next deadline.
func (p *Prefill) conclude(now time.Time, t *prefillTransfer) {
	p.report(now, t)
	if t.quiet() {
		p.end(now, t)
		return
	}
	_, at := p.nextWait(t)
	p.alarms.put(alarmKey{transfer: t.id}, at)
}

// mismatch compares the prompts that the two engines work on.
func (t *prefillTransfer) mismatch() *ending {
	if t.expect != nil && t.hold != nil && t.expect.Tokens != t.hold.Tokens {
		return endingf(RulePrompt, "prefill admitted %d tokens and holds blocks of %d", t.expect.Tokens, t.hold.Tokens)
	}
	if t.target == nil || (t.expect == nil && t.hold == nil) {
		return nil
	}
	if tokens := t.tokens(); tokens != t.target.tokens {
		return endingf(RulePrompt, "the prompt has %d tokens at prefill and %d at decode", tokens, t.target.tokens)
	}
	if t.expect != nil && !sameHash(t.expect.Hash, t.target.hash) {
		return endingf(RulePrompt, "the prompts of prefill and decode differ: hash %x and %x", t.expect.Hash, t.target.hash)
	}
	return nil
}

// report sends what has become true of each flow. A writer is terminal for decode
// only when none of its copies is in flight, also when it has failed.
func (p *Prefill) report(now time.Time, t *prefillTransfer) {
	for _, w := range t.writers {
		for _, f := range w.flows {
			if !f.ended.IsZero() {
				continue
			}
			why := t.wellWith(w, f)
			if why != nil {
				t.blame(why)
			}
			if f.open > 0 {
				continue
			}
			if why != nil {
				f.failure, f.ended = why, now
				if why.failed() {
					p.send(t.target.peer, p.failedReport(t.id, t.target.epoch, p.engine.global(t.dp), f.writer, f.reader, f.bytes, why))
				}
			} else if t.planned && w.sealed && f.posted == len(w.saved) {
				f.ended = now
				p.send(t.target.peer, p.doneReport(t, f))
			}
		}
	}
	if t.failure.failed() && !t.bound {
		p.refuse(t.target, t.id, t.failure)
	}
}

// quiet reports whether a transfer has ended: no copy is in flight, and it has
// failed or each writer has done its part. A writer without readers has done it
// when it is sealed.
func (t *prefillTransfer) quiet() bool {
	if t.inflight > 0 {
		return false
	}
	if t.failure != nil {
		return true
	}
	if !t.bound {
		return false
	}
	failed, sealed := false, t.hold != nil
	for _, w := range t.writers {
		sealed = sealed && (w.sealed || w.lost)
		for _, f := range w.flows {
			if f.ended.IsZero() {
				return false
			}
			failed = failed || f.failure != nil
		}
	}
	return sealed || failed
}

// nextWait is the deadline of what a transfer waits for, none when it waits for
// copies to end: those are answered by the mover or with the peer's end.
func (p *Prefill) nextWait(t *prefillTransfer) (rule string, at time.Time) {
	limits := p.cfg.Timeouts
	switch {
	case t.failure != nil:
		return "", time.Time{}
	case t.waiting:
		return RuleHandshakeDeadline, t.reachBy
	case t.target == nil && t.hold != nil:
		// From the hold on: before, no block was kept.
		return RuleDeferDeadline, t.heldAt.Add(limits.Defer)
	case t.inflight > 0 || t.queued > 0:
		return RuleTransferDeadline, later(t.moving, t.lastSave).Add(limits.Transfer)
	}
	// The own engine has to go on. Its queue may be long, so the bound is what
	// decode can wait and prefill would hold, from the last sign of either.
	since := later(later(t.started, t.heldAt), t.lastSave)
	if t.target != nil {
		since = later(since, t.target.at)
	}
	return RulePrefillSilent, since.Add(limits.Defer + limits.ReceiveAbort)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// overdue ends a transfer whose wait has run out.
func (p *Prefill) overdue(now time.Time, id string) {
	t := p.transfers[id]
	if t == nil {
		return
	}
	rule, at := p.nextWait(t)
	if rule == "" || now.Before(at) {
		p.alarms.put(alarmKey{transfer: id}, at)
		return
	}
	limits := p.cfg.Timeouts
	switch rule {
	case RuleHandshakeDeadline:
		t.fail(p.handshakeLate(t.target.peer))
	case RuleDeferDeadline:
		t.fail(endingf(rule, "decode named no blocks within %s", limits.Defer))
	case RuleTransferDeadline:
		t.fail(endingf(rule, "neither a layer was saved nor did the copies end within %s", limits.Transfer))
	default:
		t.fail(endingf(rule, "prefill's engine did not go on with the request within %s", limits.Defer+limits.ReceiveAbort))
	}
	p.advance(now, t)
}
