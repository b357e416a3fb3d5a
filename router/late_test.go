package router

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// TestTooOldIsNotDispatched: no engine hears of a request that nobody waits for.
func TestTooOldIsNotDispatched(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{completions, chatCompletions} {
		a := r.post(t, path, `{"model":"m","prompt":"x","messages":[]}`, AgeHeader, "1e-9")
		if a.status != http.StatusGatewayTimeout || a.code(t) != codeTooOld {
			t.Errorf("%s: status %d, %s", path, a.status, a.body)
		}
	}
	if n := len(r.prefill.calls) + len(r.decode.calls); n != 0 {
		t.Errorf("%d legs were sent", n)
	}
	eventually(t, "nothing in work", r.counts(0, 0))
}

// TestTooOldInTheQueue: the wait ends by the request's own deadline, and says so.
func TestTooOldInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxInflight = 1 })
		release := r.held()
		first := r.inBackground(t, 1)
		eventually(t, "one in work", r.counts(1, 0))
		if a := r.post(t, completions, simple, AgeHeader, "0.05"); a.status != 504 || a.code(t) != codeTooOld {
			t.Errorf("status %d, %s", a.status, a.body)
		}
		release()
		next(t, "the first answer", first)
	})
}

// TestDeadlineInTheDialIsTheRequests: the network tells of a deadline before the
// context does. The engine is not to blame.
func TestDeadlineInTheDialIsTheRequests(t *testing.T) {
	r := newRig(t)
	table, _ := r.Registry.current.Load().table("m")
	p := pair{table.prefills[0], table.partners[table.prefills[0].instance][0]}
	now := time.Now()
	a := &attempt{exchange: &exchange{Server: r.Server, began: now.Add(-time.Second), until: now, request: &request{}}, pair: p}
	past, cancel := context.WithDeadline(t.Context(), now)
	defer cancel()
	q, _ := http.NewRequestWithContext(past, http.MethodGet, r.prefill.URL, http.NoBody)
	answer, err := newTransport(time.Second).RoundTrip(q)
	if err == nil {
		_ = answer.Body.Close()
		t.Fatal("a connection came about")
	}
	for role, of := range map[kvlayout.Role]*slot{kvlayout.Prefill: p.prefill, kvlayout.Decode: p.decode} {
		l := &leg{role: role, slot: of}
		l.ctx, l.cancel = context.WithCancelCause(t.Context())
		f := a.legError(l, err)
		if f.code != codeTooOld || f.status != http.StatusGatewayTimeout || f.leg != role || f.outcome != outcomeSilent {
			t.Errorf("%s: %d %v of %s, %s", role, f.status, f, f.leg, f.outcome)
		}
		if of.suspected(time.Now().UnixNano()) {
			t.Errorf("%s is suspected", role)
		}
	}
}

// TestDeadlineIsNotWhatTheAgentsCallIt: they know only that the router has ended it.
func TestDeadlineIsNotWhatTheAgentsCallIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		for i := range r.instances {
			r.instances[i].Pods[0].Agent = portOf(newAgent(t, 200, `{"rule":"aborted","text":"the engine has ended it"}`))
		}
		r.publish()
		r.prefill.hangs()
		r.decode.hangs()
		for range 4 {
			if a := r.post(t, completions, simple, AgeHeader, "0.03"); a.status != 504 || a.code(t) != codeTooOld {
				t.Errorf("status %d, %s", a.status, a.body)
			}
		}
	})
}
