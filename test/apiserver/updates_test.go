package apiserver

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// pastTheWebhook creates a pool while no webhook is configured, and returns once
// there is one again.
func (w world) pastTheWebhook(t *testing.T, p *v1alpha1.PDPool) {
	t.Helper()
	bad := p.DeepCopy()
	var configurations admissionv1.ValidatingWebhookConfigurationList
	if err := w.List(t.Context(), &configurations); err != nil || len(configurations.Items) != 1 {
		t.Fatalf("%d webhook configurations (%v)", len(configurations.Items), err)
	}
	configuration := &configurations.Items[0]
	if err := w.Delete(t.Context(), configuration); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error { return w.Create(ctx, p) })
	again := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration.Name}, Webhooks: configuration.Webhooks,
	}
	if err := w.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	bad.Name += "-trial"
	eventually(t, func(ctx context.Context) error {
		if err := w.Create(ctx, bad.DeepCopy(), client.DryRunAll); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("a pool that breaks a rule is not refused yet (%w)", err)
		}
		return nil
	})
}

// testUpdates holds what a pool that breaks a rule already may still do: anything
// that brings no other problem, and going away.
func testUpdates(t *testing.T, w world) {
	namespace := w.namespace(t)
	p := pool(namespace, func(p *v1alpha1.PDPool) {
		p.Spec.Prefill.Layout.DCP = 2
		p.Finalizers = []string{"example.com/held"}
	})
	w.pastTheWebhook(t, p)
	eventually(t, func(ctx context.Context) error {
		c, err := w.condition(ctx, namespace, v1alpha1.ConditionCompatible)
		if err == nil && (c.Status != metav1.ConditionFalse || c.Reason != "DcpMix") {
			err = fmt.Errorf("compatible is %s: %s", c.Status, c.Reason)
		}
		return err
	})
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"}}}`))
	if err := w.Patch(t.Context(), p, label); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) { s.Router.Replicas = 2 }); err != nil {
		t.Errorf("a change that brings no problem: %v", err)
	}
	err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) { s.Decode.Layout.Interleave = 48 })
	if err == nil || !strings.Contains(err.Error(), "interleave-block") || strings.Contains(err.Error(), "dcp-mix") {
		t.Errorf("a change that brings a problem: %v", err)
	}
	if err := w.Delete(t.Context(), p); err != nil {
		t.Errorf("deletion: %v", err)
	}
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := w.Patch(t.Context(), p, free); err != nil {
		t.Errorf("the last finalizer: %v", err)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(p), &v1alpha1.PDPool{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pool is still there (%v)", err)
	}
}

// testFixed holds that a pool with replicas keeps its model and its engine.
func testFixed(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	for field, change := range map[string]func(*v1alpha1.PDPoolSpec){
		"spec.model.name": func(s *v1alpha1.PDPoolSpec) { s.Model.Name = "deepseek-ai/DeepSeek-V3" },
		"spec.engine.type": func(s *v1alpha1.PDPoolSpec) {
			s.Engine = v1alpha1.EngineSpec{Type: v1alpha1.EngineVLLM, Image: "vllm/vllm-openai-rocm:v0.33.0"}
		},
	} {
		if err := w.edit(t, namespace, change); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) {
		s.Model.Name, s.Prefill.Layout.DCP = "deepseek-ai/DeepSeek-V3", 2
	})
	for _, word := range []string{"fixed-field", "spec.model.name", "dcp-mix"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("two problems, and %q is not in the answer: %v", word, err)
		}
	}
}

// testGeneration holds that a change after which old and new instances can't pair
// brings up a whole new set, and takes the old one away.
func testGeneration(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	before, err := w.pods(t.Context(), namespace)
	if err != nil || len(before) != 2 {
		t.Fatalf("%d pods (%v)", len(before), err)
	}
	if err := w.edit(t, namespace, func(s *v1alpha1.PDPoolSpec) {
		s.Engine.BlockSize = 32
		s.Decode.Layout = v1alpha1.LayoutSpec{TP: 8, DCP: 8, Interleave: 32}
	}); err != nil {
		t.Fatal(err)
	}
	w.becomesReady(t, namespace)
	after, err := w.pods(t.Context(), namespace)
	if err != nil || len(after) != 2 {
		t.Fatalf("%d pods (%v)", len(after), err)
	}
	for _, p := range after {
		if p.Labels[v1alpha1.LabelPairing] == before[0].Labels[v1alpha1.LabelPairing] {
			t.Errorf("pod %s is of the old generation", p.Name)
		}
	}
	if after[0].Labels[v1alpha1.LabelPairing] != after[1].Labels[v1alpha1.LabelPairing] {
		t.Error("the new instances can't pair")
	}
}
