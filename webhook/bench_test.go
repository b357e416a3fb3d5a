package webhook

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// BenchmarkServe is what the manager does for one create, from the bytes of the API
// server's question to those of the answer, logging as the manager does.
func BenchmarkServe(b *testing.B) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	handler, err := admission.StandaloneWebhook(Validator{}.handler(scheme), admission.StandaloneOptions{
		Logger: logr.FromSlogHandler(slog.NewJSONHandler(io.Discard, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	question := review(b)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(question))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if !bytes.Contains(w.Body.Bytes(), []byte(`"allowed":true`)) {
			b.Fatal(w.Body.String())
		}
	}
}

// review is an API server's question about a new pool.
func review(b *testing.B) []byte {
	b.Helper()
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	pool := &v1alpha1.PDPool{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.PDPoolKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pool"},
		Spec: v1alpha1.PDPoolSpec{
			Model:   v1alpha1.ModelSpec{Name: "deepseek-ai/DeepSeek-R1"},
			Engine:  v1alpha1.EngineSpec{Type: v1alpha1.EngineSimulator},
			Prefill: v1alpha1.RoleSpec{Layout: v1alpha1.LayoutSpec{TP: 4}},
			Decode:  v1alpha1.RoleSpec{Layout: v1alpha1.LayoutSpec{TP: 4, DCP: 4, Interleave: 64}},
		},
	}
	return encode(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Namespace: "default", Name: "pool", Operation: admissionv1.Create,
			Object:   runtime.RawExtension{Raw: encode(pool)},
			UserInfo: authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters", "system:authenticated"}},
		},
	})
}
