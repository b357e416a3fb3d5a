package pdpool

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// kstatus is what GitOps tools make of a pool.
func kstatus(t *testing.T, pool *v1alpha1.PDPool) status.Status {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pool)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.PDPoolKind))
	result, err := status.Compute(u)
	if err != nil {
		t.Fatal(err)
	}
	return result.Status
}

func TestKstatus(t *testing.T) {
	is := func(t *testing.T, c *cluster, want status.Status) {
		t.Helper()
		if got := kstatus(t, c.pool); got != want {
			t.Errorf("kstatus %s, want %s: %+v", got, want, c.pool.Status.Conditions)
		}
	}
	c := newCluster(t, simulatorPool(t), 64)
	c.pool.Status.ObservedGeneration = -1 // as the CRD has it
	is(t, c, status.InProgressStatus)
	c.steps(1)
	is(t, c, status.InProgressStatus)
	c.steps(2)
	is(t, c, status.InProgressStatus)
	c.run(30)
	is(t, c, status.CurrentStatus)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Replicas = new(int32(2)) })
	is(t, c, status.InProgressStatus)
	c.steps(1)
	is(t, c, status.InProgressStatus)
	c.run(30)
	is(t, c, status.CurrentStatus)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Layout.DCP, s.Prefill.Layout.Interleave = 2, 64 })
	c.steps(5)
	is(t, c, status.FailedStatus)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Layout.DCP, s.Prefill.Layout.Interleave = 1, 0 })
	c.run(30)
	is(t, c, status.CurrentStatus)
	c.pool.DeletionTimestamp = new(metav1.NewTime(c.now))
	is(t, c, status.TerminatingStatus)
}

func TestStatusOfFailedWrites(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason string
		stuck  bool
	}{
		"conflict": {fmt.Errorf("apply: %w", &ConflictError{Kind: "Service", Name: "r1-router"}), v1alpha1.ReasonNameConflict, true},
		"quota":    {errors.Join(errors.New("x"), &RefusedError{Kind: "Pod", Name: "p", Err: errors.New("exceeded quota")}), v1alpha1.ReasonRefused, false},
		"leaving":  {errors.Join(&LeavingError{Kind: "Service", Name: "r1-router"}), v1alpha1.ReasonRemoving, false},
		"other":    {errors.New("connection refused"), v1alpha1.ReasonApplyFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			cl := newCluster(t, simulatorPool(t), 64)
			cl.run(30)
			seen := cl.observed()
			s := Status(cl.pool, seen, Compute(cl.pool, seen, cl.defaults), c.err)
			isReady, stalled := meta.FindStatusCondition(s.Conditions, "Ready"), meta.FindStatusCondition(s.Conditions, "Stalled")
			if isReady.Status != metav1.ConditionFalse || isReady.Reason != c.reason || (stalled != nil) != c.stuck {
				t.Errorf("conditions %+v", s.Conditions)
			}
			if !meta.IsStatusConditionTrue(s.Conditions, "Available") {
				t.Error("a failed write makes the pool unavailable")
			}
		})
	}
}

func TestConditionsKeepTheirTime(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	before := meta.FindStatusCondition(c.pool.Status.Conditions, "Ready").LastTransitionTime
	c.now = c.now.Add(time.Hour)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Router.Replicas = 2 })
	c.run(30)
	isReady := meta.FindStatusCondition(c.pool.Status.Conditions, "Ready")
	if !isReady.LastTransitionTime.Equal(&before) || isReady.ObservedGeneration != c.pool.Generation {
		t.Errorf("condition %+v, was True since %s", isReady, before)
	}
}

func TestTransitions(t *testing.T) {
	condition := func(kind string, is metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: is, Reason: reason, Message: "m"}
	}
	old := v1alpha1.PDPoolStatus{Conditions: []metav1.Condition{
		condition("Available", metav1.ConditionTrue, "Serving"), condition("Ready", metav1.ConditionTrue, "Converged"), condition("Compatible", metav1.ConditionTrue, "RulesHold"),
	}}
	next := v1alpha1.PDPoolStatus{Conditions: []metav1.Condition{
		condition("Available", metav1.ConditionTrue, "Serving"), condition("Ready", metav1.ConditionFalse, "Unschedulable"),
		condition("Compatible", metav1.ConditionTrue, "RulesHold"), condition("Reconciling", metav1.ConditionTrue, "Unschedulable"),
	}}
	got := Transitions(old, next)
	if len(got) != 1 || got[0] != (Event{Type: corev1.EventTypeWarning, Reason: "Unschedulable", Message: "m"}) {
		t.Errorf("events %+v", got)
	}
	broken := v1alpha1.PDPoolStatus{Conditions: []metav1.Condition{
		condition("Compatible", metav1.ConditionFalse, "DcpMix"), condition("Ready", metav1.ConditionFalse, "DcpMix"), condition("Stalled", metav1.ConditionTrue, "DcpMix"),
	}}
	for _, e := range Transitions(old, broken) {
		if e.Type != corev1.EventTypeWarning {
			t.Errorf("a broken rule is told as %+v", e)
		}
	}
	if got := Transitions(next, next); len(got) != 0 {
		t.Errorf("events without a transition: %+v", got)
	}
}

func TestStatusFigures(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	s := c.pool.Status
	// A token of DeepSeek-R1 in bfloat16 is 61 layers of 576 values.
	if s.Prefill.BytesPerToken != 61*576*2 || s.Decode.BytesPerToken != 61*576*2/4 {
		t.Errorf("bytes per token %d and %d", s.Prefill.BytesPerToken, s.Decode.BytesPerToken)
	}
	if s.URL != "http://r1-router.serving.svc" || s.Transfer.Mover != v1alpha1.MoverAgent || s.Transfer.Backend != v1alpha1.BackendTCP || s.Decode.GPUsPerPod != 4 {
		t.Errorf("status %+v", s)
	}
}

// TestRouterThatCannotRoll holds that a pool is not Ready while its router is of an
// older revision.
func TestRouterThatCannotRoll(t *testing.T) {
	for name, stuck := range map[string]func(*appsv1.Deployment){
		"new pods don't come up": func(d *appsv1.Deployment) {
			d.Status.Replicas, d.Status.UpdatedReplicas = d.Status.Replicas+1, 1
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Message: "no image"}}
		},
		"not looked at yet":            func(d *appsv1.Deployment) { d.Generation = 2 },
		"an old pod serves in between": func(d *appsv1.Deployment) { d.Status.Replicas++ },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, simulatorPool(t), 64)
			c.run(30)
			seen := c.observed()
			stuck(&seen.Deployments[0])
			s := Status(c.pool, seen, Compute(c.pool, seen, c.defaults), nil)
			got := meta.FindStatusCondition(s.Conditions, "Ready")
			if got.Status != metav1.ConditionFalse || got.Reason != v1alpha1.ReasonStarting || !meta.IsStatusConditionTrue(s.Conditions, "Available") {
				t.Errorf("conditions %+v", s.Conditions)
			}
			if len(seen.Deployments[0].Status.Conditions) > 0 && !strings.Contains(got.Message, "no image") {
				t.Errorf("message %s", got.Message)
			}
		})
	}
}

// TestReasonConvergedIsReady holds that Ready is never False for the reason Converged.
func TestReasonConvergedIsReady(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.check = func(c *cluster) {
		if c.reason("Ready") == v1alpha1.ReasonConverged && !c.isTrue("Ready") {
			t.Errorf("conditions %+v", c.pool.Status.Conditions)
		}
	}
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Router.Replicas = 2 })
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Decode.Layout.Interleave = 16 })
	c.run(120)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Router.Mode = v1alpha1.RouterNone })
	c.run(30)
}

// TestUselessRecordsDoNotCount holds that a pool is Ready while records are pruned.
func TestUselessRecordsDoNotCount(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	seen := c.observed()
	old := seen.ControllerRevisions[0].DeepCopy()
	old.Name, old.Labels[v1alpha1.LabelRevision] = "r1-old", "old"
	seen.ControllerRevisions = append(seen.ControllerRevisions, *old)
	plan := Compute(c.pool, seen, c.defaults)
	if len(plan.Delete) != 1 || plan.Outcome != Converged {
		t.Errorf("plan %+v", plan)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcdef", 5, "ab…"},
		{"aäöü", 6, "aä…"},
		{"aäöü", 7, "aäöü"},
		{"a\xff", 9, "a?"},
	} {
		if got := clip(c.text, c.limit); got != c.want || len(got) > c.limit {
			t.Errorf("%q in %d bytes is %q, want %q", c.text, c.limit, got, c.want)
		}
	}
}

// TestOldInstancesPairByWhatTheyAre changes the model's geometry to one that their layout
// can't hold, past the webhook: instances that run are not of it, and serve on.
func TestOldInstancesPairByWhatTheyAre(t *testing.T) {
	geometry := func(heads int32) func(*v1alpha1.PDPoolSpec) {
		return func(s *v1alpha1.PDPoolSpec) {
			s.Model.Geometry = v1alpha1.GeometrySpec{Kind: v1alpha1.GeometryGQA, Layers: 4, AttentionHeads: heads, KVHeads: heads, HeadValues: 128}
		}
	}
	c := newCluster(t, simulatorPool(t, layouts(v1alpha1.LayoutSpec{TP: 4}, v1alpha1.LayoutSpec{TP: 4}), spec(geometry(8))), 16)
	c.run(30)
	c.change(geometry(6))
	c.steps(30)
	if !c.isTrue("Available") || c.isTrue("Compatible") || c.isTrue("Ready") {
		t.Errorf("conditions %+v", c.pool.Status.Conditions)
	}
}

// TestHeldByADeadNode holds that a pool on one host says what keeps it there.
func TestHeldByADeadNode(t *testing.T) {
	c := newCluster(t, simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Backend = v1alpha1.BackendSharedMemory })), 8)
	c.run(30)
	for _, p := range c.pods() {
		c.stuck[p.Name] = true
		c.terminate(p)
	}
	c.steps(10)
	got := meta.FindStatusCondition(c.pool.Status.Conditions, "Ready")
	if got.Reason != v1alpha1.ReasonUnschedulable || !strings.Contains(got.Message, "is ending on node-1") {
		t.Errorf("condition %+v", got)
	}
}
