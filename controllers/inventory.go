package controllers

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/pdpool"
)

// inventory is what all pools look at alike: the devices of the cluster, and the ports
// that pods of pools hold. The first look after a change computes it from the cache,
// looks that come meanwhile wait for that, and later ones share it. The zero value is
// ready for use.
type inventory struct {
	changes atomic.Uint64 // of nodes and of pods of pools

	mu   sync.Mutex
	seen *stock // nil before the first look
}

// stock is an inventory after so many changes. Nobody changes it any more.
type stock struct {
	changes uint64
	devices pdpool.Inventory // at no time
	blocks  []int            // the first port of each block that a pod holds
}

// changed says that the cache holds another node or pod than before.
func (v *inventory) changed() { v.changes.Add(1) }

// notingPods is a handler of the events of pods that has the inventory computed anew
// where one holds something else than before, and then does what next does: so a look
// that comes of an event finds what the event tells.
func (r *PDPoolReconciler) notingPods(next handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			r.inventory.changed()
			next.Create(ctx, e, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			a, okA := e.ObjectOld.(*corev1.Pod)
			b, okB := e.ObjectNew.(*corev1.Pod)
			if !okA || !okB || heldBy(a) != heldBy(b) {
				r.inventory.changed()
			}
			next.Update(ctx, e, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.inventory.changed()
			next.Delete(ctx, e, q)
		},
		GenericFunc: next.Generic,
	}
}

// holding is all that may change, over the life of a pod, of what it holds.
type holding struct {
	uid               types.UID
	node, pool, ports string
	ended             bool
}

func heldBy(p *corev1.Pod) holding {
	return holding{
		uid: p.UID, node: p.Spec.NodeName, pool: p.Labels[v1alpha1.LabelPool], ports: p.Annotations[v1alpha1.AnnotationPorts],
		ended: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
}

// look returns the stock after all changes that were told before the call.
func (v *inventory) look(ctx context.Context, cache client.Reader) (*stock, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Counted before the lists are read: what changes meanwhile makes the next look
	// compute again.
	changes := v.changes.Load()
	if v.seen != nil && v.seen.changes == changes {
		return v.seen, nil
	}
	var pods corev1.PodList
	if err := cache.List(ctx, &pods, client.HasLabels{v1alpha1.LabelPool}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the pods of all pools: %w", err)
	}
	var nodes corev1.NodeList
	if err := cache.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	next := &stock{changes: changes, devices: pdpool.NewInventory(nodes.Items, pods.Items, time.Time{})}
	for i := range pods.Items {
		if block, ok := pdpool.PortBlock(&pods.Items[i]); ok {
			next.blocks = append(next.blocks, block)
		}
	}
	v.seen = next
	return next, nil
}
