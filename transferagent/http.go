package transferagent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pdpool/pdpool/places"
	"github.com/pdpool/pdpool/transferagent/session"
)

const (
	httpHeaderWithin = 5 * time.Second
	httpReadWithin   = 10 * time.Second
	httpWriteWithin  = 30 * time.Second
	httpIdleWithin   = 5 * time.Second // connecting anew is cheap
	httpBody         = 4 << 10
	httpHeader       = 16 << 10
	askWithin        = 2 * time.Second
)

// Connections that the HTTP port serves at a time. A prober opens one for each probe,
// a scraper keeps one; a host that wants more must not take the probes' places.
const (
	httpConns     = 512
	httpHostConns = 32
)

// health is what the HTTP port asks. Probes and drain are answered by nil or the reason.
type health interface {
	alive() error
	ready(ctx context.Context) error
	// drain stops taking part and returns when nothing is live, or with ctx's error.
	drain(ctx context.Context) error
	// transfer tells the state of one transfer, false when it is not known.
	transfer(ctx context.Context, id string) (transferView, bool, error)
	// transfers lists the live ones.
	transfers(ctx context.Context) ([]session.Transfer, error)
}

// transferView is the answer of /transfers/{id}.
type transferView struct {
	session.Transfer
	// Received is what peers wrote here, counted by the own mover.
	Received []receivedFlow `json:"received,omitempty"`
}

type receivedFlow struct {
	WriterDP int   `json:"writerDP"`
	WriterTP int   `json:"writerTP"`
	ReaderDP int   `json:"readerDP"`
	ReaderTP int   `json:"readerTP"`
	Bytes    int64 `json:"bytes"`
}

// newServer makes the HTTP server of the agent; the caller serves and ends it.
func newServer(h health, m *metrics, g gate, drainWithin time.Duration) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answerProbe(w, h.alive()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askWithin)
		defer cancel()
		answerProbe(w, h.ready(ctx))
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Timeout: httpReadWithin}))
	mux.HandleFunc("GET /transfers/{id}", func(w http.ResponseWriter, r *http.Request) { serveTransfer(w, r, h) })
	mux.HandleFunc("GET /debug/transfers", g.debug(func(w http.ResponseWriter, r *http.Request) { serveTransfers(w, r, h) }))
	drain := g.drains(func(w http.ResponseWriter, r *http.Request) { serveDrain(w, r, h, drainWithin) })
	mux.HandleFunc("GET /drain", drain)
	mux.HandleFunc("POST /drain", drain)
	return &http.Server{
		Handler:           places.Keep(http.MaxBytesHandler(mux, httpBody)),
		ConnContext:       places.ConnContext,
		ReadHeaderTimeout: httpHeaderWithin,
		ReadTimeout:       httpReadWithin,
		WriteTimeout:      httpWriteWithin,
		IdleTimeout:       httpIdleWithin,
		MaxHeaderBytes:    httpHeader,
	}
}

func answerProbe(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok") //nolint:errcheck // the prober has gone
}

func serveTransfer(w http.ResponseWriter, r *http.Request, h health) {
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	t, ok, err := h.transfer(ctx, r.PathValue("id"))
	switch {
	case err != nil:
		answer(w, http.StatusServiceUnavailable, problem{err.Error()})
	case !ok:
		answer(w, http.StatusNotFound, problem{"the transfer is not known here"})
	default:
		answer(w, http.StatusOK, t)
	}
}

func serveTransfers(w http.ResponseWriter, r *http.Request, h health) {
	ctx, cancel := context.WithTimeout(r.Context(), askWithin)
	defer cancel()
	ts, err := h.transfers(ctx)
	if err != nil {
		answer(w, http.StatusServiceUnavailable, problem{err.Error()})
		return
	}
	answer(w, http.StatusOK, struct {
		Transfers []session.Transfer `json:"transfers"`
	}{ts})
}

// serveDrain answers when nothing is live (200) or at the deadline (504, which
// the kubelet records as an event of the pod).
func serveDrain(w http.ResponseWriter, r *http.Request, h health, within time.Duration) {
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(within + httpWriteWithin)); err != nil {
		answer(w, http.StatusInternalServerError, problem{err.Error()})
		return
	}
	if err := h.drain(ctx); err != nil {
		answer(w, http.StatusGatewayTimeout, problem{fmt.Sprintf("not everything has ended: %v", err)})
		return
	}
	answer(w, http.StatusOK, struct {
		Drained bool `json:"drained"`
	}{true})
}

type problem struct {
	Error string `json:"error"`
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body) //nolint:errcheck // the client has gone
}
