package router

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Limits that refuse requests, as their metric tells them.
const (
	limitBody         = "body-bytes"
	limitBodyTime     = "body-time"
	limitBuffered     = "buffered-bytes"
	limitHostBuffered = "host-buffered-bytes"
	limitReaders      = "readers"
	limitHostReaders  = "host-readers"
	limitQueue        = "queue-length"
	limitQueueTime    = "queue-time"
	limitFields       = "fields"
	limitDepth        = "depth"
	limitID           = "request-id-bytes"
)

// AgeHeader lets a client give up on its request earlier than the router would: a
// number of seconds.
const AgeHeader = "X-PDPool-Timeout"

// age is how old a request may become.
func (s *Server) age(h http.Header) (time.Duration, *failure) {
	text := h.Get(AgeHeader)
	if text == "" {
		return s.Request, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds > 0) {
		return 0, refused(codeBadValue, AgeHeader, fmt.Sprintf("%s is %.32q, not a number of seconds more than 0", AgeHeader, text))
	}
	if seconds >= s.Request.Seconds() {
		return s.Request, nil
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// gate lets so many requests into work at once and keeps some waiting, first come
// first served.
type gate struct {
	mu      sync.Mutex
	inWork  int
	waiting list.List // of chan struct{}, which is closed when it is their turn
}

// enter lets a request in, or gives it a place in the queue, or neither where the
// queue is full.
func (g *gate) enter(most, queue int) (place *list.Element, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.inWork < most && g.waiting.Len() == 0:
		g.inWork++
		return nil, true
	case g.waiting.Len() >= queue:
		return nil, false
	}
	return g.waiting.PushBack(make(chan struct{})), true
}

// leave gives a place back.
func (g *gate) leave(most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inWork--
	g.fill(most)
}

// wake tells of places that have come from elsewhere.
func (g *gate) wake(most int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fill(most)
}

// fill gives places to who waits for longest. The caller holds mu.
func (g *gate) fill(most int) {
	for g.inWork < most {
		first := g.waiting.Front()
		if first == nil {
			return
		}
		g.waiting.Remove(first)
		close(first.Value.(chan struct{}))
		g.inWork++
	}
}

// quit gives up a place in the queue; false when it has become one in work meanwhile.
func (g *gate) quit(place *list.Element) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-place.Value.(chan struct{}):
		return false
	default:
	}
	g.waiting.Remove(place)
	return true
}

// full says that a request would find no place.
func (g *gate) full(most, queue int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting.Len() >= queue && (g.inWork >= most || g.waiting.Len() > 0)
}

// count is the number of requests in work and of those that wait.
func (g *gate) count() (inWork, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inWork, g.waiting.Len()
}

// mostInWork is how many requests may be in work: as many as the decode ranks take where
// that is known, since more would wait in the engines, where prefill's blocks wait with
// them. A rank that is passed over takes none, unless all are.
func (s *Server) mostInWork() int {
	ranks := s.Registry.current.Load().decodes
	if s.MaxPerRank == 0 || len(ranks) == 0 {
		return s.MaxInflight
	}
	now, answer := time.Now().UnixNano(), 0
	for _, d := range ranks {
		if !d.avoided(now) {
			answer++
		}
	}
	return min(s.MaxInflight, cmp.Or(answer, len(ranks))*s.MaxPerRank)
}

// enter waits until a request that began at a time may be in work, which it may not when
// it is too old.
func (s *Server) enter(ctx context.Context, began, until time.Time) *failure {
	f := s.wait(ctx, until)
	if f == nil && late(until) {
		s.leave()
		f = tooOld(until.Sub(began))
	}
	if f != nil && f.limit == limitQueueTime && late(until) {
		return tooOld(until.Sub(began))
	}
	return f
}

// wait waits for a place among the requests in work.
func (s *Server) wait(ctx context.Context, until time.Time) *failure {
	place, ok := s.gate.enter(s.mostInWork(), s.MaxQueue)
	switch {
	case !ok:
		return s.tooMany(limitQueue)
	case place == nil:
		return nil
	}
	began := time.Now()
	wait := time.NewTimer(min(s.Queue, until.Sub(began)))
	defer wait.Stop()
	var f *failure
	select {
	case <-place.Value.(chan struct{}):
	case <-wait.C:
		f = s.tooMany(limitQueueTime)
	case <-ctx.Done():
		f = gone()
	case <-s.last.Done():
		f = shuttingDown()
	}
	s.metrics.queued.Observe(time.Since(began).Seconds())
	if f != nil && !s.gate.quit(place) {
		s.leave()
	}
	return f
}

func (s *Server) leave() { s.gate.leave(s.mostInWork()) }

// tooMany refuses a request since others take all that there is.
func (s *Server) tooMany(limit string) *failure {
	text := map[string]string{
		limitBuffered:     "the bodies of the requests in work take all the memory that they may",
		limitHostBuffered: "the bodies from this host take all the memory that those of one host may",
		limitReaders:      "the router reads as many requests as it may",
		limitHostReaders:  "the router reads as many requests from this host as it may",
		limitQueue:        "the router has as many requests in work and waiting as it may",
		limitQueueTime:    "no place among the requests in work came free within " + s.Queue.String(),
	}[limit]
	f := unavailable(codeBusy, text, 1)
	f.limit = limit
	if limit == limitHostBuffered || limit == limitHostReaders {
		f.status, f.code = http.StatusTooManyRequests, codeShare
	}
	return f
}

// serves returns what can be chosen for a model, or why nothing can.
func (s *Server) serves(model string) (*table, *failure) {
	t, refusal := s.Registry.current.Load().table(model)
	switch {
	case refusal == nil:
		return t, nil
	case refusal.Rule == RuleNoModel:
		return nil, noModel(refusal)
	}
	return nil, unavailable(refusal.Rule, refusal.Text, 2)
}

// choose takes a pair for a model.
func (s *Server) choose(model string) (pair, *failure) {
	t, f := s.serves(model)
	if f != nil {
		return pair{}, f
	}
	return s.pick(t.prefills, t.partners, nil), nil
}

// pick chooses a prefill and one of its partners.
func (s *Server) pick(prefills []*slot, partners map[*Instance][]*slot, wary []*Instance) pair {
	c := choice{slots: prefills, partners: partners, now: time.Now().UnixNano(), most: int64(s.MaxPerRank), wary: wary}
	p := prefills[s.policies.prefill.Choose(c, s.Random)]
	c.slots, c.partners = partners[p.instance], nil
	return pair{p, c.slots[s.policies.decode.Choose(c, s.Random)]}
}
