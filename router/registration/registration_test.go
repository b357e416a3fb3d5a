package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/router"
	"github.com/pdpool/pdpool/router/policy"
	"github.com/pdpool/pdpool/zmtp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// rig is a listener with its registry, and a router that shows what is known.
type rig struct {
	*Listener
	registry *router.Registry
	server   *router.Server
	clock    chan time.Duration // how far the listener's clock is ahead
}

func newRouter() (*router.Registry, *router.Server) {
	registry := router.NewRegistry()
	o := router.Defaults()
	o.Registry, o.Log, o.Random = registry, slog.New(slog.DiscardHandler), rand.IntN
	o.Policy = func() policy.Policy { return policy.LeastLoaded{} }
	return registry, router.NewServer(o)
}

func newRig(t *testing.T, pool string) *rig {
	t.Helper()
	registry, server := newRouter()
	r := &rig{registry: registry, server: server, clock: make(chan time.Duration, 1)}
	options := Options{Source: registry.Source("registrations"), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()}
	if pool != "" {
		options.Namespace, options.Pool = "ns", pool
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", options)
	if err != nil {
		t.Fatal(err)
	}
	r.Listener = l
	r.clock <- 0
	l.now = func() time.Time {
		ahead := <-r.clock
		r.clock <- ahead
		return time.Now().Add(ahead)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- l.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		r.server.Close(ctx)
	})
	return r
}

// later sets the listener's clock ahead and lets it look.
func (r *rig) later(ahead time.Duration) {
	<-r.clock
	r.clock <- ahead
	r.wake <- struct{}{}
}

func (r *rig) dial(t *testing.T) *zmtp.Dealer {
	t.Helper()
	d, err := zmtp.Dial(t.Context(), r.Addr(), zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func (r *rig) register(t *testing.T, ms ...moriio.Registration) {
	t.Helper()
	d := r.dial(t)
	for _, m := range ms {
		if err := d.Send(t.Context(), m.Append(nil)); err != nil {
			t.Fatal(err)
		}
	}
}

// becomes waits until the router counts so many pairs.
func (r *rig) becomes(t *testing.T, pairs int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pairs", pairs), func() bool { return r.metric("pdpool_router_pairs") == fmt.Sprint(pairs) })
}

func (r *rig) metric(name string) string {
	w := httptest.NewRecorder()
	r.server.OpsHandler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for line := range strings.SplitSeq(w.Body.String(), "\n") {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			return v
		}
	}
	return ""
}

func (r *rig) dropped(reason string) float64 {
	return testutil.ToFloat64(r.Listener.dropped.WithLabelValues(reason))
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

func stock(role kvlayout.Role, port int) moriio.Registration {
	return moriio.Registration{
		Role: role, HTTPAddress: fmt.Sprintf("127.0.0.1:%d", port), ZMQAddress: moriio.FormatZMQAddress("127.0.0.1", 6301, 61005),
		DPSize: 1, TPSize: 8, TransferMode: kvlayout.Write,
	}
}

func enriched(role kvlayout.Role, port int) moriio.Registration {
	m := stock(role, port)
	m.PDPool = &moriio.Instance{
		Namespace: "ns", Pool: "p", Pod: fmt.Sprint(role, port), Pairing: "key", Revision: "r", Layout: kvlayout.Layout{TP: 8},
		Block: 64, KVType: kvlayout.BF16, Model: "m", Agent: "127.0.0.1:9",
	}
	return m
}

func TestStockEnginesPairByMode(t *testing.T) {
	r := newRig(t, "")
	reads := stock(kvlayout.Decode, 3)
	reads.TransferMode = kvlayout.Read
	r.register(t, stock(kvlayout.Prefill, 1), stock(kvlayout.Decode, 2), reads)
	r.becomes(t, 1)
	// An instance that comes back in another mode is used in that.
	reads.TransferMode = kvlayout.Write
	r.register(t, reads)
	r.becomes(t, 2)
}

func TestEnrichedPairByKey(t *testing.T) {
	r := newRig(t, "")
	other := enriched(kvlayout.Decode, 3)
	other.PDPool.Pairing = "other"
	r.register(t, enriched(kvlayout.Prefill, 1), enriched(kvlayout.Decode, 2), other, stock(kvlayout.Decode, 4))
	r.becomes(t, 1)
	if got := r.metric(`pdpool_router_instances{role="decode"}`); got != "3" {
		t.Errorf("%s decode instances", got)
	}
	drains := enriched(kvlayout.Decode, 2)
	drains.PDPool.Draining = true
	r.register(t, drains)
	r.becomes(t, 0)
}

// TestRegistrationsExpire in simulated time, which the sweeper waits for.
func TestRegistrationsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, server := newRouter()
		defer server.Close(t.Context())
		r := &rig{registry: registry, server: server, Listener: &Listener{
			o: Options{Source: registry.Source("registrations"), Log: slog.New(slog.DiscardHandler)}, now: time.Now,
			entries: map[string]entry{}, ranks: map[netip.Addr]int{}, wake: make(chan struct{}, 1),
		}}
		ctx, stop := context.WithCancel(t.Context())
		var sweeper sync.WaitGroup
		sweeper.Go(func() { r.sweep(ctx) })
		defer sweeper.Wait()
		defer stop()
		from := netip.MustParseAddr("127.0.0.1")
		register := func(ms ...moriio.Registration) {
			for _, m := range ms {
				said, reason := r.instance(&m, from)
				if reason == "" {
					reason = r.keep(m.HTTPAddress, from, said)
				}
				if reason != "" {
					t.Errorf("%s is not taken: %s", m.HTTPAddress, reason)
				}
			}
		}
		began := time.Now()
		pairsAt := func(at time.Duration, pairs string) {
			time.Sleep(at - time.Since(began))
			synctest.Wait()
			if got := r.metric("pdpool_router_pairs"); got != pairs {
				t.Errorf("%s pairs at %v, not %s", got, at, pairs)
			}
		}
		register(stock(kvlayout.Prefill, 1), stock(kvlayout.Decode, 2))
		pairsAt(settle, "1")
		pairsAt(9*time.Second, "1")
		register(stock(kvlayout.Prefill, 1), stock(kvlayout.Decode, 3)) // the prefill's second heartbeat
		pairsAt(9*time.Second+settle, "2")
		pairsAt(lifetime, "2")
		pairsAt(lifetime+settle, "1") // decode 2 has gone
		pairsAt(9*time.Second+lifetime, "1")
		pairsAt(9*time.Second+lifetime+settle, "0")
		register(stock(kvlayout.Prefill, 1), stock(kvlayout.Decode, 2))
		pairsAt(20*time.Second, "1")
	})
}

func TestPoolTakesOnlyItsOwn(t *testing.T) {
	r := newRig(t, "p")
	foreign := enriched(kvlayout.Decode, 2)
	foreign.PDPool.Pool = "q"
	elsewhere := enriched(kvlayout.Decode, 3)
	elsewhere.PDPool.Namespace = "other"
	forged := enriched(kvlayout.Decode, 4)
	forged.HTTPAddress = "10.9.8.7:4"
	r.register(t, enriched(kvlayout.Prefill, 1), stock(kvlayout.Decode, 1), foreign, elsewhere, forged, enriched(kvlayout.Decode, 5))
	r.becomes(t, 1)
	if n := r.dropped(reasonPool); n != 3 {
		t.Errorf("%v of other pools were dropped", n)
	}
	if n := r.dropped(reasonSender); n != 1 {
		t.Errorf("%v with another's address were dropped", n)
	}
}

// TestOwnAddressOnly: without a pool too nobody registers another's address, as an
// engine or for the control ports that a peer is told.
func TestOwnAddressOnly(t *testing.T) {
	r := newRig(t, "")
	elsewhere, named, steered := stock(kvlayout.Decode, 2), stock(kvlayout.Decode, 3), stock(kvlayout.Decode, 4)
	elsewhere.HTTPAddress = "10.9.8.7:2"
	named.HTTPAddress = "localhost:3"
	steered.ZMQAddress = moriio.FormatZMQAddress("10.9.8.7", 1, 2)
	r.register(t, stock(kvlayout.Prefill, 1), elsewhere, named, steered, stock(kvlayout.Decode, 5))
	r.becomes(t, 1)
	if n := r.dropped(reasonSender); n != 3 {
		t.Errorf("%v with another's address were dropped", n)
	}
	for _, c := range []struct {
		host, from string
		own        bool
	}{
		{"10.0.0.1", "10.0.0.1", true},
		{"10.0.0.1", "::ffff:10.0.0.1", true},
		{"::ffff:10.0.0.1", "10.0.0.1", true},
		{"fd00::1", "fd00::1", true},
		{"127.0.0.2", "127.0.0.1", true},
		{"::1", "127.0.0.1", true},
		{"10.0.0.1", "10.0.0.2", false},
		{"10.0.0.1", "127.0.0.1", false},
		{"127.0.0.1", "10.0.0.1", false},
		{"::ffff:127.0.0.1", "10.0.0.1", false},
		{"host", "10.0.0.1", false},
		{"fe80::1%eth0", "fe80::1", false},
	} {
		if got := own(c.host, netip.MustParseAddr(c.from)); got != c.own {
			t.Errorf("%s from %s: %v", c.host, c.from, got)
		}
	}
}

func TestBadRegistrationsAreCounted(t *testing.T) {
	r := newRig(t, "")
	nobody := stock(kvlayout.Prefill, 1)
	nobody.HTTPAddress = "0.0.0.0:1"
	noPort := stock(kvlayout.Prefill, 1)
	noPort.HTTPAddress = "10.0.0.1"
	d := r.dial(t)
	for _, frames := range [][][]byte{
		{[]byte("hello")}, {{}}, {nobody.Append(nil)}, {noPort.Append(nil)}, {{}, nobody.Append(nil)},
	} {
		if err := d.Send(t.Context(), frames...); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all counted", func() bool {
		return r.dropped(reasonAddress) == 1 && r.dropped(reasonFrames) == 1 && r.dropped(moriio.BadField) == 2 && r.dropped(moriio.Truncated) == 1
	})
	// The listener goes on, on this connection and on others.
	good := stock(kvlayout.Prefill, 1)
	if err := d.Send(t.Context(), good.Append(nil)); err != nil {
		t.Fatal(err)
	}
	r.register(t, stock(kvlayout.Decode, 2))
	r.becomes(t, 1)
}

// TestGarbage sends what port scanners and wrong clients send.
func TestGarbage(t *testing.T) {
	r := newRig(t, "")
	random := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 4096)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	for _, garbage := range [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, // the beginning of TLS
		noise,
		{},
	} {
		conn, err := net.Dial("tcp", r.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(garbage)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, _ = io.Copy(io.Discard, conn) // until the listener has had enough
		_ = conn.Close()
	}
	eventually(t, "garbage counted", func() bool { return r.dropped(zmtp.NotZMTP) >= 2 && r.dropped(zmtp.Probe) == 1 })
	r.register(t, stock(kvlayout.Prefill, 1), stock(kvlayout.Decode, 2))
	r.becomes(t, 1)
}

// ranked is an instance of so many ranks.
func ranked(port, ranks int) router.Instance {
	return router.Instance{
		Role: kvlayout.Prefill, Ready: true, Layout: kvlayout.Layout{TP: 1, DP: ranks}, Pods: []router.Pod{{Host: "127.0.0.1", HTTP: port}},
	}
}

func TestEntriesAreBounded(t *testing.T) {
	r := newRig(t, "")
	from := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
	for i := range maxEntries {
		if reason := r.keep(fmt.Sprint(i), from(i), ranked(i, 1)); reason != "" {
			t.Fatal(i, reason)
		}
	}
	if reason := r.keep("new", from(maxEntries), ranked(1, 1)); reason != reasonFull {
		t.Errorf("one too many: %q", reason)
	}
	if reason := r.keep("7", from(7), ranked(7, 1)); reason != "" {
		t.Errorf("a known one: %q", reason)
	}
}

// TestChangesOfASenderAreBounded: who says something else all the time is not heard any
// more, costs few lines of the log, and nobody else anything.
func TestChangesOfASenderAreBounded(t *testing.T) {
	var log strings.Builder
	now := time.Unix(1000, 0)
	l := &Listener{
		o:   Options{Source: router.NewRegistry().Source("registrations"), Log: slog.New(slog.NewTextHandler(&log, nil))},
		now: func() time.Time { return now }, entries: map[string]entry{}, ranks: map[netip.Addr]int{}, wake: make(chan struct{}, 1),
	}
	from, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	said := ranked(1, 1)
	dropped := 0
	for range 42_000 {
		said.Draining = !said.Draining
		if l.keep("a", from, said) == reasonRate {
			dropped++
		}
	}
	if n := strings.Count(log.String(), "\n"); dropped != (42_000-maxChanges)/2 || l.changes[from] != maxChanges || n > maxLines {
		t.Errorf("%d were dropped, %d taken, %d lines logged", dropped, l.changes[from], n)
	}
	if reason := l.keep("a", from, l.entries["a"].said); reason != "" {
		t.Errorf("its heartbeat: %q", reason)
	}
	if reason := l.keep("b", other, ranked(2, 1)); reason != "" {
		t.Errorf("another sender: %q", reason)
	}
	now = now.Add(window)
	said.Draining = !l.entries["a"].said.Draining
	if reason := l.keep("a", from, said); reason != "" {
		t.Errorf("later: %q", reason)
	}
}

// TestOverlayTakesOnlyKnownPods: what would not count costs nothing.
func TestOverlayTakesOnlyKnownPods(t *testing.T) {
	registry := router.NewRegistry()
	registry.Source("Kubernetes").Publish([]router.Instance{ranked(1, 1)})
	l := &Listener{
		o:   Options{Source: registry.Overlay("registrations"), Log: slog.New(slog.DiscardHandler)},
		now: time.Now, entries: map[string]entry{}, ranks: map[netip.Addr]int{}, wake: make(chan struct{}, 1),
	}
	from := netip.MustParseAddr("127.0.0.1")
	for port, want := range map[int]string{1: "", 2: reasonUnknown} {
		if reason := l.keep(fmt.Sprint(port), from, ranked(port, 1)); reason != want {
			t.Errorf("port %d: %q", port, reason)
		}
	}
	if len(l.entries) != 1 {
		t.Errorf("%d are kept", len(l.entries))
	}
}

// TestRanksAreBounded: one sender has so many, all have so many, and those that
// expire count no longer.
func TestRanksAreBounded(t *testing.T) {
	r := newRig(t, "")
	from := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }
	keep := func(address string, sender, ranks int, want string) {
		t.Helper()
		if reason := r.keep(address, from(sender), ranked(1, ranks)); reason != want {
			t.Errorf("%s with %d ranks: %q, not %q", address, ranks, reason, want)
		}
	}
	keep("a", 0, maxHostRanks-1, "")
	keep("b", 0, 2, reasonFull)
	keep("b", 0, 1, "")
	keep("b", 0, 1, "")
	keep("b", 0, 2, reasonFull)
	keep("a", 0, 1, "")
	keep("b", 0, 2, "")
	keep("a", 0, maxHostRanks-2, "")
	for n := 1; n < maxRanks/maxHostRanks; n++ {
		keep(fmt.Sprint(n), n, maxHostRanks, "")
	}
	keep("last", 100, 1, reasonFull)
	r.later(lifetime + time.Second)
	eventually(t, "all expired", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.entries) == 0 && r.all == 0 && len(r.ranks) == 0
	})
	keep("last", 100, maxHostRanks, "")
}

// TestChangesArePublishedTogether: what changes within a moment makes one snapshot.
func TestChangesArePublishedTogether(t *testing.T) {
	registry := router.NewRegistry()
	now := time.Unix(1000, 0)
	l := &Listener{
		o: Options{Source: registry.Source("registrations"), Log: slog.New(slog.DiscardHandler)}, now: func() time.Time { return now },
		entries: map[string]entry{}, ranks: map[netip.Addr]int{}, wake: make(chan struct{}, 1),
	}
	waits := func() bool { return len(registry.Waiting()) > 0 }
	from := netip.MustParseAddr("10.0.0.1")
	for i := range 100 {
		l.keep(fmt.Sprint(i), from, ranked(i, 1))
		now = now.Add(settle / 200)
		if next := l.tend(); next != time.Unix(1000, 0).Add(settle) {
			t.Fatalf("the next thing is due %v", next)
		}
	}
	if len(l.wake) != 1 || !waits() {
		t.Errorf("published before its time, or nobody was woken: %d", len(l.wake))
	}
	now = time.Unix(1000, 0).Add(settle)
	if next := l.tend(); next != time.Unix(1000, 0).Add(lifetime) || waits() || !l.changed.IsZero() {
		t.Errorf("not published; the next thing is due %v", next)
	}
	l.keep("7", from, ranked(7, 1))
	if !l.changed.IsZero() {
		t.Error("a heartbeat that says nothing new is published")
	}
	now = now.Add(2 * lifetime)
	l.tend()
	now = now.Add(settle)
	if next := l.tend(); !next.IsZero() || !l.changed.IsZero() || l.all != 0 {
		t.Errorf("the end is not published; the next thing is due %v", next)
	}
}

func TestPortInUse(t *testing.T) {
	r := newRig(t, "")
	_, err := Listen(t.Context(), r.Addr(), Options{Source: r.registry.Source("x"), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("%v", err)
	}
}

// TestRegisteredEnginesServe sends a request to engines that are known by their
// heartbeats only.
func TestRegisteredEnginesServe(t *testing.T) {
	r := newRig(t, "")
	bodies := make(chan map[string]any, 2)
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(q.Body).Decode(&body); err == nil {
			bodies <- body
		}
		_, _ = io.WriteString(w, `{"choices":[{"text":"x","finish_reason":"length"}]}`)
	}))
	defer engine.Close()
	prefill := httptest.NewServer(engine.Config.Handler)
	defer prefill.Close()
	at := func(role kvlayout.Role, s *httptest.Server) moriio.Registration {
		return stock(role, s.Listener.Addr().(*net.TCPAddr).Port)
	}
	r.register(t, at(kvlayout.Prefill, prefill), at(kvlayout.Decode, engine))
	r.becomes(t, 1)
	w := httptest.NewRecorder()
	r.server.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"any","prompt":"x"}`)))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for range 2 {
		params, ok := (<-bodies)["kv_transfer_params"].(map[string]any)
		if !ok || params["remote_tp_size"] != 8.0 || params["remote_handshake_port"] != 6301.0 {
			t.Errorf("%v", params)
		}
	}
}
