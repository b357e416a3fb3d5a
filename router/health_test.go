package router

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// often makes probes frequent.
func often(o *Options) { o.ProbeEvery = 10 * time.Millisecond }

// probing runs the probes of a rig for the time of the test.
func (r *rig) probing(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Probe(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := next(t, "the end of the probes", done); err != nil {
			t.Error(err)
		}
	})
}

// suspectedPods reads how many instances of a role are passed over.
func (r *rig) suspectedPods(t *testing.T, role kvlayout.Role) float64 {
	t.Helper()
	return metric(t, r.OpsHandler(), `pdpool_router_instances_suspected{role="`+string(role)+`"}`)
}

// TestProbesFindWhoHangsAndWhoIsBack: without traffic, and within a second.
func TestProbesFindWhoHangsAndWhoIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 2, often)
		p.decode.does(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == probePath {
				reply(w, 503, "")
				return
			}
			reply200(w)
		})
		p.probing(t)
		eventually(t, "the ill one is suspected", func() bool { return p.suspectedPods(t, kvlayout.Decode) == 1 })
		for len(p.decode.calls) > 0 {
			<-p.decode.calls
		}
		for range 10 {
			if a := p.post(t, completions, simple); a.status != 200 || a.header.Get(AttemptsHeader) != "1" {
				t.Fatalf("status %d after %s attempts", a.status, a.header.Get(AttemptsHeader))
			}
		}
		for len(p.decode.calls) > 0 {
			if c := <-p.decode.calls; c.path != probePath {
				t.Error("a suspected instance got a request beside a good one")
			}
		}
		began := time.Now()
		p.decode.does(func(w http.ResponseWriter, _ *http.Request) { reply200(w) })
		eventually(t, "it is trusted again", func() bool { return p.suspectedPods(t, kvlayout.Decode) == 0 })
		if took := time.Since(began); took > time.Second {
			t.Errorf("back in use after %v", took)
		}
	})
}

// TestOnlyInstanceIsAskedThoughSuspected: nobody waits for a suspicion to end.
func TestOnlyInstanceIsAskedThoughSuspected(t *testing.T) {
	r := newRig(t)
	r.decode.dies()
	if a := r.post(t, completions, simple); a.status != 502 {
		t.Fatalf("status %d", a.status)
	}
	r.decode.does(func(w http.ResponseWriter, _ *http.Request) { reply200(w) })
	if a := r.post(t, completions, simple); a.status != 200 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
}

// TestWhoHangsIsPassedOver: its server may be well, and its probes good.
func TestWhoHangsIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPairs(t, 1, 2, often, func(o *Options) { o.Answer = 100 * time.Millisecond })
		var hung *engine
		for _, e := range p.decodes {
			e.does(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == probePath {
					reply(w, 200, "")
					return
				}
				<-r.Context().Done()
			})
		}
		if a := p.post(t, completions, streamed); a.status != 504 || a.code(t) != codeSilent {
			t.Fatalf("status %d, %s", a.status, a.body)
		}
		for _, e := range p.decodes {
			if len(e.calls) > 0 {
				hung = e
			} else {
				e.does(func(w http.ResponseWriter, _ *http.Request) { reply200(w) })
			}
		}
		p.probing(t)
		<-hung.calls
		next(t, "a good probe", hung.calls)
		for range 10 {
			if a := p.post(t, completions, streamed); a.status != 200 {
				t.Fatalf("status %d, %s", a.status, a.body)
			}
		}
	})
}

// TestAPodOfManyIsProbedByItself: a good pod does not speak for an ill one.
func TestAPodOfManyIsProbedByItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, often)
		second := newEngine(t)
		second.says(500, "")
		r.instances[1].Layout = kvlayout.Layout{TP: 1, DP: 2, DPLocal: 1}
		r.instances[0].Layout = kvlayout.Layout{TP: 1}
		pod := r.instances[1].Pods[0]
		pod.Index, pod.DPStart, pod.HTTP = 1, 1, second.port()
		r.instances[1].Pods = append(r.instances[1].Pods, pod)
		r.publish()
		r.probing(t)
		eventually(t, "the instance is suspected", func() bool { return r.suspectedPods(t, kvlayout.Decode) == 1 })
		for range 3 { // rounds of the good pod
			next(t, "a probe", r.decode.calls)
		}
		if n := r.suspectedPods(t, kvlayout.Decode); n != 1 {
			t.Errorf("%v instances are suspected", n)
		}
		second.says(200, "")
		eventually(t, "the instance is trusted again", func() bool { return r.suspectedPods(t, kvlayout.Decode) == 0 })
	})
}
