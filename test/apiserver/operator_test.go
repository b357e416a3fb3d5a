package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/controllers"
)

// pool is a good pool; change makes of it what a test needs.
func pool(namespace string, change ...func(*v1alpha1.PDPool)) *v1alpha1.PDPool {
	p := &v1alpha1.PDPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool"},
		Spec: v1alpha1.PDPoolSpec{
			Model:   v1alpha1.ModelSpec{Name: "deepseek-ai/DeepSeek-R1"},
			Engine:  v1alpha1.EngineSpec{Type: v1alpha1.EngineSimulator},
			Prefill: v1alpha1.RoleSpec{Layout: v1alpha1.LayoutSpec{TP: 4}},
			Decode:  v1alpha1.RoleSpec{Layout: v1alpha1.LayoutSpec{TP: 4, DCP: 4, Interleave: 64}},
		},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func testAdmission(t *testing.T, w world) {
	namespace := w.namespace(t)
	for _, c := range []struct {
		name  string
		bad   *v1alpha1.PDPool
		words []string
	}{
		{"two problems in one answer", pool(namespace, func(p *v1alpha1.PDPool) {
			p.Spec.Prefill.Layout.DCP, p.Spec.Decode.Layout.Interleave = 2, 48
		}), []string{"dcp-mix", "interleave-block", "spec.decode.layout.interleave", "48", "64"}},
		{"an owned flag", pool(namespace, func(p *v1alpha1.PDPool) {
			p.Spec.Decode.Args = []string{"-tp=8"}
		}), []string{"args-owned", "decode.layout.tp"}},
		{"what this version cannot run", pool(namespace, func(p *v1alpha1.PDPool) {
			p.Spec.Engine = v1alpha1.EngineSpec{Type: v1alpha1.EngineVLLM, Image: "vllm/vllm-openai-rocm:v0.33.0"}
			p.Spec.Transfer.Mover = v1alpha1.MoverAgent
		}), []string{"mover-unavailable"}},
		{"a name that is too long", pool(namespace, func(p *v1alpha1.PDPool) {
			p.Name = strings.Repeat("a", 31)
			p.Spec.Prefill.Layout.DCP = 2
		}), []string{"pool-name", "dcp-mix"}},
	} {
		err := w.Create(t.Context(), c.bad)
		if err == nil {
			t.Errorf("%s: admitted", c.name)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is not in: %v", c.name, word, err)
			}
		}
	}
	var pools v1alpha1.PDPoolList
	if err := w.List(t.Context(), &pools, client.InNamespace(namespace)); err != nil || len(pools.Items) > 0 {
		t.Errorf("refused pools left %d objects (%v)", len(pools.Items), err)
	}
}

// instances lists the engine pods of the pool of a namespace.
func (w world) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := w.List(ctx, &list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelReplica})
	return list.Items, err
}

// kubelet makes every pod of the namespace run and every Deployment available.
func (w world) kubelet(ctx context.Context, namespace string) error {
	pods, err := w.pods(ctx, namespace)
	if err != nil {
		return err
	}
	for i := range pods {
		if p := &pods[i]; p.Status.Phase != corev1.PodRunning && p.DeletionTimestamp == nil {
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if err := w.Status().Update(ctx, p); err != nil {
				return err
			}
		}
	}
	var deployments appsv1.DeploymentList
	if err := w.List(ctx, &deployments, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if n := *d.Spec.Replicas; d.Status.ReadyReplicas != n || d.Status.ObservedGeneration != d.Generation {
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, ReadyReplicas: n, AvailableReplicas: n, UpdatedReplicas: n}
			if err := w.Status().Update(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// condition reads a condition of the pool of a namespace.
func (w world) condition(ctx context.Context, namespace, kind string) (metav1.Condition, error) {
	var p v1alpha1.PDPool
	if err := w.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "pool"}, &p); err != nil {
		return metav1.Condition{}, err
	}
	if p.Status.ObservedGeneration != p.Generation {
		return metav1.Condition{}, fmt.Errorf("observed generation %d of %d", p.Status.ObservedGeneration, p.Generation)
	}
	c := meta.FindStatusCondition(p.Status.Conditions, kind)
	if c == nil {
		return metav1.Condition{}, fmt.Errorf("no condition %s", kind)
	}
	return *c, nil
}

// ready creates a pool and plays the kubelet until it is Ready.
func (w world) ready(t *testing.T, p *v1alpha1.PDPool) {
	t.Helper()
	if err := w.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.becomesReady(t, p.Namespace)
}

func (w world) becomesReady(t *testing.T, namespace string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		if err := w.kubelet(ctx, namespace); err != nil {
			return err
		}
		c, err := w.condition(ctx, namespace, v1alpha1.ConditionReady)
		if err == nil && c.Status != metav1.ConditionTrue {
			err = fmt.Errorf("ready is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
		return err
	})
}

func testChildren(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	pods, err := w.pods(t.Context(), namespace)
	if err != nil || len(pods) != 2 {
		t.Fatalf("%d pods (%v), expected one of each role", len(pods), err)
	}
	for _, p := range pods {
		if got := p.Spec.Containers[0].Resources.Limits["amd.com/gpu"]; got.Value() != 4 {
			t.Errorf("pod %s asks for %s GPUs, expected 4", p.Name, got.String())
		}
		if len(p.Spec.InitContainers) != 1 || p.Spec.InitContainers[0].Name != v1alpha1.ContainerAgent {
			t.Errorf("pod %s has no transfer agent", p.Name)
		}
	}
	if pods[0].Labels[v1alpha1.LabelPairing] != pods[1].Labels[v1alpha1.LabelPairing] {
		t.Error("the roles have different pairing keys")
	}
	// A child that somebody deletes comes back.
	var router appsv1.Deployment
	key := types.NamespacedName{Namespace: namespace, Name: "pool-router"}
	if err := w.Get(t.Context(), key, &router); err != nil {
		t.Fatal(err)
	}
	if err := w.Delete(t.Context(), &router); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		var again appsv1.Deployment
		if err := w.Get(ctx, key, &again); err != nil {
			return err
		}
		if again.UID == router.UID {
			return errors.New("the Deployment is still the old one")
		}
		return nil
	})
}

func testRecovery(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	pods, err := w.pods(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	failed := pods[0]
	failed.Status.Phase = corev1.PodFailed
	failed.Status.Conditions = nil
	if err := w.Status().Update(t.Context(), &failed); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		pods, err := w.pods(ctx, namespace)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.Labels[v1alpha1.LabelRole] == failed.Labels[v1alpha1.LabelRole] && p.Name != failed.Name && p.DeletionTimestamp == nil {
				if p.Labels[v1alpha1.LabelAttempt] == failed.Labels[v1alpha1.LabelAttempt] {
					return fmt.Errorf("pod %s has the failed one's attempt", p.Name)
				}
				return nil
			}
		}
		return errors.New("no other pod of the role")
	})
	w.becomesReady(t, namespace)
}

func testConflict(t *testing.T, w world) {
	namespace := w.namespace(t)
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool-router"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := w.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), pool(namespace)); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		c, err := w.condition(ctx, namespace, v1alpha1.ConditionReady)
		if err == nil && c.Reason != v1alpha1.ReasonNameConflict {
			err = fmt.Errorf("reason %s: %s", c.Reason, c.Message)
		}
		return err
	})
	var still corev1.Service
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(foreign), &still); err != nil || still.UID != foreign.UID || still.Spec.Ports[0].Port != 80 {
		t.Errorf("the foreign Service was touched (%v)", err)
	}
}

// settle returns the operator's writes in a namespace once about a second has gone by
// without one.
func (w world) settle(t *testing.T, namespace string) int {
	t.Helper()
	return w.settleAfter(t, namespace, 20)
}

// settleAfter is settle with a number of looks, 50 ms apart, without a write. They take
// longer where the machine is busy, as the operator does, which is in the same process.
func (w world) settleAfter(t *testing.T, namespace string, looks int) int {
	t.Helper()
	last, same := -1, 0
	eventually(t, func(context.Context) error {
		if now := w.writes.in(namespace); now != last {
			last, same = now, 0
		} else {
			same++
		}
		if same < looks {
			return errors.New("the operator is still writing")
		}
		return nil
	})
	return last
}

func testSchema(t *testing.T, w world) {
	if err := controllers.CheckServedSchema(t.Context(), w.Client); err != nil {
		t.Error(err)
	}
	old := stale{w.Client}
	err := controllers.CheckServedSchema(t.Context(), old)
	if err == nil || !strings.Contains(err.Error(), "spec.decode.layout.interleave") {
		t.Errorf("a definition without a field is accepted: %v", err)
	}
}

// stale serves a CustomResourceDefinition from before decode had an interleave.
type stale struct{ client.Reader }

func (s stale) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, obj, opts...)
	if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && err == nil {
		delete(crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["decode"].Properties["layout"].Properties, "interleave")
	}
	return err
}
