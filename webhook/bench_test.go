package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// BenchmarkServe is what the manager does for one question of an API server, from its
// bytes to those of the answer, logging as the manager does; bare is a handler that
// admits at once, which any webhook costs. The questions are recorded from a server.
func BenchmarkServe(b *testing.B) {
	bare := admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { return admission.Allowed("") })
	for _, c := range []struct {
		name, question string
		hook           *admission.Webhook
	}{
		{"bare", "create", &admission.Webhook{Handler: bare, LogConstructor: logger}},
		{"create", "create", Validator{}.hook()},
		{"update", "update", Validator{}.hook()},
	} {
		b.Run(c.name, func(b *testing.B) {
			serve(b, c.hook, c.question)
		})
	}
}

func serve(b *testing.B, hook *admission.Webhook, question string) {
	b.Helper()
	handler, err := admission.StandaloneWebhook(hook, admission.StandaloneOptions{
		Logger: logr.FromSlogHandler(slog.NewJSONHandler(io.Discard, nil)),
	})
	if err != nil {
		b.Fatal(err)
	}
	indented, err := os.ReadFile("testdata/" + question + ".json")
	if err != nil {
		b.Fatal(err)
	}
	var body bytes.Buffer // a server does not indent
	if err := json.Compact(&body, indented); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body.Bytes()))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if !bytes.Contains(w.Body.Bytes(), []byte(`"allowed":true`)) {
			b.Fatal(w.Body.String())
		}
	}
}
