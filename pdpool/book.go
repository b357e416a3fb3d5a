package pdpool

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// maxReason is what the status keeps of a sentence, in bytes.
const maxReason = 512

// Back-off between attempts at a replica.
const (
	firstBackOff = 10 * time.Second
	longBackOff  = 5 * time.Minute
	// stable is how long an attempt has to last for its failure to be the first.
	stable = 10 * time.Minute
)

// backOff is the wait after a number of failures in a row. The first costs none:
// most are the loss of a node or a process, not a pod that can't run.
func backOff(failures int) time.Duration {
	if failures < 2 {
		return 0
	}
	return min(firstBackOff<<min(failures-2, 10), longBackOff)
}

// book is what the status remembers of the replicas of a role.
type book struct {
	entries []v1alpha1.InstanceStatus
}

// newBook opens the book. Times that lie ahead were written by a clock that was
// wrong, or this one is: they count as now, so that no wait lasts longer than it may.
func newBook(status v1alpha1.RoleStatus, now time.Time) *book {
	b := &book{}
	for _, e := range status.Instances {
		e := e.DeepCopy()
		e.LastFailureTime, e.ReadyTime = notAfter(e.LastFailureTime, now), notAfter(e.ReadyTime, now)
		for i := range e.Rejections {
			e.Rejections[i].LastTime = notAfter(e.Rejections[i].LastTime, now)
		}
		b.entries = append(b.entries, *e)
	}
	return b
}

// notAfter is t, or now where t is later.
func notAfter(t *metav1.Time, now time.Time) *metav1.Time {
	if t == nil || !t.After(now) {
		return t
	}
	return stamp(now)
}

// clock is a time for people. What changes with each look must not stand in the
// status, since each write of it brings another look.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// stamp is a time as the API keeps it.
func stamp(t time.Time) *metav1.Time { return new(metav1.NewTime(t.Truncate(time.Second))) }

func (b *book) find(revision string, replica int) *v1alpha1.InstanceStatus {
	for i := range b.entries {
		if e := &b.entries[i]; e.Revision == revision && value(e.Replica) == replica {
			return e
		}
	}
	return nil
}

// entry finds or makes an entry. The pointer holds until the next call.
func (b *book) entry(revision string, replica int) *v1alpha1.InstanceStatus {
	if e := b.find(revision, replica); e != nil {
		return e
	}
	b.entries = append(b.entries, v1alpha1.InstanceStatus{
		Revision: revision, Replica: new(int32(replica)), NextAttempt: new(int32(0)),
	})
	return &b.entries[len(b.entries)-1]
}

func (b *book) sort() {
	slices.SortFunc(b.entries, func(a, b v1alpha1.InstanceStatus) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), value(a.Replica)-value(b.Replica))
	})
}

func (b *book) drop(revision string, replica int) {
	b.entries = slices.DeleteFunc(b.entries, func(e v1alpha1.InstanceStatus) bool {
		return e.Revision == revision && value(e.Replica) == replica
	})
}

// served says whether the replica of that revision has been ready.
func (b *book) served(revision string, replica int) bool {
	e := b.find(revision, replica)
	return e != nil && e.ReadyTime != nil
}

// ends notes that an attempt has ended; true if that was not known.
func (b *book) ends(g *group) bool {
	e := b.entry(g.revision, g.replica)
	if value(e.NextAttempt) > g.attempt {
		return false
	}
	e.NextAttempt, e.Refused = new(int32(g.attempt+1)), ""
	return true
}

// holds says whether the server refused the pods that a living attempt lacks.
func (b *book) holds(g *group) bool {
	e := b.find(g.revision, g.replica)
	return e != nil && e.Refused != "" && value(e.NextAttempt) <= g.attempt
}

// whole notes that no pod of an attempt is missing.
func (b *book) whole(g *group) {
	if e := b.find(g.revision, g.replica); e != nil {
		e.Refused = ""
	}
}

// fails notes that an attempt has failed, with the wait that follows from it. How
// long it lasted is told by the failure before it: all clocks but the manager's may
// be other ones.
func (b *book) fails(g *group, now time.Time) {
	e := b.entry(g.revision, g.replica)
	n := value(e.Failures) + 1
	if e.LastFailureTime == nil || now.Sub(e.LastFailureTime.Time) >= stable+backOff(n-1) {
		n = 1
	}
	e.Failures, e.LastFailureTime = new(int32(n)), stamp(now)
	e.Reason, e.Node = clip(g.reason, maxReason), g.node
	if g.rejected {
		reject(e, g.node, now)
	}
}

// wait is how long the next attempt at a replica has to wait still.
func (b *book) wait(revision string, replica int, now time.Time) time.Duration {
	e := b.find(revision, replica)
	if e == nil || e.LastFailureTime == nil {
		return 0
	}
	return max(0, e.LastFailureTime.Add(backOff(value(e.Failures))).Sub(now))
}

func value(p *int32) int {
	if p == nil {
		return 0
	}
	return int(*p)
}
