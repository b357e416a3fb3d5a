package apiserver

import (
	"context"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// heard are the warnings that a client got, as kubectl would print them.
type heard struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeaderWithContext keeps a warning.
func (h *heard) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, text)
}

// take returns what was heard since the last time, as one text.
func (h *heard) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := strings.Join(h.list, "\n")
	h.list = nil
	return out
}

// listening is a client whose warnings are kept.
func (w world) listening(t *testing.T) (client.Client, *heard) {
	t.Helper()
	warnings := &heard{}
	config := rest.CopyConfig(w.admin)
	config.WarningHandlerWithContext = warnings
	c, err := client.New(config, client.Options{Scheme: w.scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c, warnings
}

// testAnswers holds what comes back with an answer: warnings of what is admitted and
// of what is refused, and the same on a dry run, which stores nothing.
func testAnswers(t *testing.T, w world) {
	namespace := w.namespace(t)
	c, warnings := w.listening(t)
	doubtful := func(p *v1alpha1.PDPool) {
		p.Spec.Engine.Version = "0.33.0"      // the Simulator has none
		p.Spec.Prefill.Layout.Interleave = 64 // without dcp
	}
	both := []string{"engine-version", "interleave-unused"}
	expect := func(what string, words []string) {
		t.Helper()
		text := warnings.take()
		for _, word := range words {
			if !strings.Contains(text, word) {
				t.Errorf("%s: %q is not in the warnings: %s", what, word, text)
			}
		}
		if len(words) == 0 && text != "" {
			t.Errorf("%s: warned of %s", what, text)
		}
	}
	if err := c.Create(t.Context(), pool(namespace, doubtful), client.DryRunAll); err != nil {
		t.Error(err)
	}
	expect("a dry run", both)
	bad := pool(namespace, doubtful, func(p *v1alpha1.PDPool) { p.Spec.Prefill.Layout.DCP = 2 })
	if err := c.Create(t.Context(), bad, client.DryRunAll); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "dcp-mix") {
		t.Errorf("a dry run of a bad pool: %v", err)
	}
	warnings.take()
	var pools v1alpha1.PDPoolList
	if err := w.List(t.Context(), &pools, client.InNamespace(namespace)); err != nil || len(pools.Items) > 0 {
		t.Errorf("dry runs left %d pools (%v)", len(pools.Items), err)
	}
	p := pool(namespace)
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	expect("a good pool", nil)
	change := func(edit func(*v1alpha1.PDPool), options ...client.PatchOption) error {
		next := &v1alpha1.PDPool{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), next); err != nil {
			t.Fatal(err)
		}
		before := client.MergeFrom(next.DeepCopy())
		edit(next)
		return c.Patch(t.Context(), next, before, options...)
	}
	other := func(p *v1alpha1.PDPool) { p.Spec.Engine.BlockSize = 32; p.Spec.Decode.Layout.Interleave = 32 }
	if err := change(other, client.DryRunAll); err != nil {
		t.Error(err)
	}
	expect("a change of generation", []string{"generation-change"})
	if err := change(func(p *v1alpha1.PDPool) { p.Labels = map[string]string{"team": "a"} }); err != nil {
		t.Error(err)
	}
	expect("a label", nil)
}

// testTemplates holds that templates are read strictly: the schema keeps what it does
// not know, and the webhook refuses it.
func testTemplates(t *testing.T, w world) {
	namespace := w.namespace(t)
	for name, c := range map[string]struct {
		template string
		words    []string // none: admitted
	}{
		"good":             {`{"spec":{"priorityClassName":"high","containers":[{"name":"engine","env":[{"name":"A","value":"b"}]}]}}`, nil},
		"an unknown field": {`{"spec":{"priorityClass":"high"}}`, []string{"template-owned", `unknown field "spec.priorityClass"`, "decode.template"}},
		"a wrong type":     {`{"spec":{"tolerations":"all"}}`, []string{"template-owned", "no part of a pod"}},
		"what is owned":    {`{"spec":{"restartPolicy":"Always"}}`, []string{"template-owned", "decode.template.spec.restartPolicy"}},
		"and a layout":     {`{"spec":{"restartPolicy":"Always","priorityClass":"x"}}`, []string{"restartPolicy", "priorityClass"}},
	} {
		p := pool(namespace, func(p *v1alpha1.PDPool) {
			p.Spec.Decode.Template = &runtime.RawExtension{Raw: []byte(c.template)}
		})
		err := w.Create(t.Context(), p, client.DryRunAll)
		if (err == nil) != (len(c.words) == 0) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is not in: %v", name, word, err)
			}
		}
	}
}
