package pdpool

import (
	"errors"
	"fmt"
	"testing"
	"time"

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
