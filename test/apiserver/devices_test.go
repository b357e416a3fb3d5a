package apiserver

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// testDevices holds that the operator tells whether the nodes have devices for a pool,
// keeps its pods on those that were asked for, and writes nothing while a node that it
// counts on flaps.
func testDevices(t *testing.T, w world) {
	namespace := w.namespace(t)
	node := w.gpuNode(t, 8)
	w.ready(t, pool(namespace, func(p *v1alpha1.PDPool) { p.Spec.GPU.DeviceIDs = []string{"75a3"} }))
	pods, err := w.pods(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(terms) != 2 {
			t.Errorf("pod %s goes where %v say", p.Name, terms)
		}
	}
	w.tells(t, namespace, metav1.ConditionTrue, v1alpha1.ReasonDevicesFit)
	settled := w.quiet(t, namespace)
	for i := range 20 {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		if i%2 == 0 {
			node.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		if err := w.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.quiet(t, namespace); got != settled {
		t.Errorf("%d writes by the operator while a node flapped", got-settled)
	}
	if err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) { s.Decode.Replicas = new(int32(3)) }); err != nil {
		t.Fatal(err)
	}
	w.tells(t, namespace, metav1.ConditionFalse, v1alpha1.ReasonDevicesLack)
}

// gpuNode makes a node with devices of one kind, which goes with the test.
func (w world) gpuNode(t *testing.T, devices int64) *corev1.Node {
	t.Helper()
	list := corev1.ResourceList{v1alpha1.DefaultGPUResource: *resource.NewQuantity(devices, resource.DecimalSI)}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "gpu-", Labels: map[string]string{"amd.com/gpu.device-id": "75a3"}}}
	if err := w.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Delete(context.Background(), node); err != nil {
			t.Error(err)
		}
	})
	node.Status.Capacity, node.Status.Allocatable = list, list
	if err := w.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	return node
}

// tells waits until the status tells of devices what it should.
func (w world) tells(t *testing.T, namespace string, is metav1.ConditionStatus, reason string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		c, err := w.condition(ctx, namespace, v1alpha1.ConditionGPUsAvailable)
		if err == nil && (c.Status != is || c.Reason != reason) {
			err = fmt.Errorf("GPUsAvailable is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
		return err
	})
}

// quiet returns the operator's writes once there was none for longer than the 5 s that it
// waits until it looks at nodes that have changed.
func (w world) quiet(t *testing.T, namespace string) int {
	t.Helper()
	return w.settleAfter(t, namespace, 140)
}
