package transferagent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// draining has the pod drain, waits until nothing begins any more, and returns where
// the answer's status comes.
func (p *pod) draining() <-chan int {
	p.t.Helper()
	answered := p.leave()
	eventually(p.t, func() error {
		if _, body := p.get("/readyz"); !strings.Contains(body, errClosing.Error()) {
			return fmt.Errorf("ready: %s", body)
		}
		return nil
	})
	return answered
}

func TestDrainWaitsForLiveTransfers(t *testing.T) {
	p := startPair(t, "mem", latent, plain, dealt)
	r := p.prompt("tx-live", 1, 40)
	p.start(t, r)
	pod := p.prefill.pod
	eventually(t, func() error {
		if _, body := pod.get("/debug/transfers"); !strings.Contains(body, r.id) {
			return fmt.Errorf("live transfers: %s", body)
		}
		return nil
	})
	answered := pod.leave()
	select {
	case status := <-answered:
		t.Fatalf("drain answers %d with a live transfer", status)
	default:
	}
	p.fill(t, r)
	p.finish(t, r)
	p.check(t, r)
	if status := <-answered; status != http.StatusOK {
		t.Fatalf("drain answers %d", status)
	}
	if status, _ := pod.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Fatalf("ready after drain: %d", status)
	}
}

// turnedDown reads the refusal of each message that would begin a transfer.
func turnedDown(t *testing.T, c interface {
	Messages() <-chan kvproto.Message
}, id string, types ...string,
) {
	t.Helper()
	for _, kind := range types {
		select {
		case m := <-c.Messages():
			if r, ok := m.(kvproto.Refused); !ok || r.Rule != ruleDraining || r.Transfer != id || r.Message != kind {
				t.Fatalf("agent says %+v to %s", m, kind)
			}
		case <-time.After(within):
			t.Fatal("no answer")
		}
	}
}

// A draining prefill ends the transfers that it has, and takes no other: decode is told.
func TestDrainingPrefillTakesNothingNew(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	r := p.prompt("tx-live", 1, 40)
	p.start(t, r)
	p.prefill.pod.knows(r.id)
	answered := p.prefill.pod.draining()
	late := p.prompt("tx-late", 2, 40)
	p.start(t, late)
	turnedDown(t, p.prefill.sched, late.id, "expect", "hold")
	send(t, p.prefill.workers[0].client, kvproto.Save{Transfer: late.id})
	turnedDown(t, p.prefill.workers[0].client, late.id, "save")
	p.decode.fails(t, late.id, ruleDraining)
	p.fill(t, r)
	p.finish(t, r)
	p.check(t, r)
	if status := <-answered; status != http.StatusOK {
		t.Fatalf("drain answers %d", status)
	}
	for _, pod := range []*pod{p.prefill.pod, p.decode.pod} {
		if status, body := pod.get("/debug/transfers"); status != http.StatusOK || !strings.Contains(body, `"transfers":[]`) && !strings.Contains(body, `"transfers":null`) {
			t.Errorf("%s has %s", pod.cfg.Role, body)
		}
	}
}

// A draining decode tells prefill of what it refuses: it may hold blocks for it.
func TestDrainingDecodeTakesNothingNew(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	r := p.prompt("tx-live", 1, 40)
	p.start(t, r)
	p.decode.pod.knows(r.id)
	answered := p.decode.pod.draining()
	late := p.prompt("tx-late", 2, 40)
	p.start(t, late)
	turnedDown(t, p.decode.sched, late.id, "expect", "receive")
	expectFailed(t, p.prefill.sched, late.id, ruleDraining)
	for _, w := range p.prefill.workers {
		expectFailed(t, w.client, late.id, ruleDraining)
	}
	p.fill(t, r)
	p.finish(t, r)
	p.check(t, r)
	if status := <-answered; status != http.StatusOK {
		t.Fatalf("drain answers %d", status)
	}
}

// knows waits until the agent has a transfer.
func (p *pod) knows(id string) {
	p.t.Helper()
	eventually(p.t, func() error {
		_, err := p.look(id)
		return err
	})
}

func TestDrainOfAnIdleAgentEndsAtOnce(t *testing.T) {
	for _, mover := range []kvlayout.Mover{kvlayout.MoverAgent, kvlayout.MoverEngine} {
		t.Run(string(mover), func(t *testing.T) {
			var idle *pod
			if mover == kvlayout.MoverAgent {
				idle = startPod(t, podConfig(t, kvlayout.Decode, latent, dealt), nil)
			} else {
				// Its engine is up and has no page of numbers.
				cfg := engineConfig(t)
				e := startStock(t, cfg)
				e.silent.Store(true)
				idle = startGuard(t, cfg)
			}
			// One that waits for its deadline answers after the test's patience.
			if status, body := idle.get("/drain"); status != http.StatusOK {
				t.Errorf("drain answers %d %s", status, body)
			}
		})
	}
}

func TestOnlyTheTokenDrains(t *testing.T) {
	const token = "only-the-operator-knows"
	sum := sha256.Sum256([]byte(token))
	cfg := podConfig(t, kvlayout.Decode, latent, dealt)
	cfg.DrainToken = hex.EncodeToString(sum[:])
	idle := startPod(t, cfg, nil)
	idle.connect()
	ask := func(method, header string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+endpoint(idle.ip, cfg.Ports.Agent)+"/drain", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			req.Header.Set(agentconfig.DrainHeader, header)
		}
		resp, err := (&http.Client{Timeout: within}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, header := range []string{"", "guessed", cfg.DrainToken, token + " "[:0] + "x"} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if status := ask(method, header); status != http.StatusForbidden {
				t.Errorf("%s with %q: %d", method, header, status)
			}
		}
	}
	if status, _ := idle.get("/readyz"); status != http.StatusOK {
		t.Fatalf("ready: %d", status)
	}
	if n := dropped(t, idle, portHTTP, "drain-token"); n != 8 {
		t.Errorf("%d are counted", n)
	}
	if status := ask(http.MethodGet, token); status != http.StatusOK {
		t.Errorf("the operator's: %d", status)
	}
	idle.await("/readyz", http.StatusServiceUnavailable)
}

func TestDebugIsForLocalClientsAndForTheToken(t *testing.T) {
	dir := keyDir(t, "a", "")
	m := newMetrics()
	for _, c := range []struct {
		dir, from, header string
		status            int
	}{
		{dir, "127.0.0.1:1", "", http.StatusOK},
		{"", "127.0.0.1:1", "", http.StatusOK},
		{dir, "[::1]:1", "", http.StatusOK},
		{dir, "[::ffff:127.0.0.1]:1", "", http.StatusOK},
		{dir, "10.0.0.9:1", "", http.StatusForbidden},
		{dir, "10.0.0.9:1", "Bearer open-b", http.StatusForbidden},
		{dir, "10.0.0.9:1", "Bearer ", http.StatusForbidden},
		{dir, "10.0.0.9:1", "open-a", http.StatusForbidden},
		{dir, "10.0.0.9:1", "Bearer open-a", http.StatusOK},
		{"", "10.0.0.9:1", "Bearer open-a", http.StatusForbidden},
		{t.TempDir(), "10.0.0.9:1", "Bearer ", http.StatusForbidden},
		{dir, "", "", http.StatusForbidden},
	} {
		g := newGate(&agentconfig.Config{KeyDir: c.dir}, m)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/transfers", http.NoBody)
		req.RemoteAddr = c.from
		req.Header.Set("Authorization", c.header)
		w := httptest.NewRecorder()
		g.debug(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })(w, req)
		if w.Code != c.status {
			t.Errorf("%+v: %d %s", c, w.Code, w.Body)
		}
	}
}

func TestStuckLoopIsNotAlive(t *testing.T) {
	l := &loop{born: time.Now(), limits: defaultLimits(ownIP), inbox: make(chan turn), ended: make(chan struct{}), metrics: newMetrics()}
	var err error
	if l.machine, err = (&loop{config: &agentconfig.Config{Role: kvlayout.Decode}}).build(nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.run(ctx) }()
	release, taken := make(chan struct{}), make(chan struct{})
	if !l.do(func(context.Context) { close(taken); <-release }) {
		t.Fatal("the loop has ended")
	}
	<-taken
	if err := l.stuck(); err != nil {
		t.Errorf("at once: %v", err)
	}
	l.limits.turn = time.Nanosecond
	eventually(t, func() error {
		if err := l.stuck(); err == nil || !strings.Contains(err.Error(), "busy with one event") {
			return fmt.Errorf("the loop is stuck: %w", err)
		}
		return nil
	})
	if err := (&coreHealth{loop: l}).alive(); err == nil || !strings.Contains(err.Error(), "busy with one event") {
		t.Errorf("alive: %v", err)
	}
	close(release)
	if err := l.ask(ctx, func(context.Context) {}); err != nil {
		t.Fatal(err)
	}
	eventually(t, l.stuck)
	cancel()
	<-done
}
