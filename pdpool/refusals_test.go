package pdpool

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

func twoDecodePods(p *v1alpha1.PDPool) {
	p.Spec.Model.Name = "deepseek-ai/DeepSeek-V2-Lite"
	p.Spec.Decode.Layout = v1alpha1.LayoutSpec{TP: 2, DP: 4, DPLocal: 2}
}

func secondPod(p *corev1.Pod) bool {
	return p.Labels[v1alpha1.LabelRole] == v1alpha1.RoleDecode && p.Labels[v1alpha1.LabelPod] == "1"
}

// TestRefusedMemberIsWaitedFor holds that the first pod stays as it is, ready or
// not, until the second one is let in.
func TestRefusedMemberIsWaitedFor(t *testing.T) {
	c := newCluster(t, simulatorPool(t, twoDecodePods), 24)
	c.refuse = secondPod
	c.steps(120)
	if got := c.attempts(); got["decode 0"] != "0" || len(c.pods()) != 2 {
		t.Fatalf("pods %v\n%s", c.names(), strings.Join(c.log, "\n"))
	}
	if e := c.pool.Status.Decode.Instances; len(e) != 1 || !strings.Contains(e[0].Refused, "exceeded quota") || e[0].Failures != nil {
		t.Errorf("instances %+v", e)
	}
	if got := c.reason(v1alpha1.ConditionReady); got != v1alpha1.ReasonRefused {
		t.Errorf("reason %s", got)
	}
	if strings.Contains(strings.Join(c.log, "\n"), v1alpha1.ReasonRecovering) {
		t.Errorf("events %v", c.log)
	}
	c.refuse = func(*corev1.Pod) bool { return false }
	c.run(30)
	if got := c.attempts(); got["decode 0"] != "0" || len(c.pods()) != 3 || c.pool.Status.Decode.Instances[0].Refused != "" {
		t.Errorf("pods %v, instances %+v", c.names(), c.pool.Status.Decode.Instances)
	}
}

// TestGroupThatLosesPodsBacksOff holds that a group whose pods vanish again and
// again is no busy loop.
func TestGroupThatLosesPodsBacksOff(t *testing.T) {
	c := newCluster(t, simulatorPool(t, twoDecodePods), 24)
	made := map[string]bool{}
	for range 600 {
		c.steps(1)
		for _, p := range c.pods() {
			made[p.Name] = true
			if secondPod(p) && podReady(p) {
				delete(c.objects, childKey(p))
			}
		}
	}
	if len(made) > 24 {
		t.Errorf("%d pods in ten minutes", len(made))
	}
	if e := c.pool.Status.Decode.Instances; len(e) != 1 || value(e[0].Failures) < 3 {
		t.Errorf("instances %+v", e)
	}
}

// TestRefusedMemberOfEndedAttempt holds that a first pod that gives up waiting
// counts as a failure like any other.
func TestRefusedMemberOfEndedAttempt(t *testing.T) {
	c := newCluster(t, simulatorPool(t, twoDecodePods), 24)
	c.refuse = secondPod
	made := map[string]bool{}
	for range 600 {
		c.steps(1)
		for _, p := range c.pods() {
			if made[p.Name] = true; p.Labels[v1alpha1.LabelRole] == v1alpha1.RoleDecode && podReady(p) {
				c.fail(p)
			}
		}
	}
	if len(made) > 12 {
		t.Errorf("%d pods in ten minutes", len(made))
	}
}
