package pdpool

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// TestRemovedKeyIsApplied holds that a key which is not wanted any more brings an
// apply about, though the live object has all that is wanted.
func TestRemovedKeyIsApplied(t *testing.T) {
	limits := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
	c := newCluster(t, simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
		s.Router.Resources = &corev1.ResourceRequirements{Limits: limits}
	})), 64)
	c.run(30)
	c.change(func(s *v1alpha1.PDPoolSpec) { s.Router.Resources = &corev1.ResourceRequirements{} })
	c.reconcile() // records
	applied := Compute(c.pool, c.observed(), c.defaults).Apply
	if len(applied) != 1 || applied[0].(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Resources.Limits != nil {
		t.Fatalf("applied %+v", applied)
	}
	// The template's revision label would show it as well; here it is as before.
	seen := c.observed()
	seen.Deployments[0].Spec.Template.Labels = applied[0].(*appsv1.Deployment).Spec.Template.Labels
	if again := Compute(c.pool, seen, c.defaults).Apply; len(again) != 1 {
		t.Errorf("applied %+v", again)
	}
}
