package pdpool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// Replicas come up pair by pair. Nobody knows in which order a scheduler takes the
// pods that wait, so that of several pairs it may give the devices of one to two
// instances of one role, and then no pair serves.

// front is the first pair that has not all of its devices yet; replicas beyond it
// wait for their turn. While old and new instances can't pair only new ones count.
func (p *planner) front() int {
	most := max(p.prefill.replicas(), p.decode.replicas())
	for i := range most {
		for _, s := range p.roles() {
			if i < s.replicas() && !p.holdsDevices(s, i) {
				return i
			}
		}
	}
	return most
}

// startInTurn makes a replica that lacks, and says whether its turn has come. One
// that has served waits for no pair while another one holds: it has been counted on.
func (p *planner) startInTurn(s *roleState, replica, front int) bool {
	turn := replica <= front || s.book.served(s.hash, replica) && p.holdsPair()
	if turn {
		p.start(s, s.now, replica)
	}
	return turn
}

// holdsPair says whether an instance of each role has its devices.
func (p *planner) holdsPair() bool {
	for _, s := range p.roles() {
		found := false
		for i := range s.replicas() {
			found = found || p.holdsDevices(s, i)
		}
		if !found {
			return false
		}
	}
	return true
}

func (p *planner) holdsDevices(s *roleState, replica int) bool {
	for _, g := range s.groups {
		if p.counts(s, g) && g.replica == replica && p.placed(g) {
			return true
		}
	}
	return false
}

// counts says whether a group is one that pairs are counted of.
func (p *planner) counts(s *roleState, g *group) bool {
	return g.alive() && (g.revision == s.hash || p.mode != generation)
}

// giveWay gives up an instance of a role that holds devices for several while the other
// role finds them for none, so that none serves. A pool comes to that which lacks devices
// for good and loses an instance: one of the other role, which waited, may get what
// comes free. True says that the pool is so, also while the scheduler gets its time.
func (p *planner) giveWay() bool {
	for _, s := range p.roles() {
		other := p.decode
		if s == other {
			other = p.prefill
		}
		spare := p.spare(s, other)
		if spare == nil || !p.starves(other) {
			continue
		}
		p.yields = true
		p.note(Waiting, v1alpha1.ReasonUnschedulable, fmt.Sprintf("no %s instance finds devices, and %s instances hold them that serve nobody: %s gives way", other.role, s.role, spare))
		if p.mayYield() {
			p.dismiss(s, spare, fmt.Sprintf("no %s instance finds devices", other.role))
			for _, g := range s.groups {
				if p.counts(s, g) && g.unschedulable != "" { // it would take them again
					p.dismiss(s, g, "its turn comes after another pair's")
				}
			}
		}
		return true
	}
	return false
}

// spare is the last of several instances of a role that hold devices, of those on nodes
// that take the other role; nil if there is none. One that is ready stays.
func (p *planner) spare(s, other *roleState) *group {
	var held []*group
	for _, g := range s.groups {
		if p.counts(s, g) && p.placed(g) {
			held = append(held, g)
		}
	}
	if len(held) < 2 {
		return nil
	}
	slices.SortStableFunc(held, func(a, b *group) int { return cmp.Or(int(b.state-a.state), a.replica-b.replica) })
	d := p.resolved.demand(&p.pool.Spec, other.role)
	for _, g := range slices.Backward(held[1:]) {
		if slices.ContainsFunc(g.pods, func(pod *corev1.Pod) bool { return p.seen.Devices.takes(&d, pod.Spec.NodeName) }) {
			return g
		}
	}
	return nil
}

// starves says whether a role has instances, and each finds no node.
func (p *planner) starves(s *roleState) bool {
	waits := false
	for _, g := range s.groups {
		if !p.counts(s, g) {
			continue
		}
		if g.unschedulable == "" {
			return false
		}
		waits = true
	}
	return waits
}

// dismiss removes an instance that comes back when its turn does.
func (p *planner) dismiss(s *roleState, g *group, why string) {
	p.event(corev1.EventTypeWarning, v1alpha1.ReasonRemoving, fmt.Sprintf("%s is removed until there are devices for it: %s", g, why))
	s.book.ends(g)
	p.remove(g)
	p.rollout = v1alpha1.RolloutStatus{YieldTime: stamp(p.seen.Now)}
}

// placed says whether all pods of a group have their devices: each has a node, and
// the node has let it in or had time to turn it away.
func (p *planner) placed(g *group) bool {
	if g.state != starting && g.state != ready {
		return false
	}
	for _, pod := range g.pods {
		if podReady(pod) || prepared(pod) {
			continue
		}
		if pod.Spec.NodeName == "" {
			return false
		}
		// By more than the wait only clocks differ, and that must not hold up anybody.
		if left := boundTime(pod).Add(settle).Sub(p.seen.Now); left > 0 && left < 2*settle {
			p.again(left)
			return false
		}
	}
	return true
}

// boundTime is when a pod got its node.
func boundTime(pod *corev1.Pod) time.Time {
	if c := podCondition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}
