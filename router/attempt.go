package router

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/pdpool/pdpool/kvlayout"
)

// prefillGrace is how long a prefill leg may go on when decode has answered already,
// as it does to short answers.
const prefillGrace = 5 * time.Second

// maxLingering bounds the attempts whose legs are left open for stock engines.
const maxLingering = 256

// attempt is one try of a request on one pair, under ids of its own. Both legs are
// sent at once; what fails first ends it.
type attempt struct {
	*exchange
	pair     pair
	transfer string

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
	awaits    bool          // counted among those that wait for its engines
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

// newAttempt makes the next attempt of a request.
func (x *exchange) newAttempt(p pair) *attempt {
	a := &attempt{
		exchange: x, pair: p, transfer: transferPrefix + uuid.NewString(),
		opened: make(chan *opened), left: make(chan struct{}),
	}
	a.life, a.endLife = context.WithDeadlineCause(x.last, x.until, errTooOld)
	a.running.Store(2)
	for _, l := range []*leg{&a.prefill, &a.decode} {
		l.ctx, l.cancel = context.WithCancelCause(a.life)
	}
	a.prefill.done = make(chan struct{})
	a.prefill.role, a.prefill.slot = kvlayout.Prefill, p.prefill
	a.decode.role, a.decode.slot = kvlayout.Decode, p.decode
	x.history.add(p)
	x.w.Header().Set(TransferHeader, a.transfer)
	x.w.Header().Set(AttemptsHeader, strconv.Itoa(len(x.history.tried)))
	return a
}

// open sends both legs and returns decode's answer when it has begun, or why there
// is none.
func (a *attempt) open() (*opened, *failure) {
	id := a.pair.requestID(a.request.id, a.transfer)
	for _, l := range []*leg{&a.prefill, &a.decode} {
		l.slot.open.Add(1)
		body := a.request.body(l.role, a.pair.params(l.role, a.transfer))
		r := newLeg(l.slot, a.request.endpoint, a.pair.legHeader(a.client.Header, l.role, id), body).WithContext(l.ctx)
		if l.role == kvlayout.Prefill {
			a.legs.Go(func() { a.runPrefill(r) })
		} else {
			a.legs.Go(func() { a.openDecode(r) })
		}
	}
	o, f := a.wait()
	close(a.left)
	if f != nil {
		return nil, f
	}
	a.answered = true
	if f = o.failed; f == nil {
		// From here on a prefill that fails ends decode's leg.
		a.streaming.Store(true)
		f = a.prefillFailure()
		if f == nil {
			return o, nil
		}
		a.count(&a.decode, &failure{outcome: outcomeCancelled})
		o.close()
	}
	a.finish(&a.decode)
	return nil, f
}

// prefillFailure is why prefill's leg has failed; nil when it has not so far.
func (a *attempt) prefillFailure() *failure {
	select {
	case <-a.prefill.done:
		return a.prefill.failed
	default:
		return nil
	}
}

// wait returns decode's answer, or what went wrong before there was one. A prefill
// that has answered is no news: its rows may still be on their way.
func (a *attempt) wait() (*opened, *failure) {
	prefilled := a.prefill.done
	silent := time.Now().Add(a.Answer)
	look := time.NewTimer(min(a.lookEvery(), a.Answer))
	defer look.Stop()
	defer func() {
		if a.awaits {
			a.await(-1)
		}
	}()
	for {
		select {
		case <-prefilled:
			if a.prefill.failed != nil {
				return nil, a.prefill.failed
			}
			prefilled = nil
		case o := <-a.opened:
			return o, nil
		case <-look.C:
			f, next := a.look(silent, prefilled == nil)
			if f != nil {
				return nil, f
			}
			look.Reset(next)
		case <-a.life.Done():
			if context.Cause(a.life) == errShutdown { //nolint:errorlint // a cause is returned as given
				return nil, shuttingDown()
			}
			return nil, a.silentLeg(codeTooOld, prefilled == nil)
		case <-a.client.Context().Done():
			return nil, gone()
		}
	}
}

// silentLeg blames the leg that is waited for: decode waits for prefill.
func (a *attempt) silentLeg(code string, prefilled bool) *failure {
	l := &a.prefill
	if prefilled {
		l = &a.decode
	}
	now := time.Now()
	f := &failure{
		leg: l.role, status: http.StatusGatewayTimeout, code: code, outcome: outcomeSilent,
		text: "no answer within " + now.Sub(a.began).Round(10*time.Millisecond).String() + "; " + l.slot.healthSaid(now),
	}
	if code == codeSilent {
		a.suspect(l.slot, code, holdSilent)
	}
	return f
}

// abandon ends both legs. A stock decode that waits for its rows keeps its blocks
// for ever when it is cancelled, and so it does when its prefill is: both go on
// until decode answers or the request is too old.
func (a *attempt) abandon(why error) {
	if a.pair.mover() == kvlayout.MoverEngine && !a.answered && a.linger() {
		return
	}
	a.prefill.cancel(why)
	a.decode.cancel(why)
}

// linger leaves the legs open, if not too many are.
func (a *attempt) linger() bool {
	if a.lingering.Add(1) > maxLingering {
		a.lingering.Add(-1)
		return false
	}
	a.metrics.lingering.Inc()
	a.lingers.Store(true)
	if a.decode.over.Load() { // it has ended meanwhile, and may not have seen the mark
		a.endLinger()
		return false
	}
	return true
}

func (a *attempt) endLinger() {
	if a.lingers.CompareAndSwap(true, false) {
		a.lingering.Add(-1)
		a.metrics.lingering.Dec()
		a.prefill.cancel(errAnswered)
	}
}

// endPrefill lets a prefill leg that goes on after decode's whole answer do so for a
// moment: it tells nothing new.
func (a *attempt) endPrefill() {
	select {
	case <-a.prefill.done:
		return
	default:
	}
	a.legs.Go(func() {
		grace := time.NewTimer(prefillGrace)
		defer grace.Stop()
		select {
		case <-a.prefill.done:
		case <-grace.C:
			a.prefill.cancel(errAnswered)
		}
	})
}

// finish counts a leg as ended, once.
func (a *attempt) finish(l *leg) {
	if l.over.Swap(true) {
		return
	}
	l.slot.open.Add(-1)
	l.cancel(errAnswered)
	if l.role == kvlayout.Decode {
		a.endLinger()
	}
	if a.running.Add(-1) == 0 {
		a.endLife()
	}
}
