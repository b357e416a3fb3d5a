package router

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/router/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = time.Minute

// call is a request as an engine got it.
type call struct {
	path   string
	header http.Header
	body   string
}

// engine is a fake engine: it does what answer says.
type engine struct {
	*httptest.Server
	calls   chan call
	running atomic.Int64 // requests that are not answered
	answer  atomic.Pointer[func(w http.ResponseWriter, r *http.Request)]
}

func newEngine(t testing.TB) *engine {
	t.Helper()
	e := &engine{calls: make(chan call, 64)}
	e.does(func(w http.ResponseWriter, _ *http.Request) { reply200(w) })
	e.Server = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.running.Add(1)
		defer e.running.Add(-1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		select {
		case e.calls <- call{r.URL.Path, r.Header.Clone(), string(body)}:
		default:
		}
		(*e.answer.Load())(w, r)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *engine) does(f func(w http.ResponseWriter, r *http.Request)) { e.answer.Store(&f) }

// says answers with a status and a body.
func (e *engine) says(status int, body string) {
	e.does(func(w http.ResponseWriter, _ *http.Request) { reply(w, status, body) })
}

// hangs answers nothing until the request is cancelled.
func (e *engine) hangs() {
	e.does(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
}

// dies drops the connection.
func (e *engine) dies() {
	e.does(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
}

func (e *engine) port() int { return portOf(e.Server) }

func portOf(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }

const answer200 = `{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" a","finish_reason":"length"}]}`

func reply200(w http.ResponseWriter) { reply(w, http.StatusOK, answer200) }

func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// stream starts a stream of events; the function returned sends one.
func stream(w http.ResponseWriter) func(event string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	return func(event string) {
		_, _ = io.WriteString(w, event)
		_ = http.NewResponseController(w).Flush()
	}
}

// agent is a fake agent: it tells one reason of every transfer.
func newAgent(t testing.TB, status int, body string) *httptest.Server {
	t.Helper()
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/transfers/tx-") {
			status = http.StatusNotFound
		}
		reply(w, status, body)
	}))
	t.Cleanup(s.Close)
	return s
}

// rig is a router before one prefill and one decode.
type rig struct {
	*Server
	http            *httptest.Server
	source          *Source
	prefill, decode *engine
	instances       []Instance // prefill, decode
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	r := &rig{prefill: newEngine(t), decode: newEngine(t)}
	registry := NewRegistry()
	r.source = registry.Source("test")
	o := Defaults()
	o.Registry, o.Log, o.Random = registry, slog.New(slog.DiscardHandler), rand.IntN
	o.Policy = func() policy.Policy { return policy.LeastLoaded{} }
	o.Dial = patience
	for _, c := range change {
		c(&o)
	}
	r.Server = NewServer(o)
	if n := networkOf(t); n != nil {
		n.join(r.Server)
	}
	r.http = serve(t, r.Handler())
	t.Cleanup(func() {
		r.http.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		r.Close(ctx)
	})
	r.instances = []Instance{
		instanceAt(kvlayout.Prefill, r.prefill.port()),
		instanceAt(kvlayout.Decode, r.decode.port()),
	}
	r.publish()
	return r
}

func (r *rig) publish() { r.source.Publish(r.instances) }

// instanceAt is an instance of DeepSeek-R1 at TP 4, decode with DCP 4.
func instanceAt(role kvlayout.Role, port int) Instance {
	g, _ := kvlayout.Lookup("deepseek-ai/DeepSeek-R1")
	i := Instance{
		Namespace: "ns", Pool: "pool", Role: role, Pairing: "key", Revision: "r1",
		Layout: kvlayout.Layout{TP: 4}, Block: 64, KVType: kvlayout.BF16, KV: g,
		Engine: kvlayout.Simulator, Mover: kvlayout.MoverAgent, Mode: kvlayout.Write, Model: "m",
		Ready: true,
		Pods:  []Pod{{Name: string(role) + "-0", Node: "n1", Host: "127.0.0.1", HTTP: port, Handshake: port%1000 + 2000, Notify: port%1000 + 4000}},
	}
	if role == kvlayout.Decode {
		i.Layout.DCP, i.Layout.Interleave = 4, 64
	}
	return i
}

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// code is error.code of the body.
func (a answer) code(t testing.TB) string {
	t.Helper()
	return a.error(t)["code"].(string)
}

func (a answer) message(t testing.TB) string {
	t.Helper()
	return a.error(t)["message"].(string)
}

func (a answer) error(t testing.TB) map[string]any {
	t.Helper()
	var v struct{ Error map[string]any }
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Error == nil {
		t.Fatalf("status %d: not an OpenAI error: %q (%v)", a.status, a.body, err)
	}
	return v.Error
}

func (r *rig) post(t testing.TB, path, body string, headers ...string) answer {
	t.Helper()
	response := r.open(context.Background(), t, path, body, headers...)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text), err}
}

// open sends a request and returns when its answer begins.
func (r *rig) open(ctx context.Context, t testing.TB, path, body string, headers ...string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.http.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := r.http.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

const simple = `{"model":"m","prompt":"hi","max_tokens":8}`

const streamed = `{"model":"m","prompt":"hi","max_tokens":8,"stream":true}`

// next waits for something.
func next[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("%s did not come within %v", what, patience)
	}
	panic("not reached")
}

// eventually waits until the state of the world is as wanted.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// cancelled waits until a leg that an engine would never answer has ended on both
// sides.
func (r *rig) cancelled(t testing.TB, role kvlayout.Role) {
	t.Helper()
	e := map[kvlayout.Role]*engine{kvlayout.Prefill: r.prefill, kvlayout.Decode: r.decode}[role]
	eventually(t, "the end of the "+string(role)+" leg", func() bool {
		return e.running.Load() == 0 && metric(t, r.OpsHandler(), `pdpool_router_legs_total{outcome="cancelled",role="`+string(role)+`"}`) > 0
	})
}

func metricLine(t testing.TB, h http.Handler, name string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func metric(t testing.TB, h http.Handler, name string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(metricLine(t, h, name), 64)
	if err != nil {
		return 0
	}
	return v
}

func lines(n int) string { return fmt.Sprintf("data: {\"n\":%d}\n\n", n) }
