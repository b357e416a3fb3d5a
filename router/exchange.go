package router

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Headers of every answer of a request that was dispatched.
const (
	// TransferHeader carries the id of the last attempt's transfer: what to ask the
	// agents about.
	TransferHeader = "X-PDPool-Transfer"
	// AttemptsHeader carries how many pairs were tried, the one that answered included.
	AttemptsHeader = "X-PDPool-Attempts"
)

// Why legs are ended.
var (
	errClientGone = errors.New("the client has gone")
	errAnswered   = errors.New("the request is answered")
	errTooOld     = errors.New("the request is too old")
)

// exchange is one request of a client, with all attempts to serve it.
type exchange struct {
	*Server
	w       http.ResponseWriter
	client  *http.Request
	request *request
	began   time.Time
	until   time.Time // when the request is too old
	history history
	sent    bool // something was sent to the client
}

// serveLegs serves a request that has two legs.
func (s *Server) serveLegs(w http.ResponseWriter, r *http.Request) {
	began, endpoint := time.Now(), r.URL.Path
	id := r.Header.Get("X-Request-Id")
	if checkID(id) == nil && id != "" {
		w.Header().Set("X-Request-Id", id)
	}
	body, f := s.read(r)
	if f != nil {
		s.refuse(w, endpoint, f)
		return
	}
	defer body.release()
	request, f := inspect(endpoint, id, body.text)
	if f != nil {
		s.refuse(w, endpoint, f)
		return
	}
	age, f := s.age(r.Header)
	if f != nil {
		s.refuse(w, endpoint, f)
		return
	}
	x := &exchange{Server: s, w: w, client: r, request: request, began: began, until: began.Add(age)}
	p, f := x.admit(r.Context())
	if f != nil {
		s.refuse(w, endpoint, f)
		return
	}
	defer s.leave()
	code := x.run(p) //nolint:contextcheck // legs outlive the client where a stock engine wants it
	s.metrics.requests.WithLabelValues(endpoint, code).Inc()
	s.metrics.seconds.WithLabelValues(endpoint).Observe(time.Since(began).Seconds())
	if code == codeBroken && !x.request.stream {
		// The only way to tell that what was sent is not all.
		panic(http.ErrAbortHandler)
	}
}

// admit waits for a place among the requests in work, which the caller gives back,
// and chooses the first pair. A request that no pair can take does not wait.
func (x *exchange) admit(ctx context.Context) (pair, *failure) {
	if _, f := x.serves(x.request.model); f != nil {
		return pair{}, f
	}
	if f := x.enter(ctx, x.began, x.until); f != nil {
		return pair{}, f
	}
	p, f := x.choose(x.request.model)
	if f != nil {
		x.leave()
	}
	return p, f
}

// refuse answers a request that no leg was sent for.
func (s *Server) refuse(w http.ResponseWriter, endpoint string, f *failure) {
	if f.code == codeClientGone {
		s.metrics.requests.WithLabelValues(endpoint, codeClientGone).Inc()
		return
	}
	if f.limit != "" {
		s.metrics.limited.WithLabelValues(f.limit).Inc()
	}
	s.metrics.request(endpoint, f.status)
	f.write(w, s.Idle)
}

// run tries pairs until one answers, and returns what the request counts as.
func (x *exchange) run(p pair) string {
	for {
		a := x.newAttempt(p)
		o, f := a.open()
		if f == nil {
			return a.relay(o)
		}
		next, again := a.another(&f)
		if !again {
			return a.fail(f)
		}
		a.log.Info("request retried", "transfer", a.transfer, "request", x.request.id, "leg", f.leg, "code", f.code, "reason", f.text,
			"prefill", p.prefill.pod.address(), "decode", p.decode.pod.address())
		a.abandon(f)
		p = next
	}
}

// fail ends both legs and tells the client, if it is still there. The agents are
// asked first: to them the end of a leg is a reason of its own.
func (a *attempt) fail(f *failure) string {
	if f.code == codeClientGone {
		a.abandon(errClientGone)
		a.log.Info("client gone", "transfer", a.transfer, "request", a.request.id)
		return codeClientGone
	}
	f = a.explain(f)
	a.abandon(f)
	a.log.Warn("request failed", "transfer", a.transfer, "request", a.request.id, "leg", f.leg, "code", f.code, "status", f.status,
		"reason", f.text, "prefill", a.pair.prefill.pod.address(), "decode", a.pair.decode.pod.address(),
		"attempts", len(a.history.tried), "streaming", a.sent)
	if a.sent {
		a.breakStream(f)
		return codeBroken
	}
	f.write(a.w, a.Idle)
	if f.asIs != nil {
		return strconv.Itoa(f.asIs.status)
	}
	return strconv.Itoa(f.status)
}

// explain adds what the agents know of a failed transfer, unless the engine has told. Of
// a request that is too old they know that the router has ended it.
func (a *attempt) explain(f *failure) *failure {
	if f.leg == "" || f.asIs != nil || f.told || f.code == codeTooOld {
		return f
	}
	told := *f
	told.told = true // nobody knows more
	r, ok := a.ask(a.pair, a.transfer, f.leg)
	if !ok {
		return &told
	}
	told.code = r.Rule
	if told.text = r.Text; told.text == "" {
		told.text = f.text
	}
	return &told
}
