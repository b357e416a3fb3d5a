package apiserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// enforcing makes a namespace of a Pod Security level.
func (w world) enforcing(t *testing.T, level string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "test-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}
	if err := w.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// testPodSecurity holds the table of docs/security.md: which level each mode passes,
// and that a pool which does not is told the server's sentence.
func testPodSecurity(t *testing.T, w world) {
	simulator := func(*v1alpha1.PDPool) {}
	shared := func(p *v1alpha1.PDPool) { p.Spec.Transfer.Backend = v1alpha1.BackendSharedMemory }
	vllm := func(p *v1alpha1.PDPool) {
		p.Spec.Engine = v1alpha1.EngineSpec{Type: v1alpha1.EngineVLLM, Image: "vllm/vllm-openai-rocm:v0.33.0"}
		p.Spec.Decode.Layout = v1alpha1.LayoutSpec{TP: 4}
	}
	for name, c := range map[string]struct {
		of               func(*v1alpha1.PDPool)
		passes, breaches string
	}{
		"Simulator over TCP":           {simulator, "restricted", ""},
		"Simulator over shared memory": {shared, "privileged", "baseline"},
		"vLLM":                         {vllm, "privileged", "baseline"},
	} {
		t.Run(name, func(t *testing.T) {
			good := w.enforcing(t, c.passes)
			w.ready(t, pool(good, c.of))
			var router appsv1.Deployment
			if err := w.Get(t.Context(), types.NamespacedName{Namespace: good, Name: "pool-router"}, &router); err != nil {
				t.Fatal(err)
			}
			strict := w.enforcing(t, "restricted")
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: strict, Name: "router"}, Spec: router.Spec.Template.Spec}
			pod.Spec.ServiceAccountName = ""
			if err := w.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("the router's pod: %v", err)
			}
			if c.breaches == "" {
				return
			}
			bad := w.enforcing(t, c.breaches)
			if err := w.Create(t.Context(), pool(bad, c.of)); err != nil {
				t.Fatal(err)
			}
			w.told(t, bad, v1alpha1.ReasonRefused, `violates PodSecurity "`+c.breaches)
		})
	}
}

// told waits until condition Ready has a reason and, in its message, some words.
func (w world) told(t *testing.T, namespace, reason, words string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		c, err := w.condition(ctx, namespace, v1alpha1.ConditionReady)
		if err == nil && (c.Status != metav1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, words)) {
			err = fmt.Errorf("ready is %s: %s: %s", c.Status, c.Reason, c.Message)
		}
		return err
	})
}

// testSecret holds that a pool's Secret is there before its pods, that the operator
// can't read it, and that a policy guards each kind of pod.
func testSecret(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	var secret corev1.Secret
	if err := w.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "pool-key"}, &secret); err != nil {
		t.Fatal(err)
	}
	pods, err := w.pods(t.Context(), namespace)
	if err != nil || len(pods) != 2 {
		t.Fatalf("%d pods (%v)", len(pods), err)
	}
	for _, p := range pods {
		if p.CreationTimestamp.Before(&secret.CreationTimestamp) {
			t.Errorf("pod %s is older than the Secret", p.Name)
		}
	}
	if len(secret.Data["key"]) != 32 || len(secret.Data["token"]) != 64 || !metav1.IsControlledBy(&secret, w.get(t, namespace)) {
		t.Errorf("key of %d bytes, token of %d, owners %v", len(secret.Data["key"]), len(secret.Data["token"]), secret.OwnerReferences)
	}
	if err := w.manager.Get(t.Context(), client.ObjectKeyFromObject(&secret), &corev1.Secret{}); !apierrors.IsForbidden(err) {
		t.Errorf("the operator reads Secrets (%v)", err)
	}
	var policies networkingv1.NetworkPolicyList
	if err := w.List(t.Context(), &policies, client.InNamespace(namespace)); err != nil || len(policies.Items) != 2 {
		t.Errorf("%d policies (%v)", len(policies.Items), err)
	}
	if err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) { s.Network.Policy = v1alpha1.NetworkPolicyNone }); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		if err := w.List(ctx, &policies, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(policies.Items) > 0 {
			return errors.New("policies are still there")
		}
		return nil
	})
}

func (w world) get(t *testing.T, namespace string) *v1alpha1.PDPool {
	t.Helper()
	var p v1alpha1.PDPool
	if err := w.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "pool"}, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// testQuota holds that an exhausted quota is told in the server's words, and that the
// pool goes on once there is more.
func testQuota(t *testing.T, w world) {
	namespace := w.namespace(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
	}
	if err := w.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	// No controller of the namespace counts what is used.
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}
	if err := w.Status().Update(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	if err := w.Create(t.Context(), pool(namespace)); err != nil {
		t.Fatal(err)
	}
	w.told(t, namespace, v1alpha1.ReasonRefused, "exceeded quota: few")
	// It does not try over and over.
	if n := w.settle(t, namespace); n > 60 {
		t.Errorf("%d writes", n)
	}
	if err := w.Delete(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	// The next attempt is due within the interval; a change brings it at once.
	if err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) { s.Router.Replicas = 1 }); err != nil {
		t.Fatal(err)
	}
	w.becomesReady(t, namespace)
}
