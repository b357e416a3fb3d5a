package router

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// pairs is a rig with so many instances of each role.
type pairs struct {
	*rig
	prefills, decodes []*engine
}

func newPairs(t *testing.T, prefills, decodes int, change ...func(*Options)) *pairs {
	t.Helper()
	p := &pairs{rig: newRig(t, change...)}
	p.prefills, p.decodes = []*engine{p.prefill}, []*engine{p.decode}
	for range prefills - 1 {
		e := newEngine(t)
		p.prefills = append(p.prefills, e)
		p.instances = append(p.instances, instanceAt(kvlayout.Prefill, e.port()))
	}
	for range decodes - 1 {
		e := newEngine(t)
		p.decodes = append(p.decodes, e)
		p.instances = append(p.instances, instanceAt(kvlayout.Decode, e.port()))
	}
	p.publish()
	return p
}

// decodesWaitFor makes decodes answer, as real ones, only what a good prefill has.
func (p *pairs) decodesWaitFor(prefill *engine) {
	var requests sync.Map
	of := func(r *http.Request) chan struct{} {
		ch, _ := requests.LoadOrStore(r.Header.Get("X-Request-Id"), make(chan struct{}))
		return ch.(chan struct{})
	}
	prefill.does(func(w http.ResponseWriter, r *http.Request) { close(of(r)); reply200(w) })
	for _, e := range p.decodes {
		e.does(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-of(r):
				reply200(w)
			case <-r.Context().Done():
			}
		})
	}
}

// retried reads the counter of a leg's retries.
func (p *pairs) retried(t *testing.T, leg kvlayout.Role, reason string) float64 {
	t.Helper()
	return metric(t, p.OpsHandler(), `pdpool_router_retries_total{leg="`+string(leg)+`",reason="`+reason+`"}`)
}

// TestDeadEngineFailsNoRequest: whichever way one of two engines is dead, every request
// is answered by another pair, and nothing of the failed attempt shows.
func TestDeadEngineFailsNoRequest(t *testing.T) {
	const gone = `{"error":{"message":"KV transfer failed: peer-gone: it has gone","rule":"peer-gone","code":500}}`
	for name, c := range map[string]struct {
		fail   func(e *engine)
		reason string
	}{
		"down":        {func(e *engine) { e.Close() }, codeUnreachable},
		"dies":        {func(e *engine) { e.dies() }, codeLost},
		"503":         {func(e *engine) { e.says(503, `{}`) }, retryAway},
		"502":         {func(e *engine) { e.says(502, `oops`) }, retryAway},
		"busy":        {func(e *engine) { e.says(429, `{"error":{"message":"full"}}`) }, retryBusy},
		"core dead":   {func(e *engine) { e.says(500, `{"error":{"message":"EngineCore encountered an issue"}}`) }, retryError},
		"peer's rule": {func(e *engine) { e.says(500, gone) }, "peer-gone"},
	} {
		for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
			t.Run(name+" "+string(role), func(t *testing.T) {
				p := newPairs(t, 2, 2)
				if role == kvlayout.Decode {
					c.fail(p.decode)
				} else {
					c.fail(p.prefill)
					p.decodesWaitFor(p.prefills[1])
				}
				for _, body := range []string{simple, streamed} {
					for range 8 {
						if a := p.post(t, completions, body); a.status != 200 || a.body != answer200 {
							t.Fatalf("status %d, %s", a.status, a.body)
						}
					}
				}
				if n := p.retried(t, role, c.reason); n < 1 {
					t.Errorf("retried %v times", n)
				}
			})
		}
	}
}

// TestEveryAttemptHasItsOwnIDs holds both legs of each, and the answer's headers.
func TestEveryAttemptHasItsOwnIDs(t *testing.T) {
	p := newPairs(t, 3, 3)
	var begun atomic.Bool
	fails := func(w http.ResponseWriter, _ *http.Request) {
		if !begun.Swap(true) {
			panic(http.ErrAbortHandler)
		}
		reply200(w)
	}
	for _, e := range p.decodes {
		e.does(fails)
	}
	a := p.post(t, completions, simple)
	if a.status != 200 || a.header.Get(AttemptsHeader) != "2" {
		t.Fatalf("status %d, %q attempts", a.status, a.header.Get(AttemptsHeader))
	}
	ids, transfers := map[string]bool{}, map[string]bool{}
	of := func(c call) (id, transfer string) {
		_, after, _ := strings.Cut(c.body, `"transfer_id":"`)
		transfer, _, _ = strings.Cut(after, `"`)
		return c.header.Get("X-Request-Id"), transfer
	}
	for _, e := range p.decodes {
		for len(e.calls) > 0 {
			id, transfer := of(<-e.calls)
			ids[id], transfers[transfer] = true, true
		}
	}
	if len(ids) != 2 || len(transfers) != 2 || !transfers[a.header.Get(TransferHeader)] {
		t.Errorf("ids %v, transfers %v, the answer's is %s", ids, transfers, a.header.Get(TransferHeader))
	}
	eventually(t, "prefill's leg of the second attempt", func() bool {
		for _, e := range p.prefills {
			for len(e.calls) > 0 {
				if id, transfer := of(<-e.calls); ids[id] && transfer == a.header.Get(TransferHeader) {
					return true
				}
			}
		}
		return false
	})
}

// TestNoPairTwice: a request fails once every pair has failed, or three have.
func TestNoPairTwice(t *testing.T) {
	const gone = `{"error":{"message":"x","rule":"handshake-failed","code":500}}`
	for _, c := range []struct{ prefills, decodes, attempts int }{{1, 1, 1}, {1, 2, 2}, {2, 1, 2}, {2, 2, 3}, {1, 5, 3}} {
		t.Run(fmt.Sprint(c.prefills, c.decodes), func(t *testing.T) {
			p := newPairs(t, c.prefills, c.decodes)
			for _, e := range p.decodes {
				e.says(500, gone)
			}
			for _, e := range p.prefills {
				e.hangs()
			}
			a := p.post(t, completions, streamed)
			if a.status != 500 || a.code(t) != "handshake-failed" || a.header.Get(AttemptsHeader) != fmt.Sprint(c.attempts) {
				t.Errorf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
			}
			seen := map[string]int{}
			for _, e := range p.decodes {
				for len(e.calls) > 0 {
					call := <-e.calls
					_, after, _ := strings.Cut(call.body, `"remote_notify_port":`)
					port, _, _ := strings.Cut(after, ",")
					seen[e.URL+port]++
				}
			}
			if len(seen) != c.attempts {
				t.Errorf("%d different pairs: %v", len(seen), seen)
			}
			eventually(t, "all legs ended", func() bool {
				for _, e := range append(slices.Clone(p.prefills), p.decodes...) {
					if e.running.Load() > 0 {
						return false
					}
				}
				return true
			})
		})
	}
}

func TestNotRetried(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"the request":     {`{"error":{"message":"no"}}`, 400},
		"not found":       {`{"error":{"message":"no"}}`, 404},
		"a wrong row":     {`{"error":{"message":"wrong row: x","rule":"wrong-row"}}`, 500},
		"a layout":        {`{"error":{"message":"x","rule":"dcp-mix"}}`, 500},
		"another prompt":  {`{"error":{"message":"x","rule":"prompt-differs"}}`, 500},
		"not implemented": {`{"error":{"message":"x"}}`, 501},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPairs(t, 2, 2)
			for _, e := range p.decodes {
				e.says(c.status, c.body)
			}
			for _, e := range p.prefills {
				e.hangs()
			}
			a := p.post(t, completions, simple)
			if a.status != c.status || a.header.Get(AttemptsHeader) != "1" {
				t.Errorf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
			}
		})
	}
}

// TestUnexplainedErrorIsRetriedOnce: it may be the request's own doing.
func TestUnexplainedErrorIsRetriedOnce(t *testing.T) {
	p := newPairs(t, 3, 3)
	for _, e := range p.prefills {
		e.says(500, `{"error":{"message":"boom"}}`)
	}
	for _, e := range p.decodes {
		e.hangs()
	}
	if a := p.post(t, completions, simple); a.status != 502 || a.header.Get(AttemptsHeader) != "2" {
		t.Errorf("status %d after %s attempts", a.status, a.header.Get(AttemptsHeader))
	}
}

// TestAgentsDecideOnARetry: what the engine does not tell its agent does.
func TestAgentsDecideOnARetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for rule, attempts := range map[string]string{"peer-restarted": "2", "regions-differ": "1"} {
			p := newPairs(t, 1, 2)
			for i := range p.instances {
				if p.instances[i].Role == kvlayout.Decode {
					p.instances[i].Pods[0].Agent = portOf(newAgent(t, 200, `{"rule":"`+rule+`","text":"x"}`))
				}
			}
			p.publish()
			for _, e := range p.decodes {
				e.says(500, `{"error":{"message":"boom"}}`)
			}
			if a := p.post(t, completions, simple); a.code(t) != rule || a.header.Get(AttemptsHeader) != attempts {
				t.Errorf("%s: %s attempts, %s", rule, a.header.Get(AttemptsHeader), a.body)
			}
		}
	})
}

func TestTokenizeAsksAnotherPrefill(t *testing.T) {
	p := newPairs(t, 2, 1)
	p.prefill.dies()
	for range 8 {
		if a := p.post(t, "/tokenize", simple); a.status != 200 {
			t.Fatalf("status %d, %s", a.status, a.body)
		}
	}
	p.prefills[1].Close()
	if a := p.post(t, "/tokenize", simple); a.status != 502 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
}

// TestTokenizeEndsByItsDeadlines: a prefill that hangs is passed over, and one that is the
// only one is told of.
func TestTokenizeEndsByItsDeadlines(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 2, 1, func(o *Options) { o.Answer = 50 * time.Millisecond })
		p.prefill.hangs()
		for range 8 {
			if a := p.post(t, "/tokenize", simple); a.status != 200 {
				t.Fatalf("status %d, %s", a.status, a.body)
			}
		}
		p.prefills[1].hangs()
		if a := p.post(t, "/tokenize", simple); a.status != 504 || a.code(t) != codeSilent {
			t.Errorf("status %d, %s", a.status, a.body)
		}
		if n := metric(t, p.OpsHandler(), `pdpool_router_suspected_total{reason="leg-silent"}`); n < 1 {
			t.Errorf("suspected %v times", n)
		}
		p = newPairs(t, 2, 1)
		for _, e := range p.prefills {
			e.hangs()
		}
		for value, want := range map[string]string{"0.05": codeTooOld, "1e-9": codeTooOld, "x": codeBadValue} {
			if a := p.post(t, "/tokenize", simple, AgeHeader, value); a.code(t) != want {
				t.Errorf("%s: status %d, %s", value, a.status, a.body)
			}
		}
		if n := metric(t, p.OpsHandler(), `pdpool_router_instances_suspected{role="prefill"}`); n != 0 {
			t.Errorf("%v are suspected", n)
		}
	})
}

// TestClientWhoGoesIsNotRetried: nobody waits for the answer.
func TestClientWhoGoesIsNotRetried(t *testing.T) {
	p := newPairs(t, 2, 2)
	for _, e := range append(slices.Clone(p.prefills), p.decodes...) {
		e.hangs()
	}
	ctx, leave := context.WithCancel(t.Context())
	q, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.http.URL+completions, strings.NewReader(simple))
	go func() {
		select {
		case <-p.decodes[0].calls:
		case <-p.decodes[1].calls:
		}
		leave()
	}()
	if response, err := p.http.Client().Do(q); err == nil {
		_ = response.Body.Close()
		t.Fatal("an answer came")
	}
	eventually(t, "the request counted", func() bool {
		return metric(t, p.OpsHandler(), `pdpool_router_requests_total{code="client-gone",endpoint="/v1/completions"}`) == 1
	})
	if n := len(p.decodes[0].calls) + len(p.decodes[1].calls); n != 0 {
		t.Errorf("%d more attempts", n)
	}
}

// TestAgeOfAllAttempts: retries have no more time than the request.
func TestAgeOfAllAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 3)
		p.prefill.hangs()
		for _, e := range p.decodes {
			e.does(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				<-r.Context().Done()
			})
		}
		for value, want := range map[string]int{"0.2": 504, "0": 400, "-1": 400, "x": 400, "NaN": 400} {
			began := time.Now()
			a := p.post(t, completions, simple, AgeHeader, value)
			if took := time.Since(began); a.status != want || took > 200*time.Millisecond {
				t.Errorf("%s: status %d after %v, %s", value, a.status, took, a.body)
			}
		}
	})
}
