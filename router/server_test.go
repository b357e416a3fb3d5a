package router

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
)

func (r *rig) probe(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

func TestNoPair(t *testing.T) {
	r := newRig(t)
	r.instances[0].Layout = kvlayout.Layout{TP: 4, DCP: 2}
	r.publish()
	a := r.post(t, completions, simple)
	if a.status != 503 || a.code(t) != "dcp-mix" || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	want := kvlayout.Compatible(kvlayout.Pair{
		Engine: kvlayout.Simulator, Mover: kvlayout.MoverAgent, Mode: kvlayout.Write, Geometry: r.instances[0].KV, HasGeometry: true,
		Prefill: side(r.instances[0].clone()), Decode: side(r.instances[1].clone()),
	})[0]
	if a.message(t) != want.Message+"; "+want.Reason+"; "+want.Fix {
		t.Errorf("message %q is not that of the rule", a.message(t))
	}
	r.instances[0].Ready = false
	r.publish()
	if a := r.post(t, completions, simple); a.status != 503 || a.code(t) != RuleNoInstance {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	if len(r.prefill.calls)+len(r.decode.calls) > 0 {
		t.Error("an engine got a leg")
	}
}

func TestDrainingGetsNothingNew(t *testing.T) {
	r := newRig(t)
	second := newEngine(t)
	r.instances = append(r.instances, instanceAt(kvlayout.Decode, second.port()))
	r.instances[1].Draining = true
	r.publish()
	for range 20 {
		if a := r.post(t, completions, simple); a.status != 200 {
			t.Fatalf("status %d, %s", a.status, a.body)
		}
	}
	if n := len(r.decode.calls); n != 0 {
		t.Errorf("a draining instance got %d requests", n)
	}
}

func TestRanksAreSlots(t *testing.T) {
	r := newRig(t)
	r.instances[1].Layout = kvlayout.Layout{TP: 1, DP: 8}
	r.instances[0].Layout = kvlayout.Layout{TP: 1, DP: 1}
	r.publish()
	seen := map[string]bool{}
	for range 200 {
		if a := r.post(t, completions, simple); a.status != 200 {
			t.Fatalf("status %d, %s", a.status, a.body)
		}
		p, d := next(t, "prefill's leg", r.prefill.calls), next(t, "decode's leg", r.decode.calls)
		rank := d.header.Get("X-Data-Parallel-Rank")
		if !strings.Contains(p.body, `"remote_dp_size":8,"remote_dp_rank":`+rank+"}") {
			t.Fatalf("decode's rank is %q, prefill is told %s", rank, p.body)
		}
		if p.header.Get("X-Data-Parallel-Rank") != "" {
			t.Fatal("a rank is told to an engine without ranks")
		}
		seen[rank] = true
	}
	if len(seen) != 8 {
		t.Errorf("only ranks %v were used", seen)
	}
}

func TestHealth(t *testing.T) {
	registry := NewRegistry()
	late := registry.Source("late")
	r := newRig(t, func(o *Options) { o.Registry = registry })
	for _, p := range []struct {
		h    http.Handler
		path string
	}{{r.Handler(), "/ready"}, {r.OpsHandler(), "/readyz"}} {
		if status, text := r.probe(t, p.h, p.path); status != 503 || !strings.Contains(text, "late") {
			t.Errorf("%s before the sources: %d, %s", p.path, status, text)
		}
	}
	late.Publish(nil)
	for _, p := range []struct {
		h    http.Handler
		path string
	}{{r.Handler(), "/ready"}, {r.Handler(), "/health"}, {r.OpsHandler(), "/readyz"}, {r.OpsHandler(), "/healthz"}, {r.Handler(), "/metrics"}} {
		if status, _ := r.probe(t, p.h, p.path); status != 200 {
			t.Errorf("%s: %d", p.path, status)
		}
	}
	r.Unready()
	if status, _ := r.probe(t, r.OpsHandler(), "/readyz"); status != 503 {
		t.Errorf("shutting down: %d", status)
	}
	if status, _ := r.probe(t, r.OpsHandler(), "/healthz"); status != 200 {
		t.Errorf("shutting down, alive: %d", status)
	}
}

func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.post(t, completions, simple)
	for name, want := range map[string]float64{
		`pdpool_router_instances{role="prefill"}`:                             1,
		`pdpool_router_instances{role="decode"}`:                              1,
		`pdpool_router_pairs`:                                                 1,
		`pdpool_router_inflight`:                                              0,
		`pdpool_router_requests_total{code="200",endpoint="/v1/completions"}`: 1,
		`pdpool_router_legs_total{outcome="ok",role="prefill"}`:               1,
		`pdpool_router_legs_total{outcome="ok",role="decode"}`:                1,
		`pdpool_router_request_seconds_count{endpoint="/v1/completions"}`:     1,
		`pdpool_router_first_byte_seconds_count{endpoint="/v1/completions"}`:  1,
		`pdpool_router_prefill_seconds_count`:                                 1,
	} {
		eventually(t, name, func() bool {
			return metricLine(t, r.OpsHandler(), name) != "" && metric(t, r.OpsHandler(), name) == want
		})
	}
}

func TestModelsEndpoint(t *testing.T) {
	r := newRig(t)
	_, body := r.probe(t, r.Handler(), "/v1/models")
	var list struct {
		Object string
		Data   []struct{ ID, Object string }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	if list.Object != "list" || len(list.Data) != 1 || list.Data[0].ID != "m" || list.Data[0].Object != "model" {
		t.Errorf("%s", body)
	}
}

func TestTokenize(t *testing.T) {
	r := newRig(t)
	const tokens = `{"count":2,"tokens":[1,2]}`
	r.prefill.says(200, tokens)
	for _, body := range []string{`{"model":"m","prompt":"x"}`, `{"prompt":"x"}`} {
		a := r.post(t, "/tokenize", body)
		if a.status != 200 || a.body != tokens || a.header.Get("Content-Length") != strconv.Itoa(len(tokens)) {
			t.Errorf("%s: status %d, %s of %q bytes", body, a.status, a.body, a.header.Get("Content-Length"))
		}
		if c := next(t, "tokenize", r.prefill.calls); c.path != "/tokenize" || c.body != body {
			t.Errorf("prefill got %s %s", c.path, c.body)
		}
	}
	for body, status := range map[string]int{`{`: 400, `{"model":1}`: 400, `{"model":"x"}`: 404} {
		if a := r.post(t, "/tokenize", body); a.status != status {
			t.Errorf("%s: status %d", body, a.status)
		}
	}
	r.prefill.says(400, `{"error":{"message":"no"}}`)
	if a := r.post(t, "/tokenize", `{"model":"m"}`); a.status != 400 || a.message(t) != "no" {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	r.prefill.dies()
	if a := r.post(t, "/tokenize", `{"model":"m"}`); a.status != 502 || a.code(t) != codeLost {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	r.prefill.Close()
	if a := r.post(t, "/tokenize", `{"model":"m"}`); a.status != 502 || a.code(t) != codeUnreachable {
		t.Errorf("status %d, %s", a.status, a.body)
	}
}

// TestPathsThatAreNotClean get an error as all others, and are sent nowhere.
func TestPathsThatAreNotClean(t *testing.T) {
	r := newRig(t)
	for _, line := range []string{"POST //v1/completions", "GET /v1/../health", "GET /v1/./models", "OPTIONS *", "PUT /v1//completions"} {
		method, at, _ := strings.Cut(line, " ")
		w := httptest.NewRecorder()
		q := httptest.NewRequest(method, "/", http.NoBody)
		q.URL.Path, q.RequestURI = at, at
		r.Handler().ServeHTTP(w, q)
		if a := (answer{status: w.Code, body: w.Body.String()}); a.status != 404 || a.code(t) != codeNotFound {
			t.Errorf("%s: status %d, %s", line, w.Code, w.Body)
		}
	}
}

// TestGarbage holds that no body makes the server fail.
func TestGarbage(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{"\x00\x01", strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<16), `{"model":"m","stream":{"x":1}}`, "\xff\xfe{}"} {
		for _, path := range []string{completions, chatCompletions, "/tokenize"} {
			response, err := r.http.Client().Post(r.http.URL+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if response.StatusCode >= 500 {
				t.Errorf("%s %.20q: status %d", path, body, response.StatusCode)
			}
		}
	}
}

// TestMethods holds that a path which there is, asked by a method that it does not take,
// says which ones it takes, and that one which there is not says just that.
func TestMethods(t *testing.T) {
	h := newRig(t).Handler()
	for _, c := range []struct {
		method, path, allow string
		status              int
		code                string
	}{
		{http.MethodGet, completions, "POST", 405, codeMethod},
		{http.MethodHead, chatCompletions, "POST", 405, codeMethod},
		{http.MethodDelete, "/tokenize", "POST", 405, codeMethod},
		{http.MethodPost, "/v1/models", "GET, HEAD", 405, codeMethod},
		{http.MethodOptions, "/metrics", "GET, HEAD", 405, codeMethod},
		{"", completions, "POST", 405, codeMethod},
		{http.MethodGet, "/v1/nothing", "", 404, codeNotFound},
		{http.MethodPost, "/v1//models", "", 404, codeNotFound},
		{http.MethodGet, "/v1/../v1/models", "", 404, codeNotFound},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Method, r.URL.Path = c.method, c.path
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var body struct {
			Error struct{ Message, Code string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != c.status || body.Error.Code != c.code || w.Header().Get("Allow") != c.allow {
			t.Errorf("%s %s: %v, status %d, Allow %q, %s", c.method, c.path, err, w.Code, w.Header().Get("Allow"), w.Body)
		}
		if !strings.Contains(body.Error.Message, c.allow) {
			t.Errorf("%s %s: %s", c.method, c.path, body.Error.Message)
		}
	}
}
