package pdpool

import (
	"time"

	corev1 "k8s.io/api/core/v1"
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
		if g.alive() && g.replica == replica && (g.revision == s.hash || p.mode != generation) && p.placed(g) {
			return true
		}
	}
	return false
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
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
