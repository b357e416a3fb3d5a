package apiserver

import (
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// testWide holds that manifests which are wrong at thousands of places, or take long to
// decode, get a short answer of the webhook or the schema within its time.
func testWide(t *testing.T, w world) {
	namespace := w.namespace(t)
	nulls := `{"` + strings.Repeat("k", 30_000) + `":{` + strings.TrimSuffix(strings.Repeat(`"a":null,`, 2500), ",") + `}}`
	args := `{"spec":{"containers":[{"name":"engine","args":[` + strings.TrimSuffix(strings.Repeat(`"-tp",`, 10_000), ",") + `]}]}}`
	deep := `{"a":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`
	limits := map[string]any{"limits": map[string]any{"cpu": "1e-99999999"}}
	for name, c := range map[string]struct {
		template string
		prefill  map[string]any
		want     string
	}{
		"nulls":                    {nulls, nil, "template-owned"},
		"arguments":                {args, nil, "template-owned"},
		"depth":                    {deep, nil, "template-owned"},
		"a resource of long scale": {"", map[string]any{"resources": limits}, "exponent"},
	} {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pool(namespace, func(p *v1alpha1.PDPool) {
			if c.template != "" {
				p.Spec.Prefill.Template = &runtime.RawExtension{Raw: []byte(c.template)}
				p.Spec.Decode.Template = &runtime.RawExtension{Raw: []byte(c.template)}
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(object["spec"].(map[string]any)["prefill"].(map[string]any), c.prefill)
		u := &unstructured.Unstructured{Object: object}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.PDPoolKind))
		if err := w.Create(t.Context(), u); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2048 {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}
