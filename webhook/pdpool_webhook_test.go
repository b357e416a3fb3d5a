package webhook

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// object is a pool whose prefill is as given.
func object(prefill string) runtime.RawExtension {
	return runtime.RawExtension{Raw: []byte(`{"apiVersion":"pdpool.dev/v1alpha1","kind":"PDPool","metadata":{"name":"r1","annotations":{"limits":"1e99999999"}},` +
		`"spec":{"model":{"name":"deepseek-ai/DeepSeek-R1"},"engine":{"type":"Simulator"},"prefill":` + prefill + `,"decode":{}}}`)}
}

func ask(t *testing.T, req admissionv1.AdmissionRequest) admission.Response {
	t.Helper()
	return Validator{}.Handle(t.Context(), admission.Request{AdmissionRequest: req})
}

// long is a quantity that takes minutes to decode.
const long = `{"resources":{"limits":{"cpu":"1e-99999999"}}}`

// TestQuantitiesOfLongScale holds that a quantity which takes minutes to decode is
// refused without, and that others are decoded.
func TestQuantitiesOfLongScale(t *testing.T) {
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for role, admitted := range map[string]bool{
		`{}`: true,
		`{"resources":{"limits":{"cpu":"1500m","memory":"1e9"}}}`: true,
		long: false,
		`{"resources":{"requests":{"cpu":1e-99999999}}}`:                                                        false,
		`{"template":{"a":` + deep + `}}`:                                                                       false,
		`{"template":{"a":` + deep + `},"resources":{"limits":{"cpu":"1E+99999999"}}}`:                          false,
		`{"template":{"spec":{"containers":[{"name":"engine","resources":{"limits":{"cpu":"1e-99999999"}}}]}}}`: false,
	} {
		if got := ask(t, admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: object(role)}); got.Allowed != admitted {
			t.Errorf("%.100s: allowed %v: %+v", role, got.Allowed, got.Result)
		}
	}
}

// TestUpdates holds that a pool which came past the webhook with a quantity that takes
// minutes to decode can be mended, and what is said of what can't be read.
func TestUpdates(t *testing.T) {
	for name, c := range map[string]struct {
		old, now string
		code     int32
	}{
		"nothing changes":      {`{}`, `{}`, 200},
		"mended":               {long, `{}`, 200},
		"not mended":           {long, long, 403},
		"worse":                {`{}`, `{"layout":{"tp":3}}`, 422},
		"refused before":       {`{"layout":{"tp":3}}`, `{"layout":{"tp":3},"replicas":2}`, 200},
		"no old pool":          {`}`, `{}`, 400},
		"no pool":              {`{}`, `}`, 400},
		"mended, and no other": {long, `{"layout":{"tp":3}}`, 422},
	} {
		got := ask(t, admissionv1.AdmissionRequest{Operation: admissionv1.Update, OldObject: object(c.old), Object: object(c.now)})
		if got.Result.Code != c.code || got.Allowed != (c.code == 200) {
			t.Errorf("%s: allowed %v: %+v", name, got.Allowed, got.Result)
		}
	}
}

// TestOtherOperations holds that the webhook is in the way of none.
func TestOtherOperations(t *testing.T) {
	for _, o := range []admissionv1.Operation{admissionv1.Delete, admissionv1.Connect} {
		if got := ask(t, admissionv1.AdmissionRequest{Operation: o, OldObject: object(long)}); !got.Allowed {
			t.Errorf("%s: %+v", o, got.Result)
		}
	}
}
