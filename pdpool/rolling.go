package pdpool

import (
	"fmt"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// rollRole replaces the older instances of a role, one at a time: the new one comes
// up beside the old one, which goes when the new one is ready, or when its devices
// are needed. It returns true once nothing older is left.
func (p *planner) rollRole(s *roleState) bool {
	busy := false // a replica is being replaced
	next := -1    // the replica to replace next
	front := p.front()
	for i := range s.replicas() {
		p.keepBest(s, i)
		older, current, lost := s.older(i), s.current(i), s.lost(i)
		switch {
		case current != nil:
			busy = busy || current.state != ready || len(older) > 0
			p.handOver(s, current, older)
		case s.book.find(s.hash, i) != nil: // it has begun to be replaced
			busy = true
			p.start(s, s.now, i)
		case len(older) == 0 && lost == nil: // it is new
			if i <= front {
				p.start(s, s.now, i)
			}
		case next < 0 || len(older) == 0 || older[0].state != ready && s.wellOlder(next):
			next = i // what does not serve goes first
		}
	}
	if next < 0 {
		return !busy
	}
	p.note(Progressing, v1alpha1.ReasonReplacing, fmt.Sprintf("%s instances are replaced one at a time", s.role))
	if !busy {
		s.forgetLost(next)
		p.start(s, s.now, next)
	}
	p.recoverOlder(s)
	return false
}

// keepBest leaves one older instance of a replica: a ready one before others.
func (p *planner) keepBest(s *roleState, replica int) {
	older := s.older(replica)
	if len(older) < 2 {
		return
	}
	best := older[0]
	for _, g := range older[1:] {
		if g.state > best.state {
			best = g
		}
	}
	for _, g := range older {
		if g != best {
			p.retire(s, g, v1alpha1.ReasonSuperseded, "another instance of the replica serves")
		}
	}
}

// handOverBegun removes older instances whose new one serves, out of the role's turn. A
// change by generations leaves such when one role has lost its last older instance, and
// the role whose turn it is may need their devices.
func (p *planner) handOverBegun(s *roleState) {
	for i := range s.replicas() {
		if g := s.current(i); g != nil && p.settled(s, g) {
			p.handOver(s, g, s.older(i))
		}
	}
}

// handOver removes the older instances of a replica whose new one is ready or
// needs their devices.
func (p *planner) handOver(s *roleState, current *group, older []*group) {
	s.forgetLost(current.replica)
	for _, g := range older {
		switch {
		case !g.alive():
		case p.settled(s, current):
			p.retire(s, g, v1alpha1.ReasonSuperseded, "the new one is ready")
		case current.unschedulable != "" && p.mayYield():
			p.retire(s, g, v1alpha1.ReasonSuperseded, "the new one needs its devices")
		default:
			p.note(Progressing, v1alpha1.ReasonReplacing, fmt.Sprintf("%s of revision %s stays until the new one serves", g, g.revision))
		}
	}
}

// wellOlder says whether a replica's older instance is ready.
func (s *roleState) wellOlder(replica int) bool {
	older := s.older(replica)
	return len(older) > 0 && older[0].state == ready
}

// forgetLost gives up a replica's lost older instances.
func (s *roleState) forgetLost(replica int) {
	for v := s.lost(replica); v != nil; v = s.lost(replica) {
		s.book.drop(v.hash, replica)
	}
}
