package controllers

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// nodePause is how long changes of nodes are gathered before pools look at them: each
// concerns all pools.
const nodePause = 5 * time.Second

// trimNode is the cache's transform of nodes.
func trimNode(obj any) (any, error) {
	if n, ok := obj.(*corev1.Node); ok {
		return pdpool.TrimNode(n), nil
	}
	return obj, nil
}

// nodeChanges lets through what changes the devices of a node. Nodes are trimmed, so
// that a heartbeat leaves them equal, and one without devices has nothing to compare.
func nodeChanges() predicate.Predicate {
	differ := func(a, b *corev1.Node) bool {
		return !equality.Semantic.DeepEqual(a.Labels, b.Labels) || !equality.Semantic.DeepEqual(a.Spec, b.Spec) || !equality.Semantic.DeepEqual(a.Status, b.Status)
	}
	tells := func(obj client.Object) bool {
		n, ok := obj.(*corev1.Node)
		return ok && differ(n, &corev1.Node{})
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return tells(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return tells(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			a, okA := e.ObjectOld.(*corev1.Node)
			b, okB := e.ObjectNew.(*corev1.Node)
			return okA && okB && differ(a, b)
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// queue is where handlers of events say which pools have to look.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// everyPool has all pools look again, after a pause in which further changes bring no
// further looks. What they share is computed anew by the first of them.
func (r *PDPoolReconciler) everyPool() handler.EventHandler {
	all := func(ctx context.Context, q queue) {
		r.inventory.changed()
		var pools v1alpha1.PDPoolList
		if r.Client.List(ctx, &pools, client.UnsafeDisableDeepCopy) != nil {
			return // from the cache, which ends with the manager alone
		}
		for i := range pools.Items {
			q.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])}, nodePause)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { all(ctx, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { all(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { all(ctx, q) },
	}
}
