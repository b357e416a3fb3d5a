package pdpool

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lapseWithin is how long after the end of a container its pod may still count as ready.
const lapseWithin = 10 * time.Second

// lapseOf is what keeps a pod from being ready that has been; of one that still starts
// it is empty. A pod becomes ready after its sidecar has started, which is when it counts
// as initialized, so that only the loss of readiness comes later than that.
func lapseOf(p *corev1.Pod) string {
	isReady, initialized := podCondition(p, corev1.PodReady), podCondition(p, corev1.PodInitialized)
	if isReady == nil || initialized == nil || initialized.Status != corev1.ConditionTrue || !isReady.LastTransitionTime.After(initialized.LastTransitionTime.Time) {
		return ""
	}
	since := isReady.LastTransitionTime.Time
	what := ""
	if podIs(p, corev1.ContainersReady) {
		what = "the node does not answer"
		if isReady.Message != "" {
			what = isReady.Message
		}
	} else {
		what = lapsedContainer(p, since)
	}
	return sentence("pod %s on node %s since %s: %s", p.Name, p.Spec.NodeName, clock(since), what)
}

// lapsedContainer tells of the container that is not ready, of the engine's first: the
// agent is not ready either while its engine is not. Only sidecars are started again:
// with the engine its pod ends, once the agent has.
func lapsedContainer(p *corev1.Pod, since time.Time) string {
	for i, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		if c.Ready {
			continue
		}
		t := c.State.Terminated
		if last := c.LastTerminationState.Terminated; t == nil && last != nil && !last.FinishedAt.Time.Before(since.Add(-lapseWithin)) {
			t = last
		}
		sidecar := i >= len(p.Status.ContainerStatuses)
		switch {
		case t != nil && sidecar:
			return fmt.Sprintf("container %s has ended with exit code %d and is started again", c.Name, t.ExitCode)
		case t != nil:
			return fmt.Sprintf("container %s has ended with exit code %d", c.Name, t.ExitCode)
		}
		return fmt.Sprintf("container %s fails its readiness probe", c.Name)
	}
	return "it has not said why"
}

// deletionOf says that a pod was deleted, and why where Kubernetes itself did it: an
// eviction, a lost node, a pod of a higher priority.
func deletionOf(p *corev1.Pod) string {
	if c := podCondition(p, corev1.DisruptionTarget); c != nil && c.Status == corev1.ConditionTrue {
		return sentence("pod %s on node %s was deleted: %s%s", p.Name, p.Spec.NodeName, c.Reason, said(c.Message))
	}
	return fmt.Sprintf("pod %s was deleted", p.Name)
}
