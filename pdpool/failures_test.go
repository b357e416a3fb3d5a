package pdpool

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// reject has the kubelet of a node turn a pod away, as one with a broken device does.
func (c *cluster) reject(p *corev1.Pod) {
	p.Status = corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError",
		Message: "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices amd.com/gpu, which is unexpected",
	}
}

// decoding are the decode pods that are there for good.
func (c *cluster) decoding() []*corev1.Pod {
	return slices.DeleteFunc(c.pods(), func(p *corev1.Pod) bool {
		return p.Labels[v1alpha1.LabelRole] != "decode" || p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodFailed
	})
}

// TestNodeThatRejectsPodsIsAvoided holds that pods which a node turns away are
// replaced with back-off and removed, and that the replica keeps off that node.
func TestNodeThatRejectsPodsIsAvoided(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	avoiding, most := false, 0
	for range 100 {
		c.reconcile()
		c.invariants()
		most = max(most, len(c.pods()))
		for _, p := range c.decoding() {
			switch {
			case p.Annotations[v1alpha1.AnnotationAvoids] == "node-1":
				avoiding = true
			case p.Spec.NodeName != "":
				c.reject(p)
			}
		}
		c.turn()
	}
	if !avoiding || most > 4 {
		t.Fatalf("%d pods at most, node avoided: %v\n%s", most, avoiding, strings.Join(c.log, "\n"))
	}
	e := c.pool.Status.Decode.Instances
	if len(e) != 1 || len(e[0].Rejections) != 1 || !strings.Contains(e[0].Reason, "no healthy devices") {
		t.Fatalf("instances %+v", e)
	}
	if r := e[0].Rejections[0]; r.Node != "node-1" || value(r.Count) != 2 {
		t.Errorf("rejections %+v", r)
	}
	if !strings.Contains(strings.Join(c.log, " "), v1alpha1.ReasonNodeAvoided+": decode 0") {
		t.Errorf("nothing told of it:\n%s", strings.Join(c.log, "\n"))
	}
	// Once the replica has been well for long, nothing is held against the node.
	c.steps(int(stable / time.Second))
	if e := c.pool.Status.Decode.Instances; len(e[0].Rejections) != 0 || e[0].Failures != nil {
		t.Errorf("instances %+v", e)
	}
}

// TestAvoidedNodeIsTriedAgain holds that a replica which finds no other node goes
// back to the one that rejected it after a while.
func TestAvoidedNodeIsTriedAgain(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.holdAvoiding = true // there is no other node
	var off []string
	for range 900 {
		plan := c.reconcile()
		for _, p := range c.decoding() {
			switch {
			case p.Annotations[v1alpha1.AnnotationAvoids] != "":
				if !slices.Contains(off, p.Name) {
					off = append(off, p.Name)
				}
				if plan.Reason == v1alpha1.ReasonUnschedulable && !strings.Contains(plan.Message, "node-1") {
					t.Fatalf("message %q", plan.Message)
				}
			case len(off) == 0 && p.Spec.NodeName != "":
				c.reject(p)
			}
		}
		c.turn()
	}
	if len(off) != 1 || !c.isTrue("Ready") {
		t.Errorf("attempts off the node: %v; ready: %v\n%s", off, c.isTrue("Ready"), strings.Join(c.log, "\n"))
	}
}

func TestAvoidKeepsTheUsersTerms(t *testing.T) {
	zone := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	for name, terms := range map[string][]corev1.NodeSelectorTerm{"none": nil, "two": {zone, zone}} {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{}
		if terms != nil {
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: slices.Clone(terms)},
			}}
		}
		avoid(pod, []string{"a", "b"})
		got := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if len(got) != max(1, len(terms)) {
			t.Fatalf("%s: %d terms", name, len(got))
		}
		for _, term := range got {
			if len(term.MatchFields) != 2 || term.MatchFields[0].Values[0] != "a" || term.MatchFields[1].Values[0] != "b" || len(term.MatchExpressions) != min(1, len(terms)) {
				t.Errorf("%s: term %+v", name, term)
			}
		}
	}
}

// TestWhatTheStatusSaysOfAFailure holds that the words which tell the cause reach it.
func TestWhatTheStatusSaysOfAFailure(t *testing.T) {
	ended := func(code int32, words string) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "engine", ContainerID: "c", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Error", Message: words},
		}}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"full disk": {corev1.PodStatus{
			Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: ephemeral-storage. ", ContainerStatuses: ended(137, ""),
		}, "Evicted: The node was low on resource: ephemeral-storage."},
		"crash": {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: ended(1, "loading\nout of memory\n")}, "exit code 1 (Error): out of memory"},
	} {
		cl := newCluster(t, simulatorPool(t), 64)
		cl.run(30)
		cl.decoding()[0].Status = c.status
		cl.steps(2)
		if e := cl.pool.Status.Decode.Instances; len(e) != 1 || !strings.Contains(e[0].Reason, c.want) || e[0].Node != "node-1" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestAgentThatCrashesIsTold holds that a pod whose agent ends again and again stays
// as it is and says why.
func TestAgentThatCrashesIsTold(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	for want, container := range map[string]corev1.ContainerStatus{
		"ended 3 times, at last with exit code 1: agent: no key": {
			Name: v1alpha1.ContainerAgent, RestartCount: 3, State: waiting("CrashLoopBackOff", "back-off 40s"),
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "agent: no key\n"}},
		},
		`configmap "x" not found`: {Name: v1alpha1.ContainerAgent, State: waiting("CreateContainerConfigError", `configmap "x" not found`)},
	} {
		c := newCluster(t, simulatorPool(t), 64)
		c.start = 1000
		c.steps(5)
		for _, p := range c.pods() {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{container}
		}
		plan := c.reconcile()
		if plan.Reason != v1alpha1.ReasonContainerWaiting || !strings.Contains(plan.Message, want) {
			t.Errorf("%s: %s", plan.Reason, plan.Message)
		}
		c.steps(600)
		if got := c.attempts(); got["decode 0"] != "0" {
			t.Errorf("the pod was replaced: %v", got)
		}
	}
}

// TestAgentThatRestartsAloneKeepsItsGroup holds that no pod is replaced, with either mover.
func TestAgentThatRestartsAloneKeepsItsGroup(t *testing.T) {
	for _, pool := range []*v1alpha1.PDPool{simulatorPool(t), vllmPool(t)} {
		c := newCluster(t, pool, 64)
		c.run(30)
		before := c.names()
		for i := range int32(3) {
			for _, p := range c.pods() {
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
					Name: v1alpha1.ContainerAgent, RestartCount: i + 1, ContainerID: "c",
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}},
				}}
				c.condition(p, corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady")
			}
			c.steps(1)
			c.run(60)
		}
		if after := c.names(); !slices.Equal(before, after) {
			t.Errorf("pods %v became %v", before, after)
		}
	}
}

// TestWrongClocks holds what a manager whose clock differs from the API server's, or
// from that of the manager before it, must still do.
func TestWrongClocks(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		c := newCluster(t, simulatorPool(t), 16)
		c.run(30)
		c.skew = skew
		created := 0
		for range 1800 {
			created += podsIn(c.reconcile().Create)
			for _, p := range c.decoding() {
				if podReady(p) {
					c.fail(p)
				}
			}
			c.turn()
		}
		if created < 6 || created > 14 {
			t.Errorf("skew %s: %d attempts in half an hour", skew, created)
		}
		// The next manager's clock is right again: it waits no longer than it would.
		c.skew = 0
		c.run(int(longBackOff/time.Second) + 60)
	}
}

// TestClockAheadGivesUpOnePairAtATime holds that a manager whose clock is ahead does
// not take pods that end in order for pods on a lost node.
func TestClockAheadGivesUpOnePairAtATime(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		c := newCluster(t, simulatorPool(t, replicas(3, 3)), 24)
		c.run(60)
		c.skew, c.drain = skew, 60
		c.check = func(c *cluster) {
			if !c.isTrue("Available") {
				t.Fatalf("skew %s: no pair serves at %s\n%s", skew, c.now, strings.Join(c.log, "\n"))
			}
		}
		c.change(dcp)
		c.run(4 * 3600)
	}
}
