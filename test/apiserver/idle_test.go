package apiserver

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// testIdle holds that a converged pool makes no writes while others annotate its
// pods, kubelets tell what changes nothing for it, and a node flaps.
func testIdle(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "node-"}}
	if err := w.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	settled := w.settle(t, namespace)
	for i := range 20 {
		flap := corev1.ConditionTrue
		if i%2 == 0 {
			flap = corev1.ConditionUnknown
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: flap}}
		if err := w.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
		pods, err := w.pods(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"somebody":"%d"}}}`, i))
			if err := w.Patch(t.Context(), &p, patch); err != nil {
				t.Fatal(err)
			}
			p.Status.Conditions = []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, Message: strconv.Itoa(i)},
				{Type: "example.com/other", Status: flap},
			}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: v1alpha1.ContainerEngine, RestartCount: int32(i), Image: "sim:test", ImageID: "x",
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}
			if err := w.Status().Update(t.Context(), &p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := w.settle(t, namespace); got != settled {
		t.Errorf("%d writes by the operator while nothing was to be done", got-settled)
	}
}

// testFiftyPools holds that the operator's memory fits its default limit with room:
// all of this process, its caches of fifty pools among it.
func testFiftyPools(t *testing.T, w world) {
	const pools, most = 50, 64 << 20
	namespace := w.namespace(t)
	for i := range pools {
		p := pool(namespace, func(p *v1alpha1.PDPool) { p.Name = fmt.Sprintf("pool-%d", i) })
		if err := w.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func(ctx context.Context) error {
		pods, err := w.pods(ctx, namespace)
		if err == nil && len(pods) != 2*pools {
			err = fmt.Errorf("%d pods of %d", len(pods), 2*pools)
		}
		return err
	})
	w.settle(t, namespace)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("heap in use %d MiB with %d pools", m.HeapInuse>>20, pools)
	if m.HeapInuse > most {
		t.Errorf("heap in use is %d MiB, allowed are %d", m.HeapInuse>>20, most>>20)
	}
}
