package router

import (
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// TestEngineThatFailsAgainAndAgainIsPassedOver: its health is good, and each request that
// is sent to it costs an attempt.
func TestEngineThatFailsAgainAndAgainIsPassedOver(t *testing.T) {
	for name, said := range map[string]string{
		"of itself":       `{"error":{"message":"boom"}}`,
		"in its transfer": `{"error":{"message":"x","rule":"handshake-failed","code":500}}`,
	} {
		for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
			t.Run(name+" "+string(role), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newPairs(t, 2, 2)
					bad := p.decode
					if role == kvlayout.Prefill {
						bad = p.prefill
						p.decodesWaitFor(p.prefills[1])
					}
					bad.says(500, said)
					for range 64 {
						if a := p.post(t, completions, simple); a.status != 200 {
							t.Fatalf("status %d, %s", a.status, a.body)
						}
					}
					if n := len(bad.calls); n != maxFailures {
						t.Errorf("it got %d legs", n)
					}
					of := p.slotOf(t, bad)
					if !of.suspected(time.Now().Add(holdSilent / 2).UnixNano()) {
						t.Error("it is not suspected")
					}
					// One more failure is enough once it is tried again.
					of.held.Store(0)
					for range 16 {
						p.post(t, completions, simple)
					}
					if n := len(bad.calls); n != maxFailures+1 {
						t.Errorf("it got %d legs", n)
					}
				})
			})
		}
	}
}

// TestPartnerOfAnEngineInTrouble: that transfers from one fail is not held against who
// was to receive them.
func TestPartnerOfAnEngineInTrouble(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 2)
		p.prefill.does(waits)
		p.suspect(p.slotOf(t, p.prefill), codeProbe, time.Hour)
		for _, e := range p.decodes {
			e.says(500, `{"error":{"message":"x","rule":"peer-gone","code":500}}`)
		}
		for range maxFailures {
			if a := p.post(t, completions, simple); a.status != 500 || a.code(t) != "peer-gone" || a.header.Get(AttemptsHeader) != "2" {
				t.Fatalf("status %d after %s attempts, %s", a.status, a.header.Get(AttemptsHeader), a.body)
			}
		}
		for _, e := range p.decodes {
			if p.slotOf(t, e).suspected(time.Now().UnixNano()) {
				t.Error("a decode is suspected")
			}
		}
		// What is its own doing is.
		for _, e := range p.decodes {
			e.says(500, `{"error":{"message":"boom"}}`)
		}
		for range maxFailures {
			p.post(t, completions, simple)
		}
		for _, e := range p.decodes {
			if !p.slotOf(t, e).suspected(time.Now().UnixNano()) {
				t.Error("a decode is not suspected")
			}
		}
	})
}

// TestFailuresBetweenGoodAnswers: a request may be to blame.
func TestFailuresBetweenGoodAnswers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		for range 3 * maxFailures {
			r.decode.says(500, `{"error":{"message":"boom"}}`)
			for range maxFailures - 1 {
				if a := r.post(t, completions, simple); a.status != 500 {
					t.Fatalf("status %d, %s", a.status, a.body)
				}
			}
			r.decode.says(200, answer200)
			if a := r.post(t, completions, simple); a.status != 200 {
				t.Fatalf("status %d, %s", a.status, a.body)
			}
		}
		if n := metric(t, r.OpsHandler(), `pdpool_router_suspected_total{reason="leg-failed"}`); n != 0 {
			t.Errorf("suspected %v times", n)
		}
	})
}
