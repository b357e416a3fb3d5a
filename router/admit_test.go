package router

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"
)

// held makes both engines answer when released.
func (r *rig) held() (release func()) {
	open := make(chan struct{})
	for _, e := range []*engine{r.prefill, r.decode} {
		e.does(func(w http.ResponseWriter, q *http.Request) {
			select {
			case <-open:
				reply200(w)
			case <-q.Context().Done():
			}
		})
	}
	return func() { close(open) }
}

// inBackground posts requests and returns their answers as they come.
func (r *rig) inBackground(t *testing.T, n int) <-chan answer {
	t.Helper()
	out := make(chan answer, n)
	for range n {
		go func() { out <- r.post(t, completions, simple) }()
	}
	return out
}

func (r *rig) counts(inWork, waiting int) func() bool {
	return func() bool {
		a, b := r.gate.count()
		return a == inWork && b == waiting
	}
}

// TestQueue: so many are in work, so many wait and are served, the next is refused.
func TestQueue(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"max-inflight": func(o *Options) { o.MaxInflight, o.MaxQueue = 2, 3 },
		"max-per-rank": func(o *Options) { o.MaxPerRank, o.MaxQueue = 2, 3 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, change)
			release := r.held()
			answers := r.inBackground(t, 5)
			eventually(t, "two in work, three wait", r.counts(2, 3))
			if got := metric(t, r.OpsHandler(), "pdpool_router_queued"); got != 3 {
				t.Errorf("%v wait", got)
			}
			a := r.post(t, completions, simple)
			if a.status != 503 || a.code(t) != codeBusy || a.header.Get("Retry-After") == "" {
				t.Errorf("status %d, %s", a.status, a.body)
			}
			if got := metric(t, r.OpsHandler(), `pdpool_router_limited_total{limit="queue-length"}`); got != 1 {
				t.Errorf("%v refused", got)
			}
			eventually(t, "decode has two", func() bool { return r.decode.running.Load() == 2 })
			release()
			for range 5 {
				if a := next(t, "an answer", answers); a.status != 200 {
					t.Errorf("status %d, %s", a.status, a.body)
				}
			}
			eventually(t, "nothing left", r.counts(0, 0))
		})
	}
}

func TestQueueWaitEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxInflight, o.Queue = 1, 30*time.Millisecond })
		release := r.held()
		first := r.inBackground(t, 1)
		eventually(t, "one in work", r.counts(1, 0))
		a := r.post(t, completions, simple)
		if a.status != 503 || a.code(t) != codeBusy || a.header.Get("Retry-After") == "" || len(r.decode.calls) != 1 {
			t.Errorf("status %d, %s", a.status, a.body)
		}
		// A client that goes gives up its place.
		ctx, leave := context.WithCancel(t.Context())
		q, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.http.URL+completions, strings.NewReader(simple))
		r.Queue = time.Minute
		gone := make(chan error, 1)
		go func() {
			response, err := r.http.Client().Do(q)
			if err == nil {
				_ = response.Body.Close()
			}
			gone <- err
		}()
		eventually(t, "it waits", r.counts(1, 1))
		leave()
		if next(t, "its end", gone) == nil {
			t.Error("an answer came")
		}
		eventually(t, "its place is free", r.counts(1, 0))
		release()
		if a := next(t, "the first answer", first); a.status != 200 {
			t.Errorf("status %d", a.status)
		}
	})
}

// TestGateIsFair: who waits for longest is next, and a place in the queue that is given
// up goes to nobody.
func TestGateIsFair(t *testing.T) {
	var g gate
	if place, ok := g.enter(1, 2); place != nil || !ok {
		t.Fatal("the first has to wait")
	}
	first, _ := g.enter(1, 2)
	second, _ := g.enter(1, 2)
	if _, ok := g.enter(1, 2); ok || !g.full(1, 2) {
		t.Error("the queue is longer than it may")
	}
	isOpen := func(ch any) bool {
		select {
		case <-ch.(chan struct{}):
			return true
		default:
			return false
		}
	}
	g.leave(1)
	if !isOpen(first.Value) || isOpen(second.Value) {
		t.Error("not the first of the queue was let in")
	}
	if g.quit(first) {
		t.Error("who is let in can't leave the queue")
	}
	if !g.quit(second) {
		t.Error("who waits can leave the queue")
	}
	g.leave(1)
	if inWork, waiting := g.count(); inWork != 0 || waiting != 0 {
		t.Errorf("%d in work, %d wait", inWork, waiting)
	}
}

// TestOneHostHasHalfOfTheMemory: another one's requests are taken meanwhile.
func TestOneHostHasHalfOfTheMemory(t *testing.T) {
	var r readers
	for _, host := range []string{"a", "b"} {
		if limit := r.enter(host, 10); limit != "" {
			t.Fatal(limit)
		}
	}
	for _, c := range []struct {
		host string
		n    int64
		want string
	}{{"a", 50, ""}, {"a", 1, limitHostBuffered}, {"b", 49, ""}, {"b", 2, limitBuffered}, {"b", 1, ""}} {
		if got := r.hold(c.host, c.n, 100, 50); got != c.want {
			t.Errorf("%d of %s: %q, not %q", c.n, c.host, got, c.want)
		}
	}
	r.free("a", 50)
	r.leave("a")
	r.leave("b")
	r.free("b", 50)
	if len(r.byHost) != 0 || r.held() != 0 || r.all != 0 {
		t.Errorf("%v, %d bytes, %d read", r.byHost, r.held(), r.all)
	}
}

// TestLargeBodiesOfOneHostAreRefusedByIt holds the answer.
func TestLargeBodiesOfOneHostAreRefusedByIt(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxBody, o.MaxBuffered = 1000, 2000 })
	release := r.held()
	body := `{"model":"m","prompt":"` + strings.Repeat("x", 700) + `"}`
	first := make(chan answer, 1)
	go func() { first <- r.post(t, completions, body) }()
	next(t, "the first request", r.decode.calls)
	if a := r.post(t, completions, body); a.status != 429 || a.code(t) != codeShare || a.error(t)["type"] != "rate_limit_error" {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	if got := metric(t, r.OpsHandler(), `pdpool_router_limited_total{limit="host-buffered-bytes"}`); got != 1 {
		t.Errorf("counted %v times", got)
	}
	release()
	if a := next(t, "the first answer", first); a.status != 200 {
		t.Errorf("status %d", a.status)
	}
}

// TestWhatIsAllocatedCounts, not what has come: a byte of a long body takes more.
func TestWhatIsAllocatedCounts(t *testing.T) {
	r := newRig(t)
	c, _ := r.say(t, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
	if _, err := c.Write(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the memory counted", func() bool { return r.readers.held() == firstRead })
	if _, err := c.Write(make([]byte, 999_998)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "not more than its length counted", func() bool { return r.readers.held() == 1_000_000 })
	_ = c.Close()
	eventually(t, "nothing held", func() bool { return r.readers.held() == 0 })
}

// TestQueueEndsWithTheRouter: who waits is told.
func TestQueueEndsWithTheRouter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxInflight, o.Queue = 1, time.Minute })
		r.held()
		answers := r.inBackground(t, 2)
		eventually(t, "one in work, one waits", r.counts(1, 1))
		r.prefill.hangs()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Close(ctx)
		for range 2 {
			if a := next(t, "an answer", answers); a.status != 503 || a.code(t) != codeShuttingDown {
				t.Errorf("status %d, %s", a.status, a.body)
			}
		}
	})
}
