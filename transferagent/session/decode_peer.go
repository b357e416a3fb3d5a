package session

import "time"

// handshaken lets the transfers go on that waited for the answer, and ends those of
// an incarnation that the answer shows to be gone. What has ended meanwhile is not
// among them.
func (d *Decode) handshaken(now time.Time, ev Handshaken) error {
	waiting, ended, restarted, err := d.answered(now, ev)
	if err != nil {
		return err
	}
	if restarted {
		why := endingf(RulePeerRestarted, "prefill's agent at %s has restarted", ev.Peer)
		for t := range d.byAge() {
			if t.peer == ev.Peer && !t.sentAt.IsZero() && t.epoch == ended {
				t.fail(why)
				d.advance(now, t)
			}
		}
	}
	for _, w := range waiting {
		t := d.transfers[w.transfer]
		if t == nil || !t.waiting || t.peer != ev.Peer {
			continue
		}
		t.waiting = false
		if ev.Err != nil || ev.Metadata == nil {
			t.fail(d.handshakeFailed(ev.Peer))
		}
		d.advance(now, t)
	}
	return nil
}

// peerGone forgets a prefill peer and ends what it was to write.
func (d *Decode) peerGone(now time.Time, ev PeerGone) {
	why := endingf(RulePeerGone, "the connection to prefill's agent at %s was lost", ev.Peer)
	d.unknow(now, ev.Peer)
	for t := range d.byAge() {
		if t.receive != nil && t.peer == ev.Peer {
			t.fail(why)
			d.advance(now, t)
		}
	}
}
