package router

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
)

// stockRig is a rig before engines that move their own bytes.
func stockRig(t *testing.T, change ...func(*Options)) *rig {
	t.Helper()
	r := newRig(t, change...)
	for i := range r.instances {
		r.instances[i].Engine, r.instances[i].Mover = kvlayout.VLLM, kvlayout.MoverEngine
		r.instances[i].Layout.DCP = 0
		r.instances[i].Layout.Interleave = 0
	}
	r.publish()
	return r
}

// TestStockDecodeIsNotCancelledWhileItWaits: it would keep its blocks for ever.
func TestStockDecodeIsNotCancelledWhileItWaits(t *testing.T) {
	for name, body := range map[string]string{"whole": simple, "stream": streamed} {
		t.Run(name, func(t *testing.T) {
			r := stockRig(t)
			release := make(chan struct{})
			ended := make(chan error, 1)
			r.decode.does(func(w http.ResponseWriter, q *http.Request) {
				select {
				case <-release:
					reply(w, 500, `{"error":{"message":"write_failed"}}`)
				case <-q.Context().Done():
				}
				ended <- q.Context().Err()
			})
			r.prefill.says(500, `{"error":{"message":"boom"}}`)
			a := r.post(t, completions, body)
			if a.status != 502 || !strings.HasPrefix(a.message(t), "prefill leg failed: ") {
				t.Errorf("status %d, %s", a.status, a.body)
			}
			next(t, "decode's leg", r.decode.calls)
			if got := metric(t, r.OpsHandler(), "pdpool_router_lingering_legs"); got != 1 {
				t.Errorf("%v legs linger", got)
			}
			close(release)
			if err := next(t, "the end of decode's leg", ended); err != nil {
				t.Errorf("decode's leg was ended: %v", err)
			}
			eventually(t, "no leg lingers", func() bool { return r.lingering.Load() == 0 })
		})
	}
}

// TestStockDecodeIsCancelledOnceItAnswers: then its rows are there.
func TestStockDecodeIsCancelledOnceItAnswers(t *testing.T) {
	r := stockRig(t)
	release := make(chan struct{})
	r.decode.does(func(w http.ResponseWriter, q *http.Request) {
		<-release
		stream(w)(lines(1))
		<-q.Context().Done()
	})
	r.prefill.does(func(w http.ResponseWriter, _ *http.Request) { <-release; reply200(w) })
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		<-r.decode.calls
		<-r.prefill.calls
		leave()
	}()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, r.http.URL+completions, strings.NewReader(streamed))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := r.http.Client().Do(q); err == nil {
		_ = response.Body.Close()
		t.Fatal("an answer came")
	}
	eventually(t, "the legs linger", func() bool { return r.lingering.Load() == 1 })
	if r.prefill.running.Load() != 1 || r.decode.running.Load() != 1 {
		t.Error("a leg was ended while decode waits for its rows")
	}
	close(release)
	eventually(t, "the ends of both legs", func() bool {
		return r.prefill.running.Load()+r.decode.running.Load() == 0 && r.lingering.Load() == 0
	})
}

func TestLingeringLegsAreBounded(t *testing.T) {
	r := stockRig(t)
	r.lingering.Store(maxLingering)
	r.prefill.says(500, `{}`)
	r.decode.hangs()
	r.post(t, completions, simple)
	r.cancelled(t, kvlayout.Decode)
	if n := r.lingering.Load(); n != maxLingering {
		t.Errorf("%d legs linger", n)
	}
}

// TestLingeringLegsEndWithTheRouter: Close waits for them until its deadline.
func TestLingeringLegsEndWithTheRouter(t *testing.T) {
	r := stockRig(t)
	r.prefill.says(500, `{}`)
	r.decode.hangs()
	r.post(t, completions, simple)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.Close(ctx)
	eventually(t, "the end of decode's leg", func() bool { return r.decode.running.Load() == 0 })
	if n := r.lingering.Load(); n != 0 {
		t.Errorf("%d legs linger", n)
	}
}

func TestStockEnginesFindTheirPeer(t *testing.T) {
	r := stockRig(t)
	if a := r.post(t, completions, simple, "X-Request-Id", "mine"); a.header.Get("X-Request-Id") != "mine" {
		t.Errorf("the client's id is not echoed: %q", a.header.Get("X-Request-Id"))
	}
	p, d := next(t, "prefill's leg", r.prefill.calls), next(t, "decode's leg", r.decode.calls)
	id := p.header.Get("X-Request-Id")
	if id != d.header.Get("X-Request-Id") || !strings.HasPrefix(id, "___prefill_addr_host:127.0.0.1,handshake:") {
		t.Errorf("ids %q and %q", id, d.header.Get("X-Request-Id"))
	}
}
