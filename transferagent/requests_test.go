package transferagent

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// numbers is an engine's page of numbers.
type numbers struct {
	silent, busy             atomic.Bool // there is none; there is none now
	running, queued, scraped atomic.Int32
}

func (n *numbers) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	n.scraped.Add(1)
	switch {
	case n.silent.Load():
		w.WriteHeader(http.StatusNotFound)
	case n.busy.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprintf(w, "# %s\n# TYPE vllm:num_requests_running gauge\n", strings.Repeat("x", 100_000))
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running{engine=\"0\"} %d.0\nvllm:num_requests_waiting{engine=\"0\"} %d.0\n", n.running.Load(), n.queued.Load())
	}
}

// serveEngine is the OpenAI server of an engine.
func serveEngine(t *testing.T, port int, h http.Handler) {
	t.Helper()
	l, err := net.Listen("tcp", endpoint(engineAddress, port))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}

// counting has a pod's engine tell its requests.
func (p *pod) counting(running, queued int32) *numbers {
	p.t.Helper()
	n := &numbers{}
	n.running.Store(running)
	n.queued.Store(queued)
	serveEngine(p.t, p.cfg.Ports.HTTP, n)
	return n
}

// leave asks the pod to drain and returns where the answer's status comes.
func (p *pod) leave() <-chan int {
	p.t.Helper()
	answered := make(chan int, 1)
	go func() {
		status, _ := p.get("/drain")
		answered <- status
	}()
	p.await("/readyz", http.StatusServiceUnavailable)
	return answered
}

// looked waits until the agent has looked at its engine again, twice: the first look
// may have begun before.
func (p *pod) looked(n *numbers, answered <-chan int) {
	p.t.Helper()
	before := n.scraped.Load()
	eventually(p.t, func() error {
		select {
		case status := <-answered:
			p.t.Fatalf("drain answers %d", status)
		default:
		}
		if n.scraped.Load() < before+2 {
			return errors.New("the engine was not looked at")
		}
		return nil
	})
}

// A pod that is deleted ends its streams, however its transfers stand.
func TestDrainWaitsForTheEnginesRequests(t *testing.T) {
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		t.Run(string(role), func(t *testing.T) {
			p := startPair(t, "mem", latent, plain, dealt)
			p.serves(t, "tx-before", 1)
			pod := p.decode.pod
			if role == kvlayout.Prefill {
				pod = p.prefill.pod
			}
			n := pod.counting(1, 0)
			answered := pod.leave()
			pod.looked(n, answered)
			n.queued.Store(1)
			n.running.Store(0)
			pod.looked(n, answered)
			n.busy.Store(true) // says nothing now
			pod.looked(n, answered)
			n.busy.Store(false)
			n.queued.Store(0)
			if status := <-answered; status != http.StatusOK {
				t.Fatalf("drain answers %d", status)
			}
		})
	}
}

func TestDrainWaitsForRequestsNoLongerThanItsDeadline(t *testing.T) {
	cfg := podConfig(t, kvlayout.Decode, latent, dealt)
	cfg.Timeouts.Drain = 1
	pod := startPod(t, cfg, nil)
	pod.connect()
	pod.counting(2, 1)
	// Each drain has its deadline; a slow machine may spend one before the engine answers.
	eventually(t, func() error {
		status, body := pod.get("/drain")
		if status != http.StatusGatewayTimeout {
			t.Fatalf("drain answers %d %s", status, body)
		}
		if !strings.Contains(body, "3 requests of the engine, 0 transfers live") {
			return fmt.Errorf("drain answers %s", body)
		}
		return nil
	})
}

// What routers have sent before they noticed is in the engines' queues, and served.
func TestDrainServesWhatIsQueuedInTheEngine(t *testing.T) {
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		t.Run(string(role), func(t *testing.T) {
			p := startPair(t, "tcp", latent, plain, dealt)
			pod, turnedDownAt := p.decode.pod, p.decode.sched
			if role == kvlayout.Prefill {
				pod, turnedDownAt = p.prefill.pod, p.prefill.sched
			}
			n := pod.counting(0, 1)
			answered := pod.leave()
			pod.looked(n, answered)
			p.serves(t, "tx-queued", 1)
			n.queued.Store(0)
			if status := <-answered; status != http.StatusOK {
				t.Fatalf("drain answers %d", status)
			}
			send(t, turnedDownAt, kvproto.Expect{Transfer: "tx-late", Tokens: 8})
			turnedDown(t, turnedDownAt, "tx-late", "expect")
		})
	}
}

// A transfer that decode waits for is served though prefill, whose engine counts
// nothing, comes to it late.
func TestDrainWaitsForWhatDecodeHasAskedFor(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	r := p.prompt("tx-asked", 1, 40)
	hash := []byte("hash")
	send(t, p.decode.sched, kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: hash}, p.receive(r))
	p.prefill.pod.knows(r.id)
	answered := p.prefill.pod.draining()
	send(
		t, p.prefill.sched,
		kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: hash}, kvproto.Hold{Transfer: r.id, Blocks: r.source, Tokens: r.tokens},
	)
	p.fill(t, r)
	p.finish(t, r)
	p.check(t, r)
	if status := <-answered; status != http.StatusOK {
		t.Fatalf("drain answers %d", status)
	}
}

// Routers take a moment to notice, and an engine that counts nothing can't tell what
// is on its way.
func TestDrainTakesNewTransfersUntilRoutersHaveNoticed(t *testing.T) {
	pace := pace{probe: 5 * time.Millisecond, settle: within}
	pp := startPodWith(t, Options{Config: podConfig(t, kvlayout.Prefill, latent, plain), PodIP: ownIP, PodName: "pod-0", pace: pace})
	dp := startPodWith(t, Options{Config: podConfig(t, kvlayout.Decode, latent, dealt), PodIP: ownIP, PodName: "pod-0", pace: pace})
	p := &pair{prefill: pp.connect(), decode: dp.connect()}
	for _, pod := range []*pod{pp, dp} {
		go func() { _, _, _ = pod.ask("/drain") }()
		pod.await("/readyz", http.StatusServiceUnavailable)
	}
	p.serves(t, "tx-1", 1)
	p.serves(t, "tx-2", 2)
	for _, pod := range []*pod{pp, dp} {
		if _, body := pod.get("/readyz"); !strings.Contains(body, errDraining.Error()) || strings.Contains(body, errClosing.Error()) {
			t.Errorf("%s says %s", pod.cfg.Role, body)
		}
	}
}

// Nobody sends to a pod that was never ready: there is nothing to wait for.
func TestDrainOfAPodThatNeverServedEndsAtOnce(t *testing.T) {
	d := departure{settle: within}
	if !d.begin(false) || time.Until(*d.settled.Load()) > 0 || !d.draining() {
		t.Errorf("it settles until %v", d.settled.Load())
	}
	if d.begin(true) || time.Until(*d.settled.Load()) > 0 {
		t.Errorf("the second drain moves that to %v", d.settled.Load())
	}
	if d = (departure{settle: within}); !d.begin(true) || time.Until(*d.settled.Load()) <= 0 {
		t.Errorf("a pod that was ready settles until %v", d.settled.Load())
	}
}
