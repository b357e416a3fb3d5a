package pdpool

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
	// image what the kubelet says of an image that it can't pull; stuck what it says of
	// a container that it can't start or that ends again and again.
	unschedulable string
	image         string
	stuck         string
	// lapsed is what keeps a pod from being ready that has been.
	lapsed string
	// reason and node tell of the failure of a failed or broken group; rejected says
	// that the node did not let the pod in.
	reason, node string
	rejected     bool
	// gone says that the group failed by nothing but pods that are not there.
	gone bool
}

// alive says whether the group occupies its replica.
func (g *group) alive() bool { return g.state >= partial }

// gaveUp says whether a pod of the group has ended by itself.
func (g *group) gaveUp() bool {
	return slices.ContainsFunc(g.pods, func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	})
}

// hangs says whether a pod waits for what does not come by itself.
func (g *group) hangs() bool { return g.unschedulable != "" || g.image != "" || g.stuck != "" }

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
			g.reason = deletionOf(p)
		case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
			g.state = failed
			g.reason, g.node, g.rejected = failureOf(p), p.Spec.NodeName, rejected(p)
		case podReady(p):
			isReady++
		default:
			g.lookAtPending(p)
			g.lapsed = cmp.Or(g.lapsed, lapseOf(p))
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
	if c := podCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		g.unschedulable = fmt.Sprintf("pod %s: %s", p.Name, c.Message)
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.State.Waiting == nil {
			continue
		}
		switch c.State.Waiting.Reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			g.image = fmt.Sprintf("pod %s on node %s: image %s: %s", p.Name, p.Spec.NodeName, c.Image, c.State.Waiting.Reason)
		case "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			g.stuck = sentence("container %s of pod %s on node %s: %s%s", c.Name, p.Name, p.Spec.NodeName, c.State.Waiting.Reason, lastWords(&c))
		}
	}
}

// lastWords is why a container that waits does not run.
func lastWords(c *corev1.ContainerStatus) string {
	t := c.LastTerminationState.Terminated
	if t == nil {
		return said(c.State.Waiting.Message)
	}
	return fmt.Sprintf(": it ended %d times, at last with exit code %d%s", c.RestartCount, t.ExitCode, said(t.Message))
}

func said(words string) string {
	if words = strings.TrimSpace(words); words == "" {
		return ""
	}
	return ": " + lastLine(words)
}

// rejected says that a node did not let a pod in: it has failed, and no container of
// it was ever made.
func rejected(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason != "" && p.Spec.NodeName != "" &&
		!slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(c corev1.ContainerStatus) bool {
			return c.ContainerID != ""
		})
}

func podReady(p *corev1.Pod) bool { return podIs(p, corev1.PodReady) }

// podCondition is a condition of a pod; nil where it has none of that kind.
func podCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// podIs says that a condition of a pod is true.
func podIs(p *corev1.Pod, kind corev1.PodConditionType) bool {
	c := podCondition(p, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

// failureOf is why a pod has ended, in one sentence.
func failureOf(p *corev1.Pod) string {
	if p.Status.Reason != "" {
		// The node ended it (Evicted, for one); exit codes only follow from that.
		return sentence("pod %s on node %s ended: %s%s", p.Name, p.Spec.NodeName, p.Status.Reason, said(p.Status.Message))
	}
	for _, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		t := c.State.Terminated
		if t == nil || (t.ExitCode == 0 && p.Status.Phase == corev1.PodFailed) {
			continue
		}
		return sentence("container %s of pod %s ended with exit code %d (%s)%s", c.Name, p.Name, t.ExitCode, t.Reason, said(t.Message))
	}
	return sentence("pod %s ended in phase %s", p.Name, p.Status.Phase)
}

// sentence is one that the status has room for.
func sentence(format string, args ...any) string {
	return clip(fmt.Sprintf(format, args...), maxReason)
}

// lastLine is where a program says why it ends.
func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }
