package pdpool

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// Compute decides what to do about a pool. A pool with a deletionTimestamp gets an
// empty plan: its children go by their owner references.
//
// It works from what the API holds alone. One call does what can be done at once
// and leaves the rest to the next, which the watches or RequeueAfter bring about;
// two calls on the same state give the same plan.
func Compute(pool *v1alpha1.PDPool, seen Observed, d Defaults) Plan {
	if pool.DeletionTimestamp != nil {
		return Plan{Outcome: Waiting, Reason: v1alpha1.ReasonDeleting, Message: "the pool is being deleted"}
	}
	p := newPlanner(pool, seen, d)
	p.record()
	p.recordRouter()
	p.applyChildren()
	for _, s := range p.roles() {
		p.keepBooks(s)
	}
	p.roll()
	p.prune()
	p.provideKey()
	p.countDevices()
	return p.finish()
}

// planner is one computation.
type planner struct {
	pool     *v1alpha1.PDPool
	seen     Observed
	defaults Defaults
	resolved Resolved
	problems []kvlayout.Problem
	prefill  *roleState
	decode   *roleState
	router   *routerRecord // nil until the revision is recorded
	ports    *blocks
	number   int64 // of the next revision
	mode     mode
	recorded bool // a role's revision is written by this plan
	yields   bool // an instance gives way to one of the other role, now or soon
	rollout  v1alpha1.RolloutStatus
	gpus     gpuVerdict
	notes    []note
	plan     Plan
}

// roleState is one role as seen, and what is known of it.
type roleState struct {
	role   kvlayout.Role
	side   *Side
	hash   string // of the revision that the spec asks for
	all    []revision
	now    *revision // that revision; nil until it is recorded
	groups []*group
	book   *book
}

func newPlanner(pool *v1alpha1.PDPool, seen Observed, d Defaults) *planner {
	p := &planner{
		pool: pool, seen: seen, defaults: d,
		resolved: Resolve(pool, d),
		problems: Check(pool),
		ports:    newBlocks(d.Ports, seen.PortBlocks),
		number:   nextNumber(seen.ControllerRevisions),
		rollout: v1alpha1.RolloutStatus{
			YieldTime: notAfter(pool.Status.Rollout.YieldTime, seen.Now),
			FreedTime: notAfter(pool.Status.Rollout.FreedTime, seen.Now),
		},
	}
	p.prefill = p.newRoleState(kvlayout.Prefill, pool.Status.Prefill)
	p.decode = p.newRoleState(kvlayout.Decode, pool.Status.Decode)
	p.resolved.Router.Registrations = p.registers()
	return p
}

func (p *planner) newRoleState(role kvlayout.Role, status v1alpha1.RoleStatus) *roleState {
	s := &roleState{
		role:   role,
		side:   p.resolved.Side(role),
		hash:   p.resolved.roleRevision(&p.pool.Spec, role),
		all:    revisionsOf(p.seen.ControllerRevisions, role),
		groups: groupsOf(p.seen.Pods, role),
		book:   newBook(status, p.seen.Now),
	}
	for _, g := range s.groups {
		if g.gone && s.book.holds(g) {
			// Pods that never were are no loss, and to make the others anew would
			// only have them wait for the same pod again.
			g.state = partial
		}
	}
	s.now = s.revision(s.hash)
	return s
}

// roles are decode and prefill, in the order in which they roll.
func (p *planner) roles() []*roleState { return []*roleState{p.decode, p.prefill} }

func (s *roleState) revision(hash string) *revision {
	for i := range s.all {
		if s.all[i].hash == hash {
			return &s.all[i]
		}
	}
	return nil
}

// replicas is the number of replicas that the spec asks for.
func (s *roleState) replicas() int { return s.side.Replicas }

// current is the living group of a replica in the revision that the spec asks for.
func (s *roleState) current(replica int) *group {
	for _, g := range s.groups {
		if g.alive() && g.replica == replica && g.revision == s.hash {
			return g
		}
	}
	return nil
}

// older are the living groups of a replica in other revisions.
func (s *roleState) older(replica int) []*group {
	var out []*group
	for _, g := range s.groups {
		if g.alive() && g.replica == replica && g.revision != s.hash {
			out = append(out, g)
		}
	}
	return out
}

// record keeps the revisions that the spec asks for. Pods are only made from a
// revision that was seen, so that what they are made of is never lost.
func (p *planner) record() {
	for _, s := range p.roles() {
		if s.now != nil {
			continue
		}
		rec, err := p.resolved.newRecord(p.pool, s.role, p.defaults)
		if err == nil {
			// A trial, since what can't make a pod must not be recorded.
			v := revision{hash: s.hash, record: rec}
			_, err = v.pod(p.pool, 0, 0, 0, p.ports.span.First)
		}
		if err != nil {
			p.note(Blocked, v1alpha1.ReasonInvalidSpec, err.Error())
			continue
		}
		p.recorded = true
		p.create(controllerRevision(p.pool, string(s.role), s.hash, p.resolved.pairing, p.number, rec))
		p.note(Progressing, v1alpha1.ReasonCreating, fmt.Sprintf("revision %s of %s is recorded", s.hash, s.role))
	}
}

// keepBooks notes what became of each group, and removes the pods of those that
// have failed once the status remembers it.
func (p *planner) keepBooks(s *roleState) {
	now := p.seen.Now
	for _, g := range s.groups {
		switch g.state {
		case ready:
			s.book.whole(g)
			p.keepReady(s, g)
		case failed:
			if s.book.ends(g) {
				s.book.fails(g, now)
				p.event(corev1.EventTypeWarning, v1alpha1.ReasonRecovering, fmt.Sprintf("%s has failed in attempt %d: %s", g, g.attempt, g.reason))
				p.again(time.Second)
				continue
			}
			p.remove(g)
		case broken:
			if s.book.ends(g) {
				p.event(corev1.EventTypeWarning, v1alpha1.ReasonRecovering, fmt.Sprintf("%s is made anew as a whole: %s", g, g.reason))
				p.again(time.Second)
				continue
			}
			p.remove(g)
		case ended:
			if g.revision == s.hash || s.book.find(g.revision, g.replica) != nil {
				s.book.ends(g)
			}
		case starting:
			s.book.whole(g)
			p.relent(s, g)
		case partial:
		}
	}
	p.removeDoubles(s)
}

func (p *planner) keepReady(s *roleState, g *group) {
	e := s.book.entry(g.revision, g.replica)
	if e.ReadyTime == nil {
		e.ReadyTime = stamp(p.seen.Now)
	}
	e.AgentImage = clip(agentImage(g.pods[0]), maxReason)
	if e.LastFailureTime == nil {
		return
	}
	if left := e.LastFailureTime.Add(stable).Sub(p.seen.Now); left > 0 {
		p.again(left)
		return
	}
	e.Failures, e.LastFailureTime, e.Reason, e.Node, e.Rejections = nil, nil, "", "", nil
}

func agentImage(pod *corev1.Pod) string {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == v1alpha1.ContainerAgent {
			return c.Image
		}
	}
	return ""
}

// removeDoubles leaves one living group of a replica and revision, the newest.
// There are never two unless somebody else made pods with our labels.
func (p *planner) removeDoubles(s *roleState) {
	for i, g := range s.groups {
		for _, newer := range s.groups[i+1:] {
			if g.alive() && newer.alive() && g.revision == newer.revision && g.replica == newer.replica {
				p.remove(g)
			}
		}
	}
}

// prune forgets replicas and revisions that are of no use any more.
func (p *planner) prune() {
	for _, s := range p.roles() {
		s.book.entries = slices.DeleteFunc(s.book.entries, func(e v1alpha1.InstanceStatus) bool {
			kept := e.Revision == s.hash || e.ReadyTime != nil || p.hasPods(s, e.Revision)
			return value(e.Replica) >= s.replicas() || s.revision(e.Revision) == nil && e.Revision != s.hash || !kept
		})
		s.book.sort()
		for i := range p.seen.ControllerRevisions {
			c := &p.seen.ControllerRevisions[i]
			if c.Labels[v1alpha1.LabelRole] == string(s.role) && p.unused(s, c) {
				p.plan.Delete = append(p.plan.Delete, c)
			}
		}
	}
}

// unused says whether nothing is, or will be, made from a recorded revision.
func (p *planner) unused(s *roleState, c *appsv1.ControllerRevision) bool {
	hash := c.Labels[v1alpha1.LabelRevision]
	switch {
	case c.DeletionTimestamp != nil:
		return false
	case s.revision(hash) == nil: // unreadable: rendered anew if it is wanted
		return true
	case hash == s.hash || s.now == nil || p.hasPods(s, hash):
		return false
	}
	return !slices.ContainsFunc(s.book.entries, func(e v1alpha1.InstanceStatus) bool { return e.Revision == hash })
}

func (p *planner) hasPods(s *roleState, revision string) bool {
	return slices.ContainsFunc(s.groups, func(g *group) bool { return g.revision == revision })
}

func (p *planner) create(o Object) { p.plan.Create = append(p.plan.Create, o) }

// remove deletes the pods of a group that are not being deleted yet.
func (p *planner) remove(g *group) {
	for _, pod := range g.pods {
		if pod.DeletionTimestamp == nil {
			p.plan.Delete = append(p.plan.Delete, pod)
			p.note(Progressing, v1alpha1.ReasonRemoving, fmt.Sprintf("pod %s is removed", pod.Name))
		}
	}
	g.state = ended
}

// again makes the next look happen within d.
func (p *planner) again(d time.Duration) {
	if p.plan.RequeueAfter == 0 || d < p.plan.RequeueAfter {
		p.plan.RequeueAfter = d
	}
}

func (p *planner) event(kind, reason, message string) {
	p.plan.Events = append(p.plan.Events, Event{Type: kind, Reason: reason, Message: clip(message, maxNote)})
}
