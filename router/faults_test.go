package router

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// TestNewRanksTakeWhoWaits: not only once somebody else is answered.
func TestNewRanksTakeWhoWaits(t *testing.T) {
	p := newPairs(t, 1, 1, func(o *Options) { o.MaxPerRank = 1 })
	release := p.held()
	answers := p.inBackground(t, 3)
	eventually(t, "one in work, two wait", p.counts(1, 2))
	more := newEngine(t)
	p.instances = append(p.instances, instanceAt(kvlayout.Decode, more.port()))
	p.publish()
	next(t, "a leg to the new rank", more.calls)
	release()
	for range 3 {
		if a := next(t, "an answer", answers); a.status != 200 {
			t.Errorf("status %d, %s", a.status, a.body)
		}
	}
}

// TestDecodeThatGivesUpIsNoAnswer: an engine that has lost the rows, or that ends, says so
// by the reason for which it finished, under status 200.
func TestDecodeThatGivesUpIsNoAnswer(t *testing.T) {
	for _, reason := range []string{"error", "abort"} {
		said := `{"id":"cmpl-1","choices":[{"index":0,"text":"","finish_reason":"` + reason + `"}]}`
		for name, c := range map[string]struct {
			body string
			does func(w http.ResponseWriter, r *http.Request)
		}{
			"whole":  {simple, func(w http.ResponseWriter, _ *http.Request) { reply(w, 200, said) }},
			"stream": {streamed, func(w http.ResponseWriter, _ *http.Request) { stream(w)("data: " + said + "\n\ndata: [DONE]\n\n") }},
		} {
			t.Run(reason+" "+name, func(t *testing.T) {
				p := newPairs(t, 1, 2)
				p.decode.does(c.does)
				for range 8 {
					if a := p.post(t, completions, c.body); a.status != 200 || a.body != answer200 {
						t.Fatalf("status %d, %s", a.status, a.body)
					}
				}
				p.decodes[1].does(c.does)
				a := p.post(t, completions, c.body)
				if a.status != 500 || a.code(t) != codeFailed || !strings.Contains(a.message(t), reason) {
					t.Errorf("status %d, %s", a.status, a.body)
				}
			})
		}
	}
}

// TestWhatFollowsTheEndOfAStream: blanks and comments don't undo it.
func TestWhatFollowsTheEndOfAStream(t *testing.T) {
	for after, want := range map[string]bool{
		"": true, "\n": true, "\r\n": true, ": ping\n\n": true, "\n: ping\r\n\r\n\n": true, "id: 1\n\n": true,
		"data: 1\n\n": false, ": ping\n\ndata: 1\n\n": false, "event: error\n\n": false,
	} {
		e := &events{mask: mark}
		for _, piece := range []string{"data: 1\n\n", "data: [DONE]\n\n", after} {
			e.pass([]byte(piece))
		}
		if e.end(); e.done != want {
			t.Errorf("%q: done %v", after, e.done)
		}
		whole := &events{mask: mark}
		whole.pass([]byte("data: 1\n\ndata: [DONE]\n\n" + after))
		if whole.end(); whole.done != want {
			t.Errorf("%q in one piece: done %v", after, whole.done)
		}
	}
}

// TestSuspicionIsNotShortened: what is found later and lasts less ends nothing.
func TestSuspicionIsNotShortened(t *testing.T) {
	p := newPairs(t, 1, 1)
	of := p.slotOf(t, p.decode)
	p.suspect(of, codeProbe, holdProbe)
	p.suspect(of, codeLost, holdFailed)
	if !of.avoided(time.Now().Add(holdProbe - time.Second).UnixNano()) {
		t.Error("a lost connection ended what a probe had found")
	}
}

// TestSuspectedRankHasNoPlaces: the others get no more than they may, unless there are
// none.
func TestSuspectedRankHasNoPlaces(t *testing.T) {
	p := newPairs(t, 1, 2, often, func(o *Options) { o.MaxPerRank = 1 })
	release := p.held()
	open := p.decodes[0].answer.Load()
	p.decodes[1].does(*open)
	p.suspect(p.slotOf(t, p.decodes[1]), codeSilent, holdSilent)
	answers := p.inBackground(t, 2)
	eventually(t, "one in work, one waits", p.counts(1, 1))
	p.slotOf(t, p.decodes[1]).held.Store(0)
	p.probing(t)
	eventually(t, "both in work", p.counts(2, 0))
	release()
	for range 2 {
		if a := next(t, "an answer", answers); a.status != 200 {
			t.Errorf("status %d, %s", a.status, a.body)
		}
	}
	for _, e := range p.decodes {
		p.suspect(p.slotOf(t, e), codeSilent, holdSilent)
	}
	if n := p.mostInWork(); n != 2 {
		t.Errorf("%d places of two ranks, of which none is better", n)
	}
}

// TestTokensThatBreakOffAreCounted: as other requests are.
func TestTokensThatBreakOffAreCounted(t *testing.T) {
	r := newRig(t)
	r.prefill.does(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "9")
		_, _ = w.Write([]byte("{"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	if a := r.post(t, "/tokenize", simple); a.err == nil {
		t.Errorf("%+v", a)
	}
	eventually(t, "it is counted", func() bool {
		return metric(t, r.OpsHandler(), `pdpool_router_requests_total{code="broken",endpoint="/tokenize"}`) == 1
	})
}

// TestEveryPodIsProbedThoughManyHang: those that come first don't take all places.
func TestEveryPodIsProbedThoughManyHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, maxProbes+8, frozenSoon)
		p.healthy(t, answers)
		for _, e := range p.all() {
			e.does(waits)
		}
		eventually(t, "all are found frozen", func() bool {
			return !slices.ContainsFunc(p.Registry.current.Load().engines, func(of *slot) bool {
				return !of.frozen(time.Now().UnixNano(), p.Frozen)
			})
		})
	})
}
