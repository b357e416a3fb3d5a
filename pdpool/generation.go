package pdpool

import (
	"fmt"
	"slices"
	"time"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// changeGeneration brings up the whole new set of both roles beside the best old
// one. The old set goes when every instance of the new one is ready and routers had
// time to see it. Where devices
// lack, an old pair goes for each step of the new set.
func (p *planner) changeGeneration() {
	p.keepOneGeneration()
	whole, pending, moving := true, "", false
	front := p.front()
	for _, s := range p.roles() {
		for i := range s.replicas() {
			g := s.current(i)
			if g == nil {
				whole = false
				moving = p.startInTurn(s, i, front) || moving
				continue
			}
			settled := p.settled(s, g)
			whole = whole && settled
			if g.unschedulable != "" {
				pending = g.unschedulable
			}
			moving = moving || !settled && !g.hangs()
		}
	}
	switch {
	case whole:
		p.endGenerations()
		return
	case pending == "":
		p.rollout.FreedTime = nil
		p.note(Progressing, v1alpha1.ReasonChangingGeneration, "a new set of instances comes up beside the old one, with which it can't pair")
		for _, s := range p.roles() {
			p.recoverBeside(s)
		}
	default:
		p.note(Waiting, v1alpha1.ReasonUnschedulable, "devices lack for a new set of instances beside the old one, so old pairs go one at a time: "+pending)
		if !p.giveWay() && !moving && p.mayYield() {
			p.yield()
		}
	}
}

// keepOneGeneration removes all older instances but those of the pair of revisions
// that serves best, so that many changes in a row don't pile up pods.
func (p *planner) keepOneGeneration() {
	var best [2]*revision
	most := -1
	for _, a := range append(p.prefill.inUse(), p.prefill.now) {
		for _, b := range append(p.decode.inUse(), p.decode.now) {
			if (a == p.prefill.now && b == p.decode.now) || !mayPair(a, b) {
				continue
			}
			// Of equals the older pair, which comes first, has proved itself for longer.
			if n := min(p.prefill.countReady(a.hash), p.decode.countReady(b.hash)); n > most {
				best, most = [2]*revision{a, b}, n
			}
		}
	}
	for i, s := range []*roleState{p.prefill, p.decode} {
		for _, v := range s.inUse() {
			if v != best[i] {
				p.giveUp(s, v.hash, "an older generation serves better")
			}
		}
	}
}

func (s *roleState) countReady(revision string) int {
	n := 0
	for _, g := range s.groups {
		if g.state == ready && g.revision == revision {
			n++
		}
	}
	return n
}

// giveUp removes all instances of a revision.
func (p *planner) giveUp(s *roleState, revision, why string) {
	for _, g := range s.groups {
		if g.alive() && g.revision == revision {
			p.retire(s, g, v1alpha1.ReasonSuperseded, why)
		}
	}
	for i := range s.replicas() {
		s.book.drop(revision, i)
	}
}

// endGenerations removes everything older.
func (p *planner) endGenerations() {
	for _, s := range p.roles() {
		for _, v := range s.inUse() {
			p.giveUp(s, v.hash, "the new set is ready")
		}
	}
}

// recoverBeside makes lost instances of the old generation anew while the new one
// is not ready.
func (p *planner) recoverBeside(s *roleState) {
	for i := range s.replicas() {
		if v := s.lost(i); v != nil && (s.current(i) == nil || s.current(i).state != ready) {
			p.start(s, v, i)
		}
	}
}

// settle is how long the scheduler gets to use devices that have become free.
const settle = 20 * time.Second

// mayYield says whether devices lack though no more come free, and the scheduler had
// time to use those that are. A manager that was killed after it gave some up, and
// before it could note that, begins to wait anew.
func (p *planner) mayYield() bool {
	r := &p.rollout
	if p.draining() {
		r.FreedTime = nil
		return false
	}
	if r.FreedTime == nil {
		r.FreedTime = stamp(p.seen.Now)
	}
	left := r.FreedTime.Add(settle).Sub(p.seen.Now)
	if left > 0 {
		p.again(left)
	}
	return left <= 0
}

// draining says whether an instance still holds devices that it gives up. A
// pod that is past its grace period is on a lost node and frees nothing. The end of
// the period is told by the API server's clock; that of the manager may be ahead, so
// that the time since it gave the devices up has to be over too.
func (p *planner) draining() bool {
	held := false
	for _, s := range p.roles() {
		for _, g := range s.groups {
			for _, pod := range g.pods {
				if g.state != ended || pod.DeletionTimestamp == nil {
					continue
				}
				until := pod.DeletionTimestamp.Time
				if p.rollout.YieldTime != nil && pod.DeletionGracePeriodSeconds != nil {
					until = later(until, p.rollout.YieldTime.Add(time.Duration(*pod.DeletionGracePeriodSeconds)*time.Second))
				}
				if left := until.Add(settle).Sub(p.seen.Now); left > 0 {
					held = true
					p.again(left)
				}
			}
		}
	}
	return held
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// yield gives up devices for the new set: of what doesn't serve, all; else one
// prefill and one decode instance, the last of each, or of the role that has more.
func (p *planner) yield() {
	const why = "the new set needs its devices"
	idle := false
	for _, s := range p.roles() {
		for _, g := range s.groups {
			if g.alive() && g.revision != s.hash && g.state != ready {
				p.retire(s, g, v1alpha1.ReasonSuperseded, why)
				idle = true
			}
		}
	}
	if idle {
		return
	}
	most := 0
	for _, s := range p.roles() {
		most = max(most, len(s.olderAlive()))
	}
	for _, s := range p.roles() {
		// A role that has fewer has given one up already, or serves more pairs with less.
		if older := s.olderAlive(); len(older) == most {
			p.retire(s, older[most-1], v1alpha1.ReasonSuperseded, fmt.Sprintf("%s, and no others are free", why))
		}
	}
}

// olderAlive are the living groups of other revisions than the wanted one, by replica.
func (s *roleState) olderAlive() []*group {
	var out []*group
	for _, g := range s.groups {
		if g.alive() && g.revision != s.hash {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b *group) int { return a.replica - b.replica })
	return out
}
