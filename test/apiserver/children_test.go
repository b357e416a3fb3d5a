package apiserver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// edit changes the spec of the pool of a namespace.
func (w world) edit(t *testing.T, namespace string, change func(*v1alpha1.PDPoolSpec)) error {
	t.Helper()
	var p v1alpha1.PDPool
	if err := w.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "pool"}, &p); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(p.DeepCopy())
	change(&p.Spec)
	return w.Patch(t.Context(), &p, patch)
}

// testRemovedKey holds that what a user takes out of the spec goes from the child.
func testRemovedKey(t *testing.T, w world) {
	namespace := w.namespace(t)
	key := types.NamespacedName{Namespace: namespace, Name: "pool-router"}
	limit := func() (resource.Quantity, bool, error) {
		var d appsv1.Deployment
		err := w.Get(t.Context(), key, &d)
		if err != nil {
			return resource.Quantity{}, false, err
		}
		q, ok := d.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]
		return q, ok, nil
	}
	w.ready(t, pool(namespace, func(p *v1alpha1.PDPool) {
		p.Spec.Router.Resources = &corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m")},
		}
	}))
	if q, ok, err := limit(); err != nil || !ok || q.String() != "1Gi" {
		t.Fatalf("limit %s, %v (%v)", q.String(), ok, err)
	}
	if err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) { s.Router.Resources.Limits = nil }); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(context.Context) error {
		q, ok, err := limit()
		if err == nil && ok {
			err = fmt.Errorf("the limit of %s is still there", q.String())
		}
		return err
	})
	w.becomesReady(t, namespace)
}

// testRepair holds that what somebody changes of a child is set right.
func testRepair(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	key := types.NamespacedName{Namespace: namespace, Name: "pool-router"}
	var service corev1.Service
	if err := w.Get(t.Context(), key, &service); err != nil {
		t.Fatal(err)
	}
	patch := client.MergeFrom(service.DeepCopy())
	service.Spec.Selector = map[string]string{v1alpha1.LabelPool: "another"}
	service.Labels = nil // the operator's cache holds it by one
	if err := w.Patch(t.Context(), &service, patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		var now corev1.Service
		if err := w.Get(ctx, key, &now); err != nil {
			return err
		}
		if now.UID != service.UID || now.Spec.Selector[v1alpha1.LabelPool] != "pool" || now.Spec.Selector[v1alpha1.LabelRole] != v1alpha1.RoleRouter {
			return fmt.Errorf("selector %v", now.Spec.Selector)
		}
		if now.Labels[v1alpha1.LabelPool] != "pool" {
			return fmt.Errorf("labels %v", now.Labels)
		}
		return nil
	})
}

// testSameNameAgain holds that a pool waits for the children of one that had its
// name before. The test plays the garbage collector.
func testSameNameAgain(t *testing.T, w world) {
	namespace := w.namespace(t)
	old := pool(namespace)
	w.ready(t, old)
	if err := w.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), pool(namespace)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		c, err := w.condition(ctx, namespace, v1alpha1.ConditionReady)
		if err == nil && c.Reason != v1alpha1.ReasonRemoving {
			err = fmt.Errorf("reason %s: %s", c.Reason, c.Message)
		}
		return err
	})
	if _, err := w.condition(t.Context(), namespace, v1alpha1.ConditionStalled); err == nil {
		t.Error("the pool is stalled, though it only has to wait")
	}
	w.collect(t, old)
	w.becomesReady(t, namespace)
}

// collect deletes the children of a pool that is gone.
func (w world) collect(t *testing.T, gone *v1alpha1.PDPool) {
	t.Helper()
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &corev1.ServiceList{}, &corev1.ServiceAccountList{},
		&appsv1.DeploymentList{}, &appsv1.ControllerRevisionList{}, &rbacv1.RoleBindingList{},
		&networkingv1.NetworkPolicyList{}, &corev1.SecretList{},
	} {
		if err := w.List(t.Context(), list, client.InNamespace(gone.Namespace)); err != nil {
			t.Fatal(err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			obj, ok := o.(client.Object)
			if !ok {
				return errors.New("no object")
			}
			owner := metav1.GetControllerOf(obj)
			if owner == nil || owner.UID != gone.UID {
				return nil
			}
			return client.IgnoreNotFound(w.Delete(t.Context(), obj, client.GracePeriodSeconds(0)))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
