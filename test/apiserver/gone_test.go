package apiserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/controllers"
	"github.com/pdpool/pdpool/pdpool"
)

// testOperatorGone holds what pools may still do while the webhook is configured and
// nobody answers for it: anything but another spec, and going away in every way.
func testOperatorGone(t *testing.T, w world) {
	namespace := w.namespace(t)
	names := map[metav1.DeletionPropagation]string{
		metav1.DeletePropagationBackground: "a", metav1.DeletePropagationForeground: "b", metav1.DeletePropagationOrphan: "c",
	}
	for _, name := range names {
		p := pool(namespace, func(p *v1alpha1.PDPool) { p.Name = name })
		if err := w.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	w.withoutWebhook(t, func() {
		for mode, name := range names {
			p := pool(namespace, func(p *v1alpha1.PDPool) { p.Name = name })
			if err := w.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))); err != nil {
				t.Errorf("a label: %v", err)
			}
			err := w.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"router":{"replicas":3}}}`)))
			if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "validate.pdpool.dev") {
				t.Errorf("another spec: %v", err)
			}
			if err := w.Delete(t.Context(), p, client.PropagationPolicy(mode)); err != nil {
				t.Errorf("deletion %s: %v", mode, err)
			}
			// There is no garbage collector to take its finalizer away.
			free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
			if err := w.Patch(t.Context(), p, free); client.IgnoreNotFound(err) != nil {
				t.Errorf("the last finalizer after deletion %s: %v", mode, err)
			}
			if err := w.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
				t.Errorf("the pool is still there after deletion %s (%v)", mode, err)
			}
		}
	})
}

// withoutWebhook runs f while nobody answers for the webhook.
func (w world) withoutWebhook(t *testing.T, f func()) {
	t.Helper()
	var c admissionv1.ValidatingWebhookConfiguration
	if err := w.Get(t.Context(), types.NamespacedName{Name: "pdpool"}, &c); err != nil {
		t.Fatal(err)
	}
	url := *c.Webhooks[0].ClientConfig.URL
	set := func(url string, answers bool) {
		patch := client.MergeFrom(c.DeepCopy())
		c.Webhooks[0].ClientConfig.URL = &url
		if err := w.Patch(t.Context(), &c, patch); err != nil {
			t.Fatal(err)
		}
		trial := pool("default", func(p *v1alpha1.PDPool) { p.Name = "trial" })
		eventually(t, func(ctx context.Context) error {
			if err := w.Create(ctx, trial.DeepCopy(), client.DryRunAll); (err == nil) != answers {
				return fmt.Errorf("the webhook at %s: %w", url, err)
			}
			return nil
		})
	}
	set("https://127.0.0.1:1/validate", false)
	defer set(url, true)
	f()
}

// testUpgrade runs a second operator, with other default images, over a pool that
// runs: it writes nothing.
func testUpgrade(t *testing.T, w world) {
	namespace := w.namespace(t)
	w.ready(t, pool(namespace))
	before, err := w.pods(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	settled := w.settle(t, namespace)
	mgr, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme: w.scheme, Cache: controllers.CacheOptions(), Metrics: server.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	writes := &tally{by: map[string]int{}}
	looks := make(chan struct{}, 1000)
	reconciler := &controllers.PDPoolReconciler{
		Client: counting(mgr.GetClient(), writes), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("pdpool"),
		Defaults: pdpool.Defaults{AgentImage: "agent:next", RouterImage: "router:next", SimulatorImage: "sim:next", Ports: pdpool.PortRange{First: 40000, Last: 41000}},
		Now: func() time.Time {
			looks <- struct{}{}
			return time.Now().Truncate(time.Second)
		},
	}
	startManager(t, mgr, reconciler)
	var pools v1alpha1.PDPoolList
	if err := w.List(t.Context(), &pools); err != nil {
		t.Fatal(err)
	}
	for seen := range pools.Items { // it looks at every pool there is, this one among them
		select {
		case <-looks:
		case <-time.After(within):
			t.Fatalf("the second operator looked %d times", seen)
		}
	}
	if n := w.settle(t, namespace); n != settled {
		t.Errorf("%d writes by the first operator", n-settled)
	}
	if n := writes.in(namespace); n != 0 {
		t.Errorf("%d writes by an operator with other images", n)
	}
	after, err := w.pods(t.Context(), namespace)
	if err != nil || len(after) != len(before) {
		t.Fatalf("%d pods (%v)", len(after), err)
	}
	for i := range after {
		if after[i].UID != before[i].UID || after[i].ResourceVersion != before[i].ResourceVersion {
			t.Errorf("pod %s was touched", after[i].Name)
		}
	}
}
