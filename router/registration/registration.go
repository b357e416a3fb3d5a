// Package registration takes MoRIIO's heartbeats, by which engines tell routers
// that they are there. It knows nothing of Kubernetes.
package registration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/router"
	"github.com/pdpool/pdpool/zmtp"
)

// lifetime is how long an instance is believed in after its last heartbeat, which
// stock engines send every 3 s.
const lifetime = 10 * time.Second

// settle is how long registrations that change something are collected: each time
// they are published the router pairs all instances anew.
const settle = 50 * time.Millisecond

// Bounds of what is registered. Each rank is one that requests can be sent to.
const (
	maxEntries   = 4096
	maxRanks     = 8192
	maxHostRanks = 1024 // of one sender
)

// Within a window one sender may change what it says so often, which is once for each
// rank that it may have, and so many lines about changes are logged above level debug.
const (
	window     = 10 * time.Second
	maxChanges = maxHostRanks
	maxSenders = 2 * maxEntries
	maxLines   = 100
)

// Limits of the listener: a registration is a few hundred bytes.
const (
	maxFrame = 64 << 10
	idle     = time.Minute
	perHost  = 64
)

// Reasons why a registration is dropped, besides those of moriio and zmtp.
const (
	reasonFrames  = "frames"      // not one frame
	reasonPool    = "other-pool"  // of another pool, or of none
	reasonSender  = "not-sender"  // the address is not the sender's
	reasonAddress = "bad-address" // an address that cannot be dialled
	reasonFull    = "too-many"    // maxEntries, maxRanks or maxHostRanks are registered
	reasonRate    = "rate"        // maxChanges within a window
	reasonUnknown = "unknown-pod" // an overlay's, of a pod that no other source knows
)

// Options are what a Listener is made of.
type Options struct {
	Source *router.Source
	Log    *slog.Logger
	// Namespace and Pool, when set, restrict registrations to those that agents of
	// this pool relay.
	Namespace, Pool string
	Metrics         prometheus.Registerer
}

// Listener is a ROUTER socket for registrations. One is believed only about the
// address that it comes from.
type Listener struct {
	o       Options
	socket  *zmtp.Router
	dropped *prometheus.CounterVec
	now     func() time.Time

	mu      sync.Mutex
	entries map[string]entry   // by HTTP address
	ranks   map[netip.Addr]int // of all entries, by sender
	all     int                // ranks of all senders
	changed time.Time          // the first change that is not published; zero: none
	wake    chan struct{}

	began   time.Time          // of the window
	changes map[netip.Addr]int // in the window, by sender
	lines   int                // in the window
}

type entry struct {
	said  router.Instance
	from  netip.Addr // the sender
	until time.Time
}

// Listen binds addr. Nothing is taken before Serve. The source counts as synced:
// nobody knows how many registrations are to come.
func Listen(ctx context.Context, addr string, o Options) (*Listener, error) {
	l := &Listener{
		o: o, now: time.Now, entries: map[string]entry{}, ranks: map[netip.Addr]int{}, wake: make(chan struct{}, 1),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "pdpool", Subsystem: "router", Name: "registrations_dropped_total",
			Help: "Registrations that were not taken and connections that ended, by reason.",
		}, []string{"reason"}),
	}
	var err error
	l.socket, err = zmtp.Listen(ctx, addr, zmtp.Options{
		MaxFrame: maxFrame, MaxFrames: 2, Idle: idle, MaxPerHost: perHost, Count: l.drop,
	})
	if err != nil {
		return nil, err
	}
	registered := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "pdpool", Subsystem: "router", Name: "registrations", Help: "Instances that have registered and not expired.",
	}, func() float64 { l.mu.Lock(); defer l.mu.Unlock(); return float64(len(l.entries)) })
	for _, c := range []prometheus.Collector{l.dropped, registered} {
		if err := o.Metrics.Register(c); err != nil {
			l.socket.Close()
			return nil, fmt.Errorf("register the metrics of registrations: %w", err)
		}
	}
	o.Source.Publish(nil)
	return l, nil
}

// Addr is the address that Listen bound.
func (l *Listener) Addr() string { return l.socket.Addr().String() }

// Serve takes registrations until ctx ends.
func (l *Listener) Serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	sweeper.Go(func() { l.sweep(ctx) })
	defer sweeper.Wait()
	defer stop()
	return l.socket.Serve(ctx, l.take)
}

func (l *Listener) drop(reason string) {
	if reason != zmtp.Closed && reason != zmtp.Shutdown {
		l.dropped.WithLabelValues(reason).Inc()
	}
}

// take serves one message.
func (l *Listener) take(peer *zmtp.Peer, frames [][]byte) {
	if len(frames) != 1 {
		l.drop(reasonFrames)
		return
	}
	m, err := moriio.ParseRegistration(frames[0])
	if err != nil {
		if bad, ok := errors.AsType[*moriio.Error](err); ok {
			l.drop(bad.Reason())
		}
		l.o.Log.Debug("registration dropped", "from", peer.Addr(), "error", err)
		return
	}
	from := peer.Addr().Addr().Unmap()
	said, reason := l.instance(m, from)
	if reason == "" {
		reason = l.keep(m.HTTPAddress, from, said)
	}
	if reason != "" {
		l.drop(reason)
		l.o.Log.Debug("registration dropped", "from", peer.Addr(), "reason", reason, "http", m.HTTPAddress)
	}
}

// keep remembers a registration.
func (l *Listener) keep(address string, from netip.Addr, said router.Instance) (reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	known, ok := l.entries[address]
	news := !ok || !same(known.said, said)
	switch {
	case news && !l.o.Source.Knows(&said):
		return reasonUnknown
	case news && !l.mayChange(from, now):
		return reasonRate
	case ok:
		l.count(known, -1)
	}
	e := entry{said, from, now.Add(lifetime)}
	l.count(e, 1)
	if !ok && len(l.entries) >= maxEntries || l.all > maxRanks || l.ranks[from] > maxHostRanks {
		l.count(e, -1)
		if ok { // what it said before counts until it expires
			l.count(known, 1)
		}
		return reasonFull
	}
	l.entries[address] = e
	if !news {
		return ""
	}
	l.quieter(l.o.Log.Info)("instance registered", "role", said.Role, "http", address, "mode", said.Mode, "draining", said.Draining)
	if l.changed.IsZero() {
		l.changed = now
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	return ""
}

// mayChange counts a change of what a sender says. The caller holds mu.
func (l *Listener) mayChange(from netip.Addr, now time.Time) bool {
	if l.changes == nil || now.Sub(l.began) >= window {
		l.began, l.changes, l.lines = now, map[netip.Addr]int{}, 0
	}
	if n, known := l.changes[from]; n >= maxChanges || !known && len(l.changes) >= maxSenders {
		return false
	}
	l.changes[from]++
	return true
}

// quieter is how a change is logged: loud, or at level debug once there were too many.
// The caller holds mu.
func (l *Listener) quieter(loud func(string, ...any)) func(string, ...any) {
	if l.lines++; l.lines > maxLines {
		return l.o.Log.Debug
	}
	return loud
}

// count adds an entry's ranks times n, 1 or -1. The caller holds mu.
func (l *Listener) count(e entry, n int) {
	n *= max(e.said.Layout.DP, 1)
	l.all += n
	if l.ranks[e.from] += n; l.ranks[e.from] == 0 {
		delete(l.ranks, e.from)
	}
}

// same compares what registrations can differ in.
func same(a, b router.Instance) bool {
	if a.Pods[0] != b.Pods[0] {
		return false
	}
	a.Pods, b.Pods = nil, nil
	return a.Role == b.Role && a.Pairing == b.Pairing && a.Revision == b.Revision && a.Layout == b.Layout &&
		a.Block == b.Block && a.KVType == b.KVType && a.Mode == b.Mode && a.Model == b.Model && a.Draining == b.Draining
}

// sweep publishes what has changed and forgets what has expired, when it is time.
func (l *Listener) sweep(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if next := l.tend(); !next.IsZero() {
			timer.Reset(max(next.Sub(l.now()), 0))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-due:
		}
	}
}

// tend does what is due and returns when the next thing will be; zero: never. Only
// one goroutine calls it.
func (l *Listener) tend() (next time.Time) {
	l.mu.Lock()
	now := l.now()
	next = l.expire(now)
	if l.changed.IsZero() {
		l.mu.Unlock()
		return next
	}
	if at := l.changed.Add(settle); at.After(now) {
		l.mu.Unlock()
		if next.IsZero() || at.Before(next) {
			return at
		}
		return next
	}
	l.changed = time.Time{}
	all := make([]router.Instance, 0, len(l.entries))
	for _, e := range l.entries {
		all = append(all, e.said)
	}
	// Pairing takes a while with many instances: heartbeats are taken meanwhile.
	l.mu.Unlock()
	l.o.Source.Publish(all)
	return next
}

// expire drops what is too old and returns when the next one will be; zero when
// nothing is left. The caller holds mu.
func (l *Listener) expire(now time.Time) (next time.Time) {
	for address, e := range l.entries {
		switch {
		case !e.until.After(now):
			delete(l.entries, address)
			l.count(e, -1)
			if l.changed.IsZero() {
				l.changed = now
			}
			l.quieter(l.o.Log.Warn)("registration expired", "role", e.said.Role, "http", address)
		case next.IsZero() || e.until.Before(next):
			next = e.until
		}
	}
	return next
}

// instance is what a registration says, or why it is not taken.
func (l *Listener) instance(m *moriio.Registration, from netip.Addr) (said router.Instance, reason string) {
	host, port, err := moriio.ParseHTTPAddress(m.HTTPAddress)
	if err != nil {
		return said, reasonAddress
	}
	control, handshake, notify, err := moriio.ParseZMQAddress(m.ZMQAddress)
	if err != nil {
		return said, reasonAddress
	}
	if !dialable(host) || !dialable(control) {
		return said, reasonAddress
	}
	if l.o.Pool != "" {
		if m.PDPool == nil || m.PDPool.Pool != l.o.Pool || m.PDPool.Namespace != l.o.Namespace {
			return said, reasonPool
		}
	}
	if !own(host, from) || !own(control, from) {
		return said, reasonSender
	}
	said = router.Instance{
		Role: m.Role, Mode: m.TransferMode, Engine: kvlayout.VLLM, Mover: kvlayout.MoverEngine, Ready: true,
		Layout: kvlayout.Layout{TP: m.TPSize, DP: m.DPSize},
		Pods:   []router.Pod{{Host: host, HTTP: port, Control: control, Handshake: handshake, Notify: notify}},
	}
	if p := m.PDPool; p != nil {
		enrich(&said, p)
	}
	return said, ""
}

// own says that a host is the sender's: nothing else proves that who registers an
// engine runs it. All loopback addresses are of one machine.
func own(host string, from netip.Addr) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false // names are not looked up
	}
	from = from.Unmap()
	return ip.Unmap() == from || ip.Unmap().IsLoopback() && from.IsLoopback()
}

// dialable refuses addresses that name nobody.
func dialable(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.IsUnspecified() && !ip.IsMulticast()
}

// enrich adds what an agent knows of the engine whose registration it relays.
func enrich(i *router.Instance, p *moriio.Instance) {
	i.Namespace, i.Pool, i.Pairing, i.Revision = p.Namespace, p.Pool, p.Pairing, p.Revision
	i.Block, i.KVType, i.Model, i.Draining = p.Block, p.KVType, p.Model, p.Draining
	if p.Layout.TP > 0 {
		i.Layout = p.Layout
	}
	i.KV, _ = kvlayout.Lookup(p.Model)
	i.Pods[0].Name = p.Pod
	if host, port, err := moriio.ParseHTTPAddress(p.Agent); err == nil && host == i.Pods[0].Host {
		i.Pods[0].Agent = port
	}
}
