package transferagent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/zmtp"
)

// stock is an engine as a stock vLLM looks from its agent.
type stock struct {
	t       *testing.T
	cfg     agentconfig.Config
	healthy atomic.Bool
	numbers
	listeners map[int]net.Listener
	pings     *zmtp.Dealer
}

func engineConfig(t *testing.T, routers ...string) agentconfig.Config {
	t.Helper()
	c := podConfig(t, kvlayout.Decode, latent, kvlayout.Layout{TP: 2})
	c.Engine, c.Mover, c.Backend, c.KVSocket, c.Routers = kvlayout.VLLM, kvlayout.MoverEngine, agentconfig.RDMA, "", routers
	c.Ports.Ping = freePort(t)
	c.Ports.EngineHandshake = freePorts(t, 2)
	c.Ports.EngineNotify = freePorts(t, 2)
	return c
}

// freePorts finds n ports in a row.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	first := freePort(t)
	for last := first; last < first+n-1; {
		next := freePort(t)
		if next != last+1 {
			first = next
		}
		last = next
	}
	return first
}

func startStock(t *testing.T, cfg agentconfig.Config) *stock {
	t.Helper()
	e := &stock{t: t, cfg: cfg, listeners: map[int]net.Listener{}}
	e.healthy.Store(true)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if !e.healthy.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", &e.numbers)
	serveEngine(t, cfg.Ports.HTTP, mux)
	for offset := range 2 {
		for _, base := range []int{cfg.Ports.EngineHandshake, cfg.Ports.EngineNotify} {
			l := e.listen(base + offset)
			e.listeners[base+offset] = l
			go discard(l)
		}
	}
	return e
}

func (e *stock) listen(port int) net.Listener {
	e.t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = l.Close() })
	return l
}

func discard(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.Close()
	}
}

// ping registers as a stock engine does.
func (e *stock) ping() {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), within)
	defer cancel()
	if e.pings == nil {
		d, err := zmtp.Dial(ctx, fmt.Sprintf("127.0.0.1:%d", e.cfg.Ports.Ping), zmtp.Options{})
		if err != nil {
			e.t.Fatal(err)
		}
		e.pings = d
		e.t.Cleanup(func() { _ = d.Close() })
	}
	m := moriio.Registration{
		Role: e.cfg.Role, HTTPAddress: fmt.Sprintf("172.17.0.1:%d", e.cfg.Ports.HTTP),
		ZMQAddress: moriio.FormatZMQAddress("172.17.0.1", e.cfg.Ports.EngineHandshake, e.cfg.Ports.EngineNotify),
		DPSize:     1, TPSize: 2, TransferMode: kvlayout.Write,
	}
	if err := e.pings.Send(ctx, m.Append(nil)); err != nil {
		e.t.Fatal(err)
	}
}

// directory is a router that collects registrations.
type directory struct {
	address string
	mu      sync.Mutex
	seen    []*moriio.Registration
}

func startDirectory(t *testing.T) *directory {
	t.Helper()
	d := &directory{}
	r, err := zmtp.Listen(t.Context(), "127.0.0.1:0", zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d.address = r.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- r.Serve(ctx, func(_ *zmtp.Peer, frames [][]byte) {
			m, err := moriio.ParseRegistration(frames[0])
			if err != nil || len(frames) != 1 {
				t.Errorf("the router gets %d frames: %v", len(frames), err)
				return
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.seen = append(d.seen, m)
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return d
}

func (d *directory) all() []*moriio.Registration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.seen)
}

func startGuard(t *testing.T, cfg agentconfig.Config) *pod {
	t.Helper()
	return startPodWith(t, Options{
		Config: cfg, PodIP: netip.MustParseAddr("127.0.0.1"), PodName: "pod-0",
		pace: pace{probe: 5 * time.Millisecond, settle: time.Nanosecond, relay: 10 * time.Millisecond, resolve: 20 * time.Millisecond},
	})
}

func TestRegistrationReachesEachRouterEnriched(t *testing.T) {
	first, second := startDirectory(t), startDirectory(t)
	_, port, err := net.SplitHostPort(second.address)
	if err != nil {
		t.Fatal(err)
	}
	cfg := engineConfig(t, first.address, "localhost:"+port)
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	e, pod := startStock(t, cfg), startGuard(t, cfg)
	eventually(t, func() error {
		if status, body := pod.get("/readyz"); status == http.StatusOK || !strings.Contains(body, "not registered") {
			return fmt.Errorf("ready without a registration: %d %s", status, body)
		}
		return nil
	})
	if got := first.all(); len(got) != 0 {
		t.Fatalf("the agent invents %+v", got[0])
	}
	e.ping()
	pod.await("/readyz", http.StatusOK)
	for _, d := range []*directory{first, second} {
		eventually(t, func() error {
			if len(d.all()) == 0 {
				return fmt.Errorf("router %s has no registration", d.address)
			}
			return nil
		})
		m := d.all()[0]
		want := moriio.Instance{
			Namespace: "ns", Pool: "pool", Pod: "pod-0", Pairing: "key", Revision: "r1", Layout: cfg.Layout, Block: cfg.Block,
			KVType: cfg.KVType, Model: cfg.Served, Agent: fmt.Sprintf("127.0.0.1:%d", cfg.Ports.Agent),
		}
		if m.PDPool == nil || *m.PDPool != want {
			t.Fatalf("instance %+v, not %+v", m.PDPool, want)
		}
		if m.HTTPAddress != fmt.Sprintf("127.0.0.1:%d", cfg.Ports.HTTP) || !strings.Contains(m.ZMQAddress, "host:127.0.0.1,") || m.TPSize != 2 {
			t.Fatalf("registration %+v", m)
		}
	}
}

func TestDeadListenerEndsReadinessAndRelay(t *testing.T) {
	router := startDirectory(t)
	cfg := engineConfig(t, router.address)
	e, pod := startStock(t, cfg), startGuard(t, cfg)
	e.ping()
	pod.await("/readyz", http.StatusOK)
	port := cfg.Ports.EngineNotify + 1
	_ = e.listeners[port].Close()
	pod.await("/readyz", http.StatusServiceUnavailable)
	if _, body := pod.get("/readyz"); !strings.Contains(body, fmt.Sprintf("engine port %d is not listening", port)) {
		t.Fatalf("not ready because %s", body)
	}
	// What was under way may still come; after that the engine's pings lead to nothing.
	before := -1
	eventually(t, func() error {
		n := len(router.all())
		defer func() { before = n }()
		e.ping()
		if n != before {
			return fmt.Errorf("%d registrations, %d before", n, before)
		}
		return nil
	})
	e.listeners[port] = e.listen(port)
	go discard(e.listeners[port])
	pod.await("/readyz", http.StatusOK)
	eventually(t, func() error {
		if len(router.all()) <= before {
			return fmt.Errorf("no registration after the listener is back")
		}
		return nil
	})
	e.healthy.Store(false)
	pod.await("/readyz", http.StatusServiceUnavailable)
}

func TestRoutersAreToldOfDraining(t *testing.T) {
	router := startDirectory(t)
	cfg := engineConfig(t, router.address)
	e, pod := startStock(t, cfg), startGuard(t, cfg)
	e.running.Store(1)
	e.ping()
	pod.await("/readyz", http.StatusOK)
	answered := make(chan int, 1)
	go func() {
		status, _ := pod.get("/drain")
		answered <- status
	}()
	eventually(t, func() error {
		all := router.all()
		if len(all) == 0 || !all[len(all)-1].PDPool.Draining {
			return fmt.Errorf("%d registrations, none says draining", len(all))
		}
		return nil
	})
	pod.await("/readyz", http.StatusServiceUnavailable)
	select {
	case status := <-answered:
		t.Fatalf("drain answers %d while a request runs", status)
	default:
	}
	e.running.Store(0)
	if status := <-answered; status != http.StatusOK {
		t.Fatalf("drain answers %d", status)
	}
}

func TestDrainOutlastsAnEngineThatDoesNotAnswer(t *testing.T) {
	cfg := engineConfig(t)
	e, pod := startStock(t, cfg), startGuard(t, cfg)
	e.busy.Store(true)
	answered := make(chan int, 1)
	go func() {
		status, _ := pod.get("/drain")
		answered <- status
	}()
	eventually(t, func() error {
		select {
		case status := <-answered:
			t.Fatalf("drain answers %d while the engine does not tell", status)
		default:
		}
		if n := e.scraped.Load(); n < 3 {
			return fmt.Errorf("the engine was asked %d times", n)
		}
		return nil
	})
	e.busy.Store(false)
	if status := <-answered; status != http.StatusOK {
		t.Fatalf("drain answers %d", status)
	}
	gone := engineConfig(t)
	if status, _ := startGuard(t, gone).get("/drain"); status != http.StatusOK {
		t.Fatalf("drain beside an engine that is gone answers %d", status)
	}
}

func TestOtherEnginesRegistrationIsDropped(t *testing.T) {
	cfg := engineConfig(t)
	e, pod := startStock(t, cfg), startGuard(t, cfg)
	e.cfg.Role = kvlayout.Prefill
	e.ping()
	eventually(t, func() error {
		if _, metrics := pod.get("/metrics"); !strings.Contains(metrics, `pdpool_agent_dropped_messages_total{port="ping",reason="registration-differs"} 1`) {
			return fmt.Errorf("a prefill's registration at decode's agent is not counted")
		}
		return nil
	})
	if status, _ := pod.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Fatalf("ready: %d", status)
	}
}

func TestRegistrationGrowsOld(t *testing.T) {
	now := time.Unix(1000, 0)
	cfg := engineConfig(t)
	r := newRegistrar(Options{Config: cfg, PodIP: netip.MustParseAddr("10.0.0.1"), Log: slog.New(slog.DiscardHandler)}, newMetrics())
	r.now = func() time.Time { return now }
	m := moriio.Registration{
		Role: cfg.Role, HTTPAddress: fmt.Sprintf("10.9.9.9:%d", cfg.Ports.HTTP), DPSize: 1, TPSize: 2, TransferMode: kvlayout.Write,
		ZMQAddress: moriio.FormatZMQAddress("10.9.9.9", cfg.Ports.EngineHandshake, cfg.Ports.EngineNotify),
	}
	r.take(m.Append(nil))
	r.probed.Store(&probe{at: now})
	if got, err := r.current(); err != nil || got.HTTPAddress != fmt.Sprintf("10.0.0.1:%d", cfg.Ports.HTTP) {
		t.Fatalf("current: %+v, %v", got, err)
	}
	now = now.Add(freshWithin + time.Second)
	r.probed.Store(&probe{at: now})
	if got, err := r.current(); err == nil {
		t.Fatalf("after %v still %+v", freshWithin, got)
	}
	if err := r.alive(); err != nil {
		t.Fatalf("alive: %v", err)
	}
	now = now.Add(stuckAfter + time.Second)
	if err := r.alive(); err == nil || !strings.Contains(err.Error(), "1m1s") {
		t.Fatalf("alive after %v: %v", stuckAfter, err)
	}
}
