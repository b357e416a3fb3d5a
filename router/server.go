package router

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pdpool/pdpool/router/policy"
	"github.com/pdpool/pdpool/router/wire"
)

// Options are what a Server is made of. Every limit must be set; Defaults sets them.
type Options struct {
	Registry *Registry
	// Policy makes the policy of each role.
	Policy func() policy.Policy
	Log    *slog.Logger
	// Random returns a number from 0 to n-1.
	Random func(n int) int

	MaxBody     int64 // bytes of one request's body
	MaxBuffered int64 // bytes of the bodies of all requests that are not answered
	MaxInflight int   // requests in work: that were sent to a pair and are not answered
	MaxPerRank  int   // of those with one decode rank; 0: any number
	MaxQueue    int   // requests that wait to be in work

	Dial time.Duration // to connect to an engine
	Body time.Duration // for a client to send its body
	// ProbeEvery is how often Probe asks engines that are suspected for their health.
	ProbeEvery  time.Duration
	ProbeWithin time.Duration // for an engine to answer a probe
	// Frozen is how long an engine has answered no probe when requests that wait for it
	// are sent to another pair; 0: they wait for their deadlines.
	Frozen time.Duration

	Queue   time.Duration // to wait to be in work
	Answer  time.Duration // to prefill's answer, and to the first event of a streamed one
	Idle    time.Duration // without a byte in a streamed answer, or without the client taking one
	Request time.Duration // for all of a request
}

// Defaults are the limits of a Server that is told none.
func Defaults() Options {
	return Options{
		MaxBody: 32 << 20, MaxBuffered: 512 << 20, MaxInflight: 1024, MaxQueue: 1024,
		ProbeEvery: 250 * time.Millisecond, ProbeWithin: time.Second, Frozen: 10 * time.Second,
		Dial: 3 * time.Second, Body: time.Minute, Queue: 10 * time.Second, Answer: 5 * time.Minute, Idle: 2 * time.Minute, Request: 10 * time.Minute,
	}
}

// Server answers clients. Close ends what it has left behind.
type Server struct {
	Options
	log       *slog.Logger
	metrics   *metrics
	transport *wire.Client
	started   time.Time
	policies  struct{ prefill, decode policy.Policy }

	readers   readers
	gate      gate
	awaited   awaited
	lingering atomic.Int64
	ending    atomic.Bool

	// legs counts goroutines; last is done when they have to end.
	legs running
	last context.Context //nolint:containedctx // the server's life, over which legs outlive their requests
	end  context.CancelCauseFunc
}

// errShutdown ends legs when the router does.
var errShutdown = errors.New("the router is shutting down")

// NewServer makes a server that takes its instances from o.Registry.
func NewServer(o Options) *Server {
	s := &Server{Options: o, log: o.Log, transport: newTransport(o.Dial), started: time.Now()}
	s.metrics = newMetrics(s)
	s.policies.prefill, s.policies.decode = o.Policy(), o.Policy()
	s.last, s.end = context.WithCancelCause(context.Background())
	// Ranks that come have places for who waits.
	s.Registry.whenChanged(func() { s.gate.wake(s.mostInWork()) })
	return s
}

// Metrics is where the router's metrics are registered; sources add theirs.
func (s *Server) Metrics() prometheus.Registerer { return s.metrics.registry }

// Handler serves clients, and health and metrics beside them.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+completions, s.serveLegs)
	mux.HandleFunc("POST "+chatCompletions, s.serveLegs)
	mux.HandleFunc("GET /v1/models", s.serveModels)
	mux.HandleFunc("POST /tokenize", s.serveTokenize)
	mux.HandleFunc("GET /health", s.serveAlive)
	mux.HandleFunc("GET /ready", s.serveReady)
	mux.Handle("GET /metrics", s.metricsHandler())
	return s.reading(s.elsewhere(mux))
}

// elsewhere answers what no pattern of mux takes in OpenAI's form.
func (s *Server) elsewhere(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.ending.Load() {
			// The connection would be closed under the client's next request.
			w.Header().Set("Connection", "close")
		}
		// The mux would send a path that is not clean elsewhere.
		if _, pattern := mux.Handler(r); pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
			mux.ServeHTTP(w, r)
			return
		}
		f := &failure{status: http.StatusNotFound, code: codeNotFound, text: fmt.Sprintf("there is no %.16s %.128s here", r.Method, r.URL.Path)}
		if allowed := methods(mux, r); allowed != "" {
			w.Header().Set("Allow", allowed)
			f.status, f.code, f.text = http.StatusMethodNotAllowed, codeMethod, fmt.Sprintf("%.128s takes %s, not %.16s", r.URL.Path, allowed, r.Method)
		}
		s.metrics.request("other", f.status)
		f.write(w, s.Idle)
	})
}

// methods lists those that mux takes for a request's path, as in the header Allow.
func methods(mux *http.ServeMux, r *http.Request) string {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
		other := *r
		other.Method = method
		if _, pattern := mux.Handler(&other); pattern != "" && path.Clean(r.URL.Path) == r.URL.Path {
			allowed = append(allowed, method)
		}
	}
	return strings.Join(allowed, ", ")
}

// OpsHandler serves probes and metrics on a port that clients don't reach.
func (s *Server) OpsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.serveAlive)
	mux.HandleFunc("GET /readyz", s.serveReady)
	mux.Handle("GET /metrics", s.metricsHandler())
	return mux
}

func (s *Server) metricsHandler() http.Handler {
	return promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{Timeout: 10 * time.Second})
}

func (s *Server) serveAlive(w http.ResponseWriter, _ *http.Request) {
	_, _ = fmt.Fprintln(w, "ok") // the prober may have gone
}

// serveReady says whether new requests should come here. A router without any pair
// is ready: it answers why.
func (s *Server) serveReady(w http.ResponseWriter, r *http.Request) {
	waiting := s.Registry.Waiting()
	switch {
	case s.ending.Load():
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
	case len(waiting) > 0:
		http.Error(w, fmt.Sprintf("waiting for the first list of instances from %q", waiting), http.StatusServiceUnavailable)
	default:
		s.serveAlive(w, r)
	}
}

// Unready makes the readiness probe fail, so that nothing new comes; what comes all
// the same is served.
func (s *Server) Unready() { s.ending.Store(true) }

// Close waits for legs until ctx ends, then ends those that are left, whose requests
// are told, and closes all connections to engines. No request may come any more.
func (s *Server) Close(ctx context.Context) {
	select {
	case <-s.legs.ended():
	case <-ctx.Done():
	}
	s.end(errShutdown)
	<-s.legs.ended()
	s.transport.CloseIdleConnections()
}
