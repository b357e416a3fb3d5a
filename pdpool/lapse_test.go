package pdpool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// TestLapse holds what is said of a pod that was ready and is not any more.
func TestLapse(t *testing.T) {
	noon := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	condition := func(kind corev1.PodConditionType, is corev1.ConditionStatus, after time.Duration) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: is, LastTransitionTime: metav1.NewTime(noon.Add(after))}
	}
	container := func(name string, isReady bool, endedAfter time.Duration) corev1.ContainerStatus {
		c := corev1.ContainerStatus{Name: name, Ready: isReady}
		if endedAfter > 0 {
			c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: metav1.NewTime(noon.Add(endedAfter))}
		}
		return c
	}
	dead := container("agent", false, 0)
	dead.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137}
	ended := container("engine", false, 0)
	ended.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	const at = "pod p on node n since 12:10:00 UTC: "
	for name, c := range map[string]struct {
		lost          time.Duration // since when it is not ready, after its agent has started
		containers    corev1.ConditionStatus
		engine, agent corev1.ContainerStatus
		want          string
	}{
		"starting":                  {-time.Second, corev1.ConditionFalse, container("engine", false, 0), container("agent", false, 0), ""},
		"starting within a second":  {0, corev1.ConditionFalse, container("engine", false, 0), container("agent", false, 0), ""},
		"engine frozen":             {10 * time.Minute, corev1.ConditionFalse, container("engine", false, 0), container("agent", false, 0), at + "container engine fails its readiness probe"},
		"engine ended":              {10 * time.Minute, corev1.ConditionFalse, ended, container("agent", false, 0), at + "container engine has ended with exit code 1"},
		"agent frozen":              {10 * time.Minute, corev1.ConditionFalse, container("engine", true, 0), container("agent", false, 0), at + "container agent fails its readiness probe"},
		"agent killed":              {10 * time.Minute, corev1.ConditionFalse, container("engine", true, 0), container("agent", false, 599*time.Second), at + "container agent has ended with exit code 137 and is started again"},
		"agent dead":                {10 * time.Minute, corev1.ConditionFalse, container("engine", true, 0), dead, at + "container agent has ended with exit code 137 and is started again"},
		"agent killed by its probe": {10 * time.Minute, corev1.ConditionFalse, container("engine", true, 0), container("agent", false, 11*time.Minute), at + "container agent has ended with exit code 137 and is started again"},
		"agent killed long before":  {10 * time.Minute, corev1.ConditionFalse, container("engine", false, 0), container("agent", true, time.Minute), at + "container engine fails its readiness probe"},
		"node lost":                 {10 * time.Minute, corev1.ConditionTrue, container("engine", true, 0), container("agent", true, 0), at + "the node does not answer"},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}
		p.Status.Conditions = []corev1.PodCondition{
			condition(corev1.PodInitialized, corev1.ConditionTrue, 0), condition(corev1.PodReady, corev1.ConditionFalse, c.lost),
			condition(corev1.ContainersReady, c.containers, 0),
		}
		p.Status.ContainerStatuses, p.Status.InitContainerStatuses = []corev1.ContainerStatus{c.engine}, []corev1.ContainerStatus{c.agent}
		if got := lapseOf(p); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := lapseOf(&corev1.Pod{}); got != "" {
		t.Errorf("a pod without conditions: %q", got)
	}
}

// TestLapseIsTold holds that a pool does not call an instance starting that has served.
func TestLapseIsTold(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	for _, p := range c.decoding() {
		c.condition(p, corev1.PodInitialized, corev1.ConditionTrue, "")
		c.now = c.now.Add(time.Minute)
		c.condition(p, corev1.PodReady, corev1.ConditionFalse, "")
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "engine"}}
	}
	plan := c.reconcile()
	if plan.Reason != v1alpha1.ReasonNotReady || plan.Outcome != Waiting {
		t.Errorf("reason %s, outcome %s: %s", plan.Reason, plan.Outcome, plan.Message)
	}
}

// TestDisruptionIsTold holds that the next attempt tells why Kubernetes took the last one.
func TestDisruptionIsTold(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	for _, p := range c.decoding() {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		c.terminate(p)
		want := "decode 0 is started for attempt 1: pod " + p.Name + " on node node-1 was deleted: EvictionByEvictionAPI: Eviction API: evicting"
		if plan := c.reconcile(); plan.Message != want {
			t.Errorf("message %q, want %q", plan.Message, want)
		}
	}
}
