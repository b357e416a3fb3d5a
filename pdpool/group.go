package pdpool

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// state is how a group is.
type state int

const (
	// ended: all its pods are being deleted. It does not occupy its replica, though
	// its devices and names are taken until they are gone.
	ended state = iota
	// failed: a pod has ended by itself, or is gone after others have started.
	failed
	// broken: a pod is being deleted.
	broken
	// partial: pods are missing and none has started, or the server refused them: the
	// rest can still be created.
	partial
	// starting: all pods are there, not all are ready.
	starting
	// ready: all pods are ready.
	ready
)

// group is the pods of one attempt at a replica. It lives and dies as one.
type group struct {
	role     kvlayout.Role
	revision string
	replica  int
	attempt  int
	size     int // pods wanted
	pods     []*corev1.Pod
	state    state
	// unschedulable is what the scheduler says of a pod that it finds no node for;
	// image what the kubelet says of an image that it can't pull.
	unschedulable string
	image         string
	// reason and node tell of the failure of a failed or broken group.
	reason, node string
	// gone says that the group failed by nothing but pods that are not there.
	gone bool
}

// alive says whether the group occupies its replica.
func (g *group) alive() bool { return g.state >= partial }

func (g *group) String() string { return fmt.Sprintf("%s %d", g.role, g.replica) }

// block is the first of the group's ports.
func (g *group) block() (int, bool) {
	for _, p := range g.pods {
		if b, ok := PortBlock(p); ok {
			return b, true
		}
	}
	return 0, false
}

// age is the time since the first pod of the group was created.
func (g *group) age(now time.Time) time.Duration {
	age := time.Duration(0)
	for _, p := range g.pods {
		age = max(age, now.Sub(p.CreationTimestamp.Time))
	}
	return age
}

// has says whether the group has a pod of that index.
func (g *group) has(index int) bool {
	return slices.ContainsFunc(g.pods, func(p *corev1.Pod) bool { return p.Labels[v1alpha1.LabelPod] == strconv.Itoa(index) })
}

// groupsOf sorts the pods of a role into groups, by revision, replica and attempt.
// Pods whose labels the operator did not write are left alone.
func groupsOf(pods []corev1.Pod, role kvlayout.Role) []*group {
	type key struct {
		revision         string
		replica, attempt int
	}
	found := map[key]*group{}
	var out []*group
	for i := range pods {
		p := &pods[i]
		replica, errR := strconv.Atoi(p.Labels[v1alpha1.LabelReplica])
		attempt, errA := strconv.Atoi(p.Labels[v1alpha1.LabelAttempt])
		size, errS := strconv.Atoi(p.Annotations[v1alpha1.AnnotationPods])
		if p.Labels[v1alpha1.LabelRole] != string(role) || errR != nil || errA != nil || errS != nil {
			continue
		}
		k := key{p.Labels[v1alpha1.LabelRevision], replica, attempt}
		g := found[k]
		if g == nil {
			g = &group{role: role, revision: k.revision, replica: replica, attempt: attempt, size: size}
			found[k] = g
			out = append(out, g)
		}
		g.pods = append(g.pods, p)
	}
	slices.SortFunc(out, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), a.replica-b.replica, a.attempt-b.attempt)
	})
	for _, g := range out {
		slices.SortFunc(g.pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
		g.judge()
	}
	return out
}

// judge works out the state of the group from its pods.
func (g *group) judge() {
	deleting, isReady, started := 0, 0, false
	for _, p := range g.pods {
		started = started || p.Status.Phase != corev1.PodPending && p.Status.Phase != ""
		switch {
		case p.DeletionTimestamp != nil:
			deleting++
			g.reason = fmt.Sprintf("pod %s was deleted", p.Name)
		case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
			g.state = failed
			g.reason, g.node = failureOf(p), p.Spec.NodeName
		case podReady(p):
			isReady++
		default:
			g.lookAtPending(p)
		}
	}
	missing := g.size - len(g.pods)
	switch {
	case deleting == len(g.pods):
		g.state = ended
	case g.state == failed:
	case deleting > 0:
		g.state = broken
	case missing > 0 && started:
		g.state, g.gone = failed, true
		g.reason = fmt.Sprintf("%d of %d pods are gone", missing, g.size)
	case missing > 0:
		g.state = partial
	case isReady == len(g.pods):
		g.state = ready
	default:
		g.state = starting
	}
}

func (g *group) lookAtPending(p *corev1.Pod) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			g.unschedulable = fmt.Sprintf("pod %s: %s", p.Name, c.Message)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Waiting == nil {
			continue
		}
		switch c.State.Waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			g.image = fmt.Sprintf("pod %s on node %s: image %s: %s", p.Name, p.Spec.NodeName, c.Image, c.State.Waiting.Reason)
		}
	}
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// failureOf is why a pod has ended, in one sentence.
func failureOf(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		t := c.State.Terminated
		if t == nil || (t.ExitCode == 0 && p.Status.Phase == corev1.PodFailed) {
			continue
		}
		said := ""
		if words := strings.TrimSpace(t.Message); words != "" {
			said = ": " + lastLine(words)
		}
		return bounded(fmt.Sprintf("container %s of pod %s ended with exit code %d (%s)%s", c.Name, p.Name, t.ExitCode, t.Reason, said))
	}
	if p.Status.Reason != "" {
		return bounded(fmt.Sprintf("pod %s ended: %s: %s", p.Name, p.Status.Reason, p.Status.Message))
	}
	return bounded(fmt.Sprintf("pod %s ended in phase %s", p.Name, p.Status.Phase))
}

// lastLine is where a program says why it ends.
func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

// maxReason is what the status keeps of a sentence.
const maxReason = 512

func bounded(s string) string {
	r := []rune(s)
	if len(r) <= maxReason {
		return s
	}
	return string(r[:maxReason-1]) + "…"
}

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

func newBook(status v1alpha1.RoleStatus) *book {
	b := &book{}
	for _, e := range status.Instances {
		b.entries = append(b.entries, *e.DeepCopy())
	}
	return b
}

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

// fails notes that an attempt has failed, with the wait that follows from it.
func (b *book) fails(g *group, now time.Time) {
	e := b.entry(g.revision, g.replica)
	n := value(e.Failures) + 1
	if g.age(now) >= stable {
		n = 1
	}
	e.Failures = new(int32(n))
	e.LastFailureTime = new(metav1.NewTime(now.Truncate(time.Second)))
	e.Reason, e.Node = bounded(g.reason), g.node
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
