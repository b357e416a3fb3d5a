package router

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pdpool/pdpool/kvlayout"
)

// TransferHeader carries the id of a request's transfer on every answer of a request
// that was dispatched: what to ask the agents about.
const TransferHeader = "X-PDPool-Transfer"

// Why legs are ended.
var (
	errClientGone = errors.New("the client has gone")
	errAnswered   = errors.New("the request is answered")
	errTooOld     = errors.New("the request is too old")
)

// prefillGrace is how long a prefill leg may go on when decode has answered already,
// as it does to short answers.
const prefillGrace = 5 * time.Second

// maxLingering bounds the requests whose legs are left open for stock engines.
const maxLingering = 256

// exchange is one request with its two legs. Both are sent at once; what fails first
// ends it.
type exchange struct {
	*Server
	w        http.ResponseWriter
	client   *http.Request
	request  *request
	pair     pair
	transfer string
	began    time.Time

	life    context.Context //nolint:containedctx // of both legs, which may outlive the client's request
	endLife context.CancelFunc
	running atomic.Int32 // legs that have not ended
	prefill leg
	decode  leg

	opened    chan *opened  // decode's answer, for who waits for it
	left      chan struct{} // closed when nobody waits any more
	lingers   atomic.Bool   // decode was left open: to be ended when it answers
	streaming atomic.Bool   // decode's answer is on its way to the client
	answered  bool          // decode no longer waits for rows
	sent      bool          // something was sent to the client
}

// leg is one request to an engine.
type leg struct {
	role   kvlayout.Role
	slot   *slot
	ctx    context.Context //nolint:containedctx // the leg's own life
	cancel context.CancelCauseFunc

	done   chan struct{} // prefill only: closed when it has ended; failed holds then
	failed *failure
	over   atomic.Bool
}

// serveLegs serves a request that has two legs.
func (s *Server) serveLegs(w http.ResponseWriter, r *http.Request) {
	began, endpoint := time.Now(), r.URL.Path
	id := r.Header.Get("X-Request-Id")
	if checkID(id) == nil && id != "" {
		w.Header().Set("X-Request-Id", id)
	}
	body, f := s.read(w, r)
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
	if !s.enter() {
		s.refuse(w, endpoint, tooMany())
		return
	}
	defer s.leave()
	p, f := s.choose(request.model)
	if f != nil {
		s.refuse(w, endpoint, f)
		return
	}
	x := s.newExchange(w, r, request, p, began)
	code := x.run() //nolint:contextcheck // legs outlive the client where a stock engine wants it
	s.metrics.requests.WithLabelValues(endpoint, code).Inc()
	s.metrics.seconds.WithLabelValues(endpoint).Observe(time.Since(began).Seconds())
	if code == codeBroken && !x.request.stream {
		// The only way to tell that what was sent is not all.
		panic(http.ErrAbortHandler)
	}
}

// refuse answers a request that no leg was sent for.
func (s *Server) refuse(w http.ResponseWriter, endpoint string, f *failure) {
	s.metrics.request(endpoint, f.status)
	f.write(w, s.Idle)
}

func (s *Server) newExchange(w http.ResponseWriter, r *http.Request, q *request, p pair, began time.Time) *exchange {
	x := &exchange{
		Server: s, w: w, client: r, request: q, pair: p, began: began,
		transfer: transferPrefix + uuid.NewString(),
		opened:   make(chan *opened), left: make(chan struct{}),
	}
	x.life, x.endLife = context.WithTimeoutCause(s.last, s.Request, errTooOld)
	x.running.Store(2)
	for _, l := range []*leg{&x.prefill, &x.decode} {
		l.done = make(chan struct{})
		l.ctx, l.cancel = context.WithCancelCause(x.life)
	}
	x.prefill.role, x.prefill.slot = kvlayout.Prefill, p.prefill
	x.decode.role, x.decode.slot = kvlayout.Decode, p.decode
	w.Header().Set(TransferHeader, x.transfer)
	return x
}

// run sends both legs and answers the client. It returns what the request counts as.
func (x *exchange) run() string {
	id := x.pair.requestID(x.request.id, x.transfer)
	for _, l := range []*leg{&x.prefill, &x.decode} {
		l.slot.open.Add(1)
		body := x.request.body(l.role, x.pair.params(l.role, x.transfer))
		r := newLeg(l.slot, x.request.endpoint, x.pair.legHeader(x.client.Header, l.role, id), body).WithContext(l.ctx)
		if l.role == kvlayout.Prefill {
			x.legs.Go(func() { x.runPrefill(r) })
		} else {
			x.legs.Go(func() { x.openDecode(r) })
		}
	}
	o, f := x.wait()
	close(x.left)
	if f != nil {
		return x.fail(f)
	}
	x.answered = true
	defer x.finish(&x.decode)
	if o.failed != nil {
		return x.fail(o.failed)
	}
	return x.relay(o)
}

// wait returns decode's answer, or what went wrong before there was one. A prefill
// that has answered is no news: its rows may still be on their way.
func (x *exchange) wait() (*opened, *failure) {
	prefilled := x.prefill.done
	var silent <-chan time.Time
	if x.request.stream {
		t := time.NewTimer(x.Answer)
		defer t.Stop()
		silent = t.C
	}
	for {
		select {
		case <-prefilled:
			if x.prefill.failed != nil {
				return nil, x.prefill.failed
			}
			prefilled = nil
		case o := <-x.opened:
			return o, nil
		case <-silent:
			return nil, x.silentLeg(codeSilent, prefilled == nil)
		case <-x.life.Done():
			if context.Cause(x.life) == errShutdown { //nolint:errorlint // a cause is returned as given
				return nil, unavailable(codeShuttingDown, errShutdown.Error(), 1)
			}
			return nil, x.silentLeg(codeTooOld, prefilled == nil)
		case <-x.client.Context().Done():
			return nil, &failure{code: codeClientGone, text: errClientGone.Error()}
		}
	}
}

// silentLeg blames the leg that is waited for: decode waits for prefill.
func (x *exchange) silentLeg(code string, prefilled bool) *failure {
	f := &failure{
		leg: kvlayout.Prefill, status: http.StatusGatewayTimeout, code: code, outcome: outcomeSilent,
		text: "no answer within " + time.Since(x.began).Round(time.Second).String(),
	}
	if prefilled {
		f.leg = kvlayout.Decode
	}
	return f
}

// fail ends both legs and tells the client, if it is still there. The agents are
// asked first: to them the end of a leg is a reason of its own.
func (x *exchange) fail(f *failure) string {
	if f.code == codeClientGone {
		x.abandon(errClientGone)
		x.log.Info("client gone", "transfer", x.transfer, "request", x.request.id)
		return codeClientGone
	}
	f = x.explain(f)
	x.abandon(f)
	x.log.Warn("request failed", "transfer", x.transfer, "request", x.request.id, "leg", f.leg, "code", f.code, "status", f.status,
		"reason", f.text, "prefill", x.pair.prefill.pod.address(), "decode", x.pair.decode.pod.address(), "streaming", x.sent)
	if x.sent {
		x.breakStream(f)
		return codeBroken
	}
	f.write(x.w, x.Idle)
	if f.asIs != nil {
		return strconv.Itoa(f.asIs.status)
	}
	return strconv.Itoa(f.status)
}

// explain adds what the agents know of a failed transfer, unless the engine has told.
func (x *exchange) explain(f *failure) *failure {
	if f.leg == "" || f.asIs != nil || f.told {
		return f
	}
	r, ok := x.ask(context.WithoutCancel(x.life), x.pair, x.transfer, f.leg)
	if !ok {
		return f
	}
	told := *f
	told.code = r.Rule
	if told.text = r.Text; told.text == "" {
		told.text = f.text
	}
	return &told
}

// abandon ends both legs. A stock decode that waits for its rows keeps its blocks
// for ever when it is cancelled, and so it does when its prefill is: both go on
// until decode answers or the request is too old.
func (x *exchange) abandon(why error) {
	if x.pair.mover() == kvlayout.MoverEngine && !x.answered && x.linger() {
		return
	}
	x.prefill.cancel(why)
	x.decode.cancel(why)
}

// linger leaves the legs open, if not too many are.
func (x *exchange) linger() bool {
	if x.lingering.Add(1) > maxLingering {
		x.lingering.Add(-1)
		return false
	}
	x.metrics.lingering.Inc()
	x.lingers.Store(true)
	if x.decode.over.Load() { // it has ended meanwhile, and may not have seen the mark
		x.endLinger()
		return false
	}
	return true
}

func (x *exchange) endLinger() {
	if x.lingers.CompareAndSwap(true, false) {
		x.lingering.Add(-1)
		x.metrics.lingering.Dec()
		x.prefill.cancel(errAnswered)
	}
}

// finish counts a leg as ended, once.
func (x *exchange) finish(l *leg) {
	if l.over.Swap(true) {
		return
	}
	l.slot.open.Add(-1)
	l.cancel(errAnswered)
	if l.role == kvlayout.Decode {
		x.endLinger()
	}
	if x.running.Add(-1) == 0 {
		x.endLife()
	}
}
