package router

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// frozenSoon finds frozen engines soon.
func frozenSoon(o *Options) {
	o.ProbeEvery, o.ProbeWithin, o.Frozen = 10*time.Millisecond, 20*time.Millisecond, 2*hearing
}

// healthy answers probes, and legs by f once it has told of them.
func (e *engine) healthy(came chan<- *engine, f func(w http.ResponseWriter, r *http.Request)) {
	e.does(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == probePath {
			reply(w, 200, "")
			return
		}
		came <- e
		f(w, r)
	})
}

// waits takes a request and does not answer it.
func waits(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func answers(w http.ResponseWriter, _ *http.Request) { reply200(w) }

// all are the engines of both roles.
func (p *pairs) all() []*engine { return append(append([]*engine(nil), p.prefills...), p.decodes...) }

// healthy makes all engines answer probes, and legs by f, and returns which get legs once
// each is known to answer.
func (p *pairs) healthy(t *testing.T, f func(w http.ResponseWriter, r *http.Request)) <-chan *engine {
	t.Helper()
	came := make(chan *engine, 64)
	for _, e := range p.all() {
		e.healthy(came, f)
	}
	p.probing(t)
	eventually(t, "every engine is known to answer", func() bool {
		for _, of := range p.Registry.current.Load().engines {
			if of.answered.Load() == 0 {
				return false
			}
		}
		return true
	})
	return came
}

// legs waits for both legs of an attempt.
func (p *pairs) legs(t *testing.T, came <-chan *engine) map[kvlayout.Role]*engine {
	t.Helper()
	got := map[kvlayout.Role]*engine{}
	for range 2 {
		e := next(t, "a leg", came)
		if slices.Contains(p.prefills, e) {
			got[kvlayout.Prefill] = e
		} else {
			got[kvlayout.Decode] = e
		}
	}
	return got
}

// freeze stops one engine, and makes the others answer legs.
func (p *pairs) freeze(frozen *engine) {
	rest := make(chan *engine, 64)
	for _, e := range p.all() {
		e.healthy(rest, answers)
	}
	frozen.does(waits)
}

// posted sends a request in the background.
func (p *pairs) posted(t *testing.T, body string) <-chan answer {
	t.Helper()
	done := make(chan answer, 1)
	go func() { done <- p.post(t, completions, body) }()
	return done
}

// firstPairAnswers holds that a request was answered by the pair that it was sent to.
func firstPairAnswers(t *testing.T, done <-chan answer) {
	t.Helper()
	if a := next(t, "the answer", done); a.status != 200 || a.header.Get(AttemptsHeader) != "1" {
		t.Errorf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
	}
}

// TestRequestLeavesAFrozenEngine: its process is stopped, so that its connections stay
// and nothing comes. Whoever has got nothing yet is served by another pair, and both legs
// to the old one end.
func TestRequestLeavesAFrozenEngine(t *testing.T) {
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		for name, body := range map[string]string{"whole": simple, "stream": streamed} {
			t.Run(string(role)+" "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newPairs(t, 2, 2, frozenSoon)
					came := p.healthy(t, waits)
					done := p.posted(t, body)
					p.freeze(p.legs(t, came)[role])
					a := next(t, "the answer", done)
					if a.status != 200 || a.body != answer200 || a.header.Get(AttemptsHeader) != "2" {
						t.Fatalf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
					}
					if n := p.retried(t, role, codeFrozen); n != 1 {
						t.Errorf("retried %v times", n)
					}
					for _, of := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
						outcome := outcomeCancelled
						if of == role {
							outcome = outcomeSilent
						}
						eventually(t, "the end of the "+string(of)+" leg", func() bool {
							return metric(t, p.OpsHandler(), `pdpool_router_legs_total{outcome="`+outcome+`",role="`+string(of)+`"}`) == 1
						})
					}
				})
			})
		}
	}
}

// TestRequestLeavesAFrozenInstanceThatIsNotReady: the kubelet finds out as well, and from
// then on the instance is none that requests are sent to.
func TestRequestLeavesAFrozenInstanceThatIsNotReady(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 2, frozenSoon)
		came := p.healthy(t, waits)
		done := p.posted(t, simple)
		frozen := p.legs(t, came)[kvlayout.Decode]
		for i := range p.instances {
			if p.instances[i].Pods[0].HTTP == frozen.port() {
				p.instances[i].Ready = false
			}
		}
		p.publish()
		p.freeze(frozen)
		if a := next(t, "the answer", done); a.status != 200 || a.header.Get(AttemptsHeader) != "2" {
			t.Errorf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
		}
	})
}

// TestLongPrefillIsNotMoved: an engine that answers probes works.
func TestLongPrefillIsNotMoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 2, 2, often, func(o *Options) { o.Frozen = 20 * time.Millisecond })
		release := make(chan struct{})
		came := p.healthy(t, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-release:
				reply200(w)
			case <-r.Context().Done():
			}
		})
		done := p.posted(t, simple)
		busy := p.legs(t, came)[kvlayout.Prefill]
		busy.probedOften(t)
		close(release)
		firstPairAnswers(t, done)
	})
}

// probedOften waits until an engine has been probed so often that it would be found frozen.
func (e *engine) probedOften(t *testing.T) {
	t.Helper()
	for len(e.calls) > 0 {
		<-e.calls
	}
	for range 12 {
		next(t, "a probe", e.calls)
	}
}

// TestFrozenPrefillThatHasAnswered: decode, which answers probes, may be at work with all
// that it needs.
func TestFrozenPrefillThatHasAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 2, 1, frozenSoon)
		release := make(chan struct{})
		came := p.healthy(t, answers)
		p.decode.healthy(make(chan *engine, 64), func(w http.ResponseWriter, _ *http.Request) { <-release; reply200(w) })
		done := p.posted(t, simple)
		prefill := next(t, "prefill's leg", came)
		prefill.does(waits)
		eventually(t, "it is found frozen", func() bool { return p.slotOf(t, prefill).frozen(time.Now().UnixNano(), p.Frozen) })
		p.decode.probedOften(t)
		close(release)
		firstPairAnswers(t, done)
	})
}

// TestFrozenStreamIsNotMoved: the client has got something.
func TestFrozenStreamIsNotMoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 2, 2, frozenSoon, func(o *Options) { o.Idle = 500 * time.Millisecond })
		came := p.healthy(t, func(w http.ResponseWriter, r *http.Request) {
			stream(w)(lines(1))
			<-r.Context().Done()
		})
		response := p.open(t.Context(), t, completions, streamed)
		defer func() { _ = response.Body.Close() }()
		in := bufio.NewReader(response.Body)
		if line, err := in.ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		p.freeze(p.legs(t, came)[kvlayout.Decode])
		rest, _ := io.ReadAll(in)
		if n := p.retried(t, kvlayout.Decode, codeFrozen); n != 0 || response.Header.Get(AttemptsHeader) != "1" {
			t.Errorf("retried %v times, %q", n, rest)
		}
	})
}

// TestHealthThatCannotTell: what never answered a probe may be well without, so the
// deadline stands.
func TestHealthThatCannotTell(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 2, 2, frozenSoon, func(o *Options) { o.Answer = time.Second })
		came := make(chan *engine, 64)
		for _, e := range p.all() {
			e.healthy(came, waits)
		}
		done := p.posted(t, simple)
		asked := p.legs(t, came)
		p.freeze(asked[kvlayout.Decode])
		asked[kvlayout.Prefill].does(waits)
		p.probing(t)
		if a := next(t, "the answer", done); a.status != 504 || a.code(t) != codeSilent || a.header.Get(AttemptsHeader) != "1" || !strings.Contains(a.body, "never answered") {
			t.Errorf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
		}
	})
}

// TestFrozenEngineWithoutAnother: to leave it for one that does not answer either would
// only lose what it has. Once it goes on its answer counts.
func TestFrozenEngineWithoutAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 2, frozenSoon)
		thaw := make(chan struct{})
		came := p.healthy(t, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-thaw:
				reply200(w)
			case <-r.Context().Done():
			}
		})
		done := p.posted(t, simple)
		p.legs(t, came)
		for _, e := range p.decodes {
			e.does(waits)
		}
		eventually(t, "both are found frozen", func() bool {
			now, n := time.Now().UnixNano(), 0
			for _, of := range p.Registry.current.Load().engines {
				if of.frozen(now, p.Frozen) {
					n++
				}
			}
			return n == 2
		})
		close(thaw)
		firstPairAnswers(t, done)
	})
}

// TestFrozenOnEveryPair: a request that freezes engines freezes no more than three.
func TestFrozenOnEveryPair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 4, frozenSoon, func(o *Options) { o.Answer = 2 * time.Second })
		p.healthy(t, waits)
		legs := make(chan *engine, 64)
		for _, e := range p.decodes {
			e.healthy(legs, func(_ http.ResponseWriter, r *http.Request) {
				e.does(waits)
				<-r.Context().Done()
			})
		}
		a := p.post(t, completions, streamed)
		if a.status != 504 || a.code(t) != codeSilent || a.header.Get(AttemptsHeader) != "3" || len(legs) != 3 {
			t.Errorf("status %d after %s attempts and %d legs, %s", a.status, a.header.Get(AttemptsHeader), len(legs), a.body)
		}
	})
}

// TestFrozen: several probes in a row and some time without an answer, of one that has
// answered before.
func TestFrozen(t *testing.T) {
	const after = 10 * time.Second
	for name, c := range map[string]struct {
		answered, heard, now time.Duration
		misses               int64
		after                time.Duration
		want                 bool
	}{
		"silent":              {1, 0, 1 + after, 3, after, true},
		"not for long":        {1, 0, after, 9, after, false},
		"one probe lost":      {1, 0, time.Hour, 1, after, false},
		"never answered":      {0, 0, time.Hour, 99, after, false},
		"never but legs":      {0, 1, time.Hour, 99, after, false},
		"answers":             {1, 0, 1 + after, 0, after, false},
		"answers legs":        {1, 2, 1 + after, 9, after, false},
		"answered legs":       {1, 2, 2 + after, 9, after, true},
		"not to be found out": {1, 0, time.Hour, 99, 0, false},
	} {
		v := &vitals{}
		v.answered.Store(int64(c.answered))
		v.heard.Store(int64(c.heard))
		v.misses.Store(c.misses)
		s := &slot{load: &load{vitals: v}}
		s.kin = []*slot{s}
		if got := s.frozen(int64(c.now), c.after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestHealthSaid: an engine whose server has ended answers no probe either.
func TestHealthSaid(t *testing.T) {
	now := time.Unix(100, 0)
	for name, c := range map[string]struct {
		answered, misses int64
		avoid            time.Duration
		want             string
	}{
		"never":   {0, 2, time.Second, "it has never answered a probe of its health"},
		"answers": {99, 0, 0, "it answers probes of its health"},
		"silent":  {60, 3, time.Second, "it last answered a probe of its health 40s ago"},
		"refuses": {60, 0, time.Second, "it last answered a probe of its health 40s ago"},
	} {
		v := &vitals{}
		v.answered.Store(c.answered * int64(time.Second))
		v.misses.Store(c.misses)
		v.avoid.Store(now.Add(c.avoid).UnixNano())
		s := &slot{load: &load{vitals: v}}
		s.kin = []*slot{s}
		if got := s.healthSaid(now); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestTokenizeLeavesAFrozenPrefill: another one does as well.
func TestTokenizeLeavesAFrozenPrefill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 2, 1, frozenSoon)
		came := p.healthy(t, waits)
		done := make(chan answer, 1)
		go func() { done <- p.post(t, "/tokenize", simple) }()
		frozen := next(t, "the request", came)
		p.freeze(frozen)
		if a := next(t, "the answer", done); a.status != 200 {
			t.Errorf("status %d, %s", a.status, a.body)
		}
		for _, e := range p.all() {
			e.does(waits)
		}
		if a := p.post(t, "/tokenize", simple); a.status != 504 || a.code(t) != codeFrozen {
			t.Errorf("status %d, %s", a.status, a.body)
		}
		eventually(t, "no engine is waited for", func() bool { return len(p.awaited.slots()) == 0 })
	})
}

// TestEngineThatStreamsIsNotFrozen: a server that is too busy for probes may be at work.
func TestEngineThatStreamsIsNotFrozen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 2, frozenSoon)
		came := p.healthy(t, waits)
		done := p.posted(t, simple)
		busy := p.legs(t, came)[kvlayout.Decode]
		p.freeze(busy)
		busy.does(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == probePath {
				<-r.Context().Done()
				return
			}
			send := stream(w)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ; r.Context().Err() == nil; <-tick.C {
				send(lines(1))
			}
		})
		p.suspect(p.slotOf(t, p.otherDecode(busy)), codeSilent, holdSilent)
		p.slotOf(t, busy).avoid.Store(0)
		response := p.open(t.Context(), t, completions, streamed)
		defer func() { _ = response.Body.Close() }()
		p.slotOf(t, p.otherDecode(busy)).held.Store(0)
		in := bufio.NewReader(response.Body)
		for range 200 { // each some 10 ms
			if line, err := in.ReadString('\n'); err != nil {
				t.Fatal(line, err)
			}
		}
		if n := p.slotOf(t, busy).misses.Load(); n < frozenMisses {
			t.Errorf("%d probes were lost", n)
		}
		select {
		case a := <-done:
			t.Errorf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
		default:
		}
	})
}

// otherDecode is the decode beside one of two.
func (p *pairs) otherDecode(one *engine) *engine {
	if p.decodes[0] == one {
		return p.decodes[1]
	}
	return p.decodes[0]
}
