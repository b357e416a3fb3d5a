package controllers

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// meant is the metadata of a child of a pool, as the operator makes it.
func meant(pool *v1alpha1.PDPool) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "serving", Name: "child",
		Labels: map[string]string{v1alpha1.LabelPool: pool.Name, v1alpha1.LabelAttempt: "0", "team": "a"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool,
			v1alpha1.GroupVersion.WithKind(v1alpha1.PDPoolKind))},
	}
}

func named(uid types.UID) *v1alpha1.PDPool {
	return &v1alpha1.PDPool{ObjectMeta: metav1.ObjectMeta{Namespace: "serving", Name: "r1", UID: uid}}
}

func reconcilerOver(t *testing.T, there ...client.Object) *PDPoolReconciler {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).Build()
	return &PDPoolReconciler{Client: c, Live: c}
}

// TestCreateOverWhatIsThere holds what becomes of a pod whose name is taken.
func TestCreateOverWhatIsThere(t *testing.T) {
	pool := named("now")
	conflict, leaving := &pdpool.ConflictError{Kind: "Pod", Name: "child"}, &pdpool.LeavingError{Kind: "Pod", Name: "child"}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   error
	}{
		"the cache was behind":        {func(*corev1.Pod) {}, nil},
		"a label of the user's":       {func(p *corev1.Pod) { p.Labels["team"] = "b" }, nil},
		"of a pool that had the name": {func(p *corev1.Pod) { p.ObjectMeta = meant(named("before")) }, leaving},
		"somebody else's":             {func(p *corev1.Pod) { p.OwnerReferences = nil }, conflict},
		"lost from the pool":          {func(p *corev1.Pod) { delete(p.Labels, v1alpha1.LabelPool) }, conflict},
		"lost from the pool, and leaving": {func(p *corev1.Pod) {
			delete(p.Labels, v1alpha1.LabelPool)
			p.Finalizers = []string{"a/b"}
			p.DeletionTimestamp = new(metav1.Now())
		}, leaving},
		"not known by its attempt": {func(p *corev1.Pod) { p.Labels[v1alpha1.LabelAttempt] = "7" }, conflict},
		"somebody else's, and leaving": {func(p *corev1.Pod) {
			p.OwnerReferences = nil
			p.Finalizers = []string{"a/b"}
			p.DeletionTimestamp = new(metav1.Now())
		}, leaving},
	} {
		there := &corev1.Pod{ObjectMeta: meant(pool)}
		c.change(there)
		r := reconcilerOver(t, there)
		err := r.create(t.Context(), pool, &corev1.Pod{ObjectMeta: meant(pool)})
		if (err == nil) != (c.want == nil) || err != nil && err.Error() != c.want.Error() {
			t.Errorf("%s: %v, not %v", name, err, c.want)
		}
	}
}

// TestChildWithoutItsLabelIsSetRight holds that a child which the cache has lost, since
// somebody took its label, gets it again; and nobody else's is touched.
func TestChildWithoutItsLabelIsSetRight(t *testing.T) {
	pool := named("now")
	lost := &corev1.Service{ObjectMeta: meant(pool), Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}}}
	lost.Labels = nil
	r := reconcilerOver(t, lost)
	wanted := func() pdpool.Object {
		return &corev1.Service{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meant(pool),
			Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "c"}},
		}
	}
	if err := r.applyNew(t.Context(), pool, wanted()); err != nil {
		t.Fatal(err)
	}
	var got corev1.Service
	if err := r.Live.Get(t.Context(), client.ObjectKeyFromObject(lost), &got); err != nil {
		t.Fatal(err)
	}
	if got.Labels[v1alpha1.LabelPool] != "r1" || got.Spec.Selector["a"] != "c" {
		t.Errorf("labels %v, selector %v", got.Labels, got.Spec.Selector)
	}
	theirs := lost.DeepCopy()
	theirs.OwnerReferences = nil
	r = reconcilerOver(t, theirs)
	if conflict, ok := errors.AsType[*pdpool.ConflictError](r.applyNew(t.Context(), pool, wanted())); !ok || conflict.Kind != "Service" {
		t.Errorf("somebody else's Service is taken: %v", conflict)
	}
}
