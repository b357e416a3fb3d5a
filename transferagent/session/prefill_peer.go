package session

import "time"

// handshaken lets the transfers go on that waited for the answer, and ends those of
// an incarnation that the answer shows to be gone. What has ended meanwhile is not
// among them.
func (p *Prefill) handshaken(now time.Time, ev Handshaken) error {
	waiting, ended, restarted, err := p.answered(now, ev)
	if err != nil {
		return err
	}
	if restarted {
		p.failPeer(now, ev.Peer, func(t *prefillTransfer) bool { return t.target.epoch == ended },
			endingf(RulePeerRestarted, "decode's agent at %s has restarted", ev.Peer))
	}
	for _, w := range waiting {
		if t := p.transfers[w.transfer]; t != nil && t.waiting && t.target.peer == ev.Peer {
			t.waiting = false
			p.resume(now, t, ev, w.joined)
		}
	}
	// Others were held up while the peer was in doubt.
	for t := range p.byAge() {
		if t.bound && t.target.peer == ev.Peer {
			p.advance(now, t)
		}
	}
	return nil
}

func (p *Prefill) resume(now time.Time, t *prefillTransfer, ev Handshaken, joined bool) {
	s := p.peers[ev.Peer]
	switch {
	case ev.Err != nil || ev.Metadata == nil:
		t.fail(p.handshakeFailed(ev.Peer))
	case s.known.refused != nil:
		t.fail(s.known.refused)
	case s.known.epoch != t.target.epoch && !joined:
		t.fail(endingf(RulePeerRestarted, "decode's agent at %s has restarted: the blocks are of epoch %d, it has %d", ev.Peer, t.target.epoch, s.known.epoch))
	}
	p.advance(now, t)
}

// peerGone forgets a decode peer and ends what it was to get.
func (p *Prefill) peerGone(now time.Time, ev PeerGone) {
	why := endingf(RulePeerGone, "the connection to decode's agent at %s was lost", ev.Peer)
	p.unknow(now, ev.Peer)
	p.failPeer(now, ev.Peer, func(*prefillTransfer) bool { return true }, why)
	for _, id := range p.earlyOf(ev.Peer) {
		p.refuse(p.early[id].target, id, why)
		p.endEarly(now, id, why)
	}
}

func (p *Prefill) failPeer(now time.Time, at Peer, which func(*prefillTransfer) bool, why *ending) {
	for t := range p.byAge() {
		if t.target != nil && t.target.peer == at && which(t) {
			t.fail(why)
			p.advance(now, t)
		}
	}
}
