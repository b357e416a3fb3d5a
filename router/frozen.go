package router

import (
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// lookEvery is how often a request that waits looks at what probes have found.
func (s *Server) lookEvery() time.Duration { return probeHealthy * s.ProbeEvery }

// frozenMisses is how many probes in a row a frozen engine has not answered: a router
// that was stopped itself finds that one was not.
const frozenMisses = 3

// note remembers what came of a probe. Only silence counts as a miss: who refuses a
// connection may have stopped to listen while it works off what it has.
func (v *vitals) note(err error) {
	var late net.Error
	switch {
	case err == nil || errors.Is(err, errUnhealthy):
		v.answered.Store(time.Now().UnixNano())
		v.misses.Store(0)
	case errors.As(err, &late) && late.Timeout():
		v.misses.Add(1)
	default:
		v.misses.Store(0)
	}
}

// hearing is how exact heard is, since streams would else write it at every event.
const hearing = 100 * time.Millisecond

// hear remembers that something of an answer has come.
func (v *vitals) hear(now time.Time) {
	if at := now.UnixNano(); at-v.heard.Load() > int64(hearing) {
		v.heard.Store(at)
	}
}

// frozen says that for a time nothing has come from a pod of the rank's instance, and no
// probe was answered, though one was before. One that never answers tells nothing by that.
func (s *slot) frozen(now int64, after time.Duration) bool {
	return after > 0 && slices.ContainsFunc(s.kin, func(k *slot) bool {
		answered := k.answered.Load()
		return answered > 0 && k.misses.Load() >= frozenMisses && now-max(answered, k.heard.Load()) >= int64(after)
	})
}

// awaited are the engines that requests have waited for a while, one slot for each.
type awaited struct {
	mu       sync.Mutex
	requests map[*slot]int
}

// add counts n more requests that wait for the engines of a rank's instance.
func (w *awaited) add(of *slot, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.requests == nil {
		w.requests = map[*slot]int{}
	}
	for _, k := range of.kin {
		if w.requests[k] += n; w.requests[k] == 0 {
			delete(w.requests, k)
		}
	}
}

func (w *awaited) slots() []*slot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.requests))
}

// look says why a request is to wait no longer for its engines, else when to look again.
// silent is when prefill, or a stream's first event, is overdue.
func (a *attempt) look(silent time.Time, prefilled bool) (*failure, time.Duration) {
	now := time.Now()
	// An answer that is no stream comes whole, which may take long: only its prefill
	// must have ended.
	if !now.Before(silent) && (a.request.stream || !prefilled) {
		return a.silentLeg(codeSilent, prefilled), 0
	}
	if !a.awaits {
		a.awaits = true
		a.await(1)
	}
	for _, l := range []*leg{&a.prefill, &a.decode} {
		// What a prefill that has answered still does its engine's health does not tell.
		if l.role == kvlayout.Prefill && prefilled || !l.slot.frozen(now.UnixNano(), a.Frozen) || !a.movable(l.role, now) {
			continue
		}
		f := a.frozenEngine()
		f.leg, f.outcome = l.role, outcomeSilent
		return f, 0
	}
	next := a.lookEvery()
	if left := silent.Sub(now); left > 0 {
		next = min(next, left)
	}
	return nil, next
}

// frozenEngine is why a frozen engine is waited for no longer.
func (s *Server) frozenEngine() *failure {
	return &failure{
		status: http.StatusGatewayTimeout, code: codeFrozen,
		text: "the engine has answered nothing, its health included, for " + s.Frozen.String(),
	}
}

// await counts the request n times among those that wait for its engines.
func (a *attempt) await(n int) {
	a.awaited.add(a.pair.prefill, n)
	a.awaited.add(a.pair.decode, n)
}

// movable says that the request may be sent to a pair without the instance of a role, and
// that there is one whose engines answer: it does not leave one that hangs for another.
func (a *attempt) movable(without kvlayout.Role, now time.Time) bool {
	t, refusal := a.Registry.current.Load().table(a.request.model)
	if refusal != nil || len(a.history.tried) >= maxAttempts {
		return false
	}
	h := a.history
	h.failed = append(slices.Clip(h.failed), a.pair.of(without).instance)
	prefills, partners := h.left(t)
	answers := func(s *slot) bool { return !s.avoided(now.UnixNano()) }
	return slices.ContainsFunc(prefills, func(p *slot) bool {
		return answers(p) && slices.ContainsFunc(partners[p.instance], answers)
	})
}

// whenFrozen calls f when the instance of a rank is found frozen, until stop is called.
func (s *Server) whenFrozen(of *slot, f func()) (stop func()) {
	done := make(chan struct{})
	s.legs.Go(func() {
		s.awaited.add(of, 1)
		defer s.awaited.add(of, -1)
		look := time.NewTicker(s.lookEvery())
		defer look.Stop()
		for {
			select {
			case <-done:
				return
			case now := <-look.C:
				if of.frozen(now.UnixNano(), s.Frozen) {
					f()
				}
			}
		}
	})
	return func() { close(done) }
}

// healthSaid is what probes have found of an instance whose answer is overdue.
func (s *slot) healthSaid(now time.Time) string {
	for _, k := range s.kin {
		switch answered := k.answered.Load(); {
		case answered == 0:
			return "it has never answered a probe of its health"
		case k.misses.Load() > 0, k.avoid.Load() > now.UnixNano():
			return "it last answered a probe of its health " + now.Sub(time.Unix(0, answered)).Round(10*time.Millisecond).String() + " ago"
		}
	}
	return "it answers probes of its health"
}
