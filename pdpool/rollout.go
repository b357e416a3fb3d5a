package pdpool

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// mode is how replicas get from older revisions to the one that the spec asks for.
type mode string

const (
	// plain: there are no older ones.
	plain mode = "plain"
	// recording: a revision was written just now, the next look goes on from it.
	recording mode = "recording"
	// hold: the revision can't be made, or can't serve; what exists stays.
	hold mode = "hold"
	// rolling: old and new instances may pair, so that they are replaced one at a
	// time, decode first.
	rolling mode = "rolling"
	// generation: they may not, so that a whole new set comes up beside the old one.
	generation mode = "generation"
)

// roll decides which replicas to make and which to remove.
func (p *planner) roll() {
	for _, s := range p.roles() {
		p.scaleDown(s)
		p.complete(s)
	}
	p.mode = p.chooseMode()
	if p.mode == rolling || p.mode == generation {
		for _, s := range p.roles() {
			p.dropSuperseded(s)
		}
	}
	switch p.mode {
	case recording:
	case plain:
		p.fill(p.decode)
		p.fill(p.prefill)
		p.giveWay()
	case hold:
		for _, s := range p.roles() {
			p.recoverOlder(s)
			p.recoverBegun(s)
		}
	case rolling:
		if p.rollRole(p.decode) {
			p.rollRole(p.prefill)
		} else {
			p.handOverBegun(p.prefill)
			p.fill(p.prefill)
			p.recoverOlder(p.prefill)
		}
	case generation:
		p.changeGeneration()
	}
}

func (p *planner) chooseMode() mode {
	older := p.hasOlder(p.prefill) || p.hasOlder(p.decode)
	switch {
	case p.recorded:
		return recording
	case p.prefill.now == nil || p.decode.now == nil:
		return hold
	case !older:
		return plain
	case kvlayout.Refused(p.problems):
		// What serves is not given up for what can't.
		return hold
	case p.mayMix():
		return rolling
	}
	return generation
}

// hasOlder says whether a wanted replica exists, or has served and was lost, in
// another revision.
func (p *planner) hasOlder(s *roleState) bool {
	for i := range s.replicas() {
		if len(s.older(i)) > 0 || s.lost(i) != nil {
			return true
		}
	}
	return false
}

// lost is the older revision in which a replica has served, where no group of that
// revision lives.
func (s *roleState) lost(replica int) *revision {
	for i := range s.book.entries {
		e := &s.book.entries[i]
		if value(e.Replica) != replica || e.Revision == s.hash || e.ReadyTime == nil || s.living(e.Revision, replica) {
			continue
		}
		if v := s.revision(e.Revision); v != nil {
			return v
		}
	}
	return nil
}

func (s *roleState) living(revision string, replica int) bool {
	for _, g := range s.groups {
		if g.alive() && g.revision == revision && g.replica == replica {
			return true
		}
	}
	return false
}

// inUse are the older revisions that live or may come back.
func (s *roleState) inUse() []*revision {
	var out []*revision
	for i := range s.all {
		v := &s.all[i]
		if v.hash == s.hash {
			continue
		}
		for r := range s.replicas() {
			if s.living(v.hash, r) || s.book.served(v.hash, r) {
				out = append(out, v)
				break
			}
		}
	}
	return out
}

// mayMix says whether every older instance may pair with every new one of the
// other role.
func (p *planner) mayMix() bool {
	for _, v := range p.prefill.inUse() {
		if !mayPair(v, p.decode.now) {
			return false
		}
	}
	for _, v := range p.decode.inUse() {
		if !mayPair(p.prefill.now, v) {
			return false
		}
	}
	return true
}

// mayPair says whether instances of two recorded revisions may exchange KV cache, as the
// router and their agents decide: by what they were made as, whatever the spec says by
// now. Equal pairing keys mean that engine, model, mover and mode are equal.
func mayPair(prefill, decode *revision) bool {
	a, b := &prefill.record.Agent, &decode.record.Agent
	if a.Pairing != b.Pairing {
		return false
	}
	side := func(c *agentconfig.Config) kvlayout.Side {
		return kvlayout.Side{Layout: c.Layout, BlockSize: c.Block, KVType: c.KVType}
	}
	refused := func(version string) bool {
		return kvlayout.Refused(kvlayout.Compatible(kvlayout.Pair{
			Engine: a.Engine, Version: version, Mover: a.Mover, Mode: a.Mode,
			Geometry: a.KV, HasGeometry: a.KV != (kvlayout.Geometry{}), Prefill: side(a), Decode: side(b),
		}))
	}
	return !refused(a.EngineVersion) && (a.EngineVersion == b.EngineVersion || !refused(b.EngineVersion))
}

// scaleDown removes replicas beyond the number wanted.
func (p *planner) scaleDown(s *roleState) {
	for _, g := range s.groups {
		if g.alive() && g.replica >= s.replicas() {
			p.retire(s, g, v1alpha1.ReasonRemoving, "it is beyond the replicas wanted")
		}
	}
}

// complete creates the pods that a group lacks still.
func (p *planner) complete(s *roleState) {
	for _, g := range s.groups {
		v := s.revision(g.revision)
		block, ok := g.block()
		if g.state != partial || v == nil || !ok {
			continue
		}
		for i := range g.size {
			if !g.has(i) {
				p.createPod(v, g.replica, g.attempt, i, block, g.avoids())
			}
		}
	}
}

// dropSuperseded removes instances of older revisions that have never served:
// nothing is lost with them.
func (p *planner) dropSuperseded(s *roleState) {
	for _, g := range s.groups {
		if g.alive() && g.revision != s.hash && !s.book.served(g.revision, g.replica) {
			p.retire(s, g, v1alpha1.ReasonSuperseded, "its revision was replaced before it was ready")
		}
	}
}

// seenWithin is how long routers get to see a new instance before what it replaces
// goes. They watch pods, so that it is a moment, or the time to watch again.
const seenWithin = 10 * time.Second

// settled says whether a group is ready, and routers had time to see it.
func (p *planner) settled(s *roleState, g *group) bool {
	if g.state != ready {
		return false
	}
	e := s.book.find(g.revision, g.replica)
	if e == nil || e.ReadyTime == nil {
		return false
	}
	left := e.ReadyTime.Add(seenWithin).Sub(p.seen.Now)
	if left > 0 {
		p.again(left)
	}
	return left <= 0
}

// fill makes the replicas that do not exist in any revision, in their turn.
func (p *planner) fill(s *roleState) {
	front := p.front()
	for i := range s.replicas() {
		if s.current(i) == nil && len(s.older(i)) == 0 && s.lost(i) == nil {
			p.startInTurn(s, i, front)
		}
	}
}

// recoverOlder makes replicas anew that served in an older revision and were lost
// in the middle of a roll-out, in that revision.
func (p *planner) recoverOlder(s *roleState) {
	for i := range s.replicas() {
		if v := s.lost(i); v != nil && s.current(i) == nil {
			p.start(s, v, i)
		}
	}
}

// recoverBegun makes replicas anew that have ended in the revision that the spec
// asks for.
func (p *planner) recoverBegun(s *roleState) {
	for i := range s.replicas() {
		if s.now != nil && s.current(i) == nil && len(s.older(i)) == 0 && s.book.find(s.hash, i) != nil {
			p.start(s, s.now, i)
		}
	}
}

// start makes the next attempt at a replica, when its back-off is over.
func (p *planner) start(s *roleState, v *revision, replica int) {
	if left := s.book.wait(v.hash, replica, p.seen.Now); left > 0 {
		e := s.book.find(v.hash, replica)
		p.again(left)
		p.note(Waiting, v1alpha1.ReasonBackOff, fmt.Sprintf("%s %d has failed %d times in a row and is started again at %s: %s",
			s.role, replica, value(e.Failures), clock(p.seen.Now.Add(left)), e.Reason))
		return
	}
	attempt := s.nextAttempt(v.hash, replica)
	block := p.ports.take()
	var nodes []string
	if !p.resolved.oneHost() { // else it is the others of the pool that say where
		nodes, _ = s.book.avoided(v.hash, replica, p.seen.Now)
	}
	for i := range v.record.Agent.Pods {
		p.createPod(v, replica, attempt, i, block, nodes)
	}
	if len(nodes) > 0 {
		p.event(corev1.EventTypeWarning, v1alpha1.ReasonNodeAvoided, fmt.Sprintf("%s %d is started for attempt %d, and not on %s, which rejected it %d times or more: %s",
			s.role, replica, attempt, strings.Join(nodes, ", "), rejectionsToAvoid, s.book.find(v.hash, replica).Reason))
	}
	if attempt > 0 {
		p.note(Progressing, v1alpha1.ReasonRecovering, fmt.Sprintf("%s %d is started for attempt %d%s", s.role, replica, attempt, s.leaving(v.hash, replica)))
	}
}

// leaving is why pods of a replica go that have not ended by themselves: somebody has
// deleted them. Of the others the book tells.
func (s *roleState) leaving(revision string, replica int) string {
	why := ""
	for _, g := range s.groups {
		if g.revision == revision && g.replica == replica && g.state == ended && !g.gaveUp() {
			why = ": " + g.reason
		}
	}
	return why
}

// nextAttempt is one above the highest attempt that pods or the status know of.
func (s *roleState) nextAttempt(revision string, replica int) int {
	next := 0
	if e := s.book.find(revision, replica); e != nil {
		next = value(e.NextAttempt)
	}
	for _, g := range s.groups {
		if g.revision == revision && g.replica == replica {
			next = max(next, g.attempt+1)
		}
	}
	return next
}

func (p *planner) createPod(v *revision, replica, attempt, index, block int, nodes []string) {
	pod, err := v.pod(p.pool, replica, attempt, index, block)
	if err != nil {
		p.note(Blocked, v1alpha1.ReasonInvalidSpec, err.Error())
		return
	}
	avoid(pod, nodes)
	p.create(pod)
	p.note(Progressing, v1alpha1.ReasonCreating, fmt.Sprintf("pod %s is created", pod.Name))
}

// retire removes an instance for good: it is not made anew in its revision.
func (p *planner) retire(s *roleState, g *group, reason, why string) {
	p.event(corev1.EventTypeNormal, reason, fmt.Sprintf("%s of revision %s is removed: %s", g, g.revision, why))
	p.note(Progressing, v1alpha1.ReasonRemoving, fmt.Sprintf("%s of revision %s is removed", g, g.revision))
	p.remove(g)
	s.book.drop(g.revision, g.replica)
	if g.revision != s.hash {
		p.rollout = v1alpha1.RolloutStatus{YieldTime: stamp(p.seen.Now)} // its devices come free
	}
}
