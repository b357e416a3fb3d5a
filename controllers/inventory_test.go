package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// nodesOnly is a cache that holds nodes, and counts how often they are read.
type nodesOnly struct {
	client.Reader
	nodes []corev1.Node
	reads atomic.Int64
	fails error
}

func (c *nodesOnly) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if nodes, ok := list.(*corev1.NodeList); ok {
		c.reads.Add(1)
		nodes.Items = append(nodes.Items, c.nodes...)
	}
	return c.fails
}

func cacheOf(nodes int) *nodesOnly {
	eight := corev1.ResourceList{v1alpha1.DefaultGPUResource: *resource.NewQuantity(8, resource.DecimalSI)}
	c := &nodesOnly{}
	for i := range nodes {
		c.nodes = append(c.nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i)},
			Status:     corev1.NodeStatus{Capacity: eight, Allocatable: eight},
		})
	}
	return c
}

// TestPoolsShareAnInventory holds that one change of a node costs one computation, however
// many pools look after it and however many of them at once.
func TestPoolsShareAnInventory(t *testing.T) {
	const pools = 50
	var v inventory
	cache := cacheOf(100)
	for change := range 4 {
		var looks sync.WaitGroup
		for range pools {
			looks.Go(func() {
				if _, err := v.look(t.Context(), cache); err != nil {
					t.Error(err)
				}
			})
		}
		looks.Wait()
		if reads := cache.reads.Load(); reads != int64(change+1) {
			t.Fatalf("%d computations after %d changes", reads, change)
		}
		v.changed()
	}
}

// TestInventoryIsNeverOld holds that a look sees each change that was told before it, also
// one that came while another look was reading, and that a failed look is no look.
func TestInventoryIsNeverOld(t *testing.T) {
	var v inventory
	cache := cacheOf(1)
	cache.fails = errors.New("the cache has ended")
	if _, err := v.look(t.Context(), cache); !errors.Is(err, cache.fails) {
		t.Fatalf("a look at nothing: %v", err)
	}
	cache.fails = nil
	meanwhile := &changing{nodesOnly: cache, change: v.changed}
	first, err := v.look(t.Context(), meanwhile)
	if err != nil {
		t.Fatal(err)
	}
	second, err := v.look(t.Context(), cache)
	if err != nil || first == second {
		t.Errorf("a change during a look is not seen by the next one: %v", err)
	}
	if third, err := v.look(t.Context(), cache); err != nil || third != second {
		t.Errorf("a look without a change computes again: %v", err)
	}
}

// changing is a cache in which something changes just after it was read.
type changing struct {
	*nodesOnly
	change func()
}

func (c *changing) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := c.nodesOnly.List(ctx, list, options...)
	c.change()
	return err
}

// TestPodsThatCount holds which events of pods change the inventory, that the change is
// told before the pool is called, and that the pool is called by every event.
func TestPodsThatCount(t *testing.T) {
	pod := func(changes ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Labels: map[string]string{v1alpha1.LabelPool: "a"}}, Spec: corev1.PodSpec{NodeName: "n"}}
		for _, change := range changes {
			change(p)
		}
		return p
	}
	for name, c := range map[string]struct {
		after  *corev1.Pod
		counts bool
	}{
		"nothing":        {pod(), false},
		"ready":          {pod(func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }), false},
		"an annotation":  {pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }), false},
		"running":        {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), false},
		"a node":         {pod(func(p *corev1.Pod) { p.Spec.NodeName = "m" }), true},
		"ended":          {pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), true},
		"ports":          {pod(func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationPorts: "{}"} }), true},
		"another pool's": {pod(func(p *corev1.Pod) { p.Labels[v1alpha1.LabelPool] = "b" }), true},
		"another pod":    {pod(func(p *corev1.Pod) { p.UID = "2" }), true},
	} {
		r := &PDPoolReconciler{}
		calls, told := 0, false
		h := r.notingPods(handler.Funcs{UpdateFunc: func(context.Context, event.UpdateEvent, workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			calls, told = calls+1, r.inventory.changes.Load() > 0
		}})
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: pod(), ObjectNew: c.after}, nil)
		if calls != 1 || told != c.counts {
			t.Errorf("%s: %d calls, the inventory has changed before: %v", name, calls, told)
		}
	}
	r := &PDPoolReconciler{}
	h := r.notingPods(handler.Funcs{})
	h.Create(t.Context(), event.CreateEvent{Object: pod()}, nil)
	h.Delete(t.Context(), event.DeleteEvent{Object: pod()}, nil)
	if got := r.inventory.changes.Load(); got != 2 {
		t.Errorf("%d changes by a pod that came and went", got)
	}
}

// BenchmarkInventory is the looks of 50 pools at 100 nodes after a change of one: as they
// share it, and as it is when each computes its own.
func BenchmarkInventory(b *testing.B) {
	for name, changes := range map[string]int{"shared": 1, "each": 50} {
		b.Run(name, func(b *testing.B) {
			var v inventory
			cache := cacheOf(100)
			b.ReportAllocs()
			for b.Loop() {
				for pool := range 50 {
					if pool < changes {
						v.changed()
					}
					if _, err := v.look(b.Context(), cache); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(cache.reads.Load())/float64(b.N), "computations/op")
		})
	}
}
