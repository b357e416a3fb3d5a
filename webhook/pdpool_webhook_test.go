package webhook

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// TestQuantitiesOfLongScale holds that a quantity which takes minutes to decode is
// refused without, and that others are decoded.
func TestQuantitiesOfLongScale(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	hook := Validator{}.handler(scheme)
	ask := func(role string) admission.Response {
		object := `{"apiVersion":"pdpool.dev/v1alpha1","kind":"PDPool","metadata":{"name":"r1","annotations":{"limits":"1e99999999"}},` +
			`"spec":{"model":{"name":"deepseek-ai/DeepSeek-R1"},"engine":{"type":"Simulator"},"prefill":` + role + `,"decode":{}}}`
		return hook.Handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
		}})
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for role, admitted := range map[string]bool{
		`{}`: true,
		`{"resources":{"limits":{"cpu":"1500m","memory":"1e9"}}}`:                                               true,
		`{"resources":{"limits":{"cpu":"1e-99999999"}}}`:                                                        false,
		`{"resources":{"requests":{"cpu":1e-99999999}}}`:                                                        false,
		`{"template":{"a":` + deep + `}}`:                                                                       false,
		`{"template":{"a":` + deep + `},"resources":{"limits":{"cpu":"1E+99999999"}}}`:                          false,
		`{"template":{"spec":{"containers":[{"name":"engine","resources":{"limits":{"cpu":"1e-99999999"}}}]}}}`: false,
	} {
		if got := ask(role); got.Allowed != admitted {
			t.Errorf("%.100s: allowed %v: %+v", role, got.Allowed, got.Result)
		}
	}
}
