package transferagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/zmtp"
)

// limits bound what the loop keeps and how long its goroutines wait.
type limits struct {
	own       netip.Addr
	peers     int           // other agents at a time
	peerQueue int           // notifications that wait for one peer
	orders    int           // copy orders that wait for one peer
	dials     int           // handshakes at a time
	hostDials int           // of them with one host
	patience  time.Duration // of a handshake that others wait behind
	dial      time.Duration // one handshake or mover session, whole
	handshake time.Duration // of a transfer that waits for its peer's
	send      time.Duration // one notification
	revoke    time.Duration // one attempt
	retry     time.Duration
	turn      time.Duration // of the loop, before it counts as stuck
}

func defaultLimits(own netip.Addr) limits {
	return limits{
		own: own.Unmap(), peers: 1024, peerQueue: 4096, orders: 1 << 10, dials: 64, hostDials: 16, patience: 2 * time.Second,
		dial: 10 * time.Second, handshake: handshakeWithin, send: 10 * time.Second, revoke: 10 * time.Second, retry: time.Second, turn: 15 * time.Second,
	}
}

// The bounds of the KV socket.
const (
	kvQueue         = 8192 // messages that wait for one connection of the engine
	helloWithin     = 5 * time.Second
	attachWithin    = 15 * time.Second       // for copies to let go of the last connection's memory and blocks
	duplicateWithin = 500 * time.Millisecond // for the end of the last connection to be seen
	kvSpare         = 16                     // connections beside those of a complete engine
)

// handshakeWithin is how long a transfer waits for its peer's handshake.
const handshakeWithin = 10 * time.Second

// agentCore binds what an agent needs that moves the bytes itself.
func (a *Agent) agentCore(ctx context.Context, o Options, m *metrics, keys *keyring) (health, error) {
	own := o.PodIP.Unmap()
	mover, name, err := openMover(o, m, keys) //nolint:contextcheck // it lives until Close, not until ctx ends
	if err != nil {
		return nil, err
	}
	a.closing = append(a.closing, mover.Close)
	l := newLoop(o, m, mover, name, keys)
	notify := &reopener{
		log: o.Log, address: endpoint(own.String(), o.Config.Ports.Notify),
		options: controlOptions(m, portNotify, keys), handle: l.takeNotify,
	}
	if err := notify.open(ctx); err != nil {
		return nil, fmt.Errorf("notify port %d: %w", o.Config.Ports.Notify, err)
	}
	a.closing = append(a.closing, notify.close)
	l.disown = notify.part
	hand, err := zmtp.Listen(ctx, endpoint(own.String(), o.Config.Ports.Handshake), controlOptions(m, portHandshake, keys))
	if err != nil {
		return nil, fmt.Errorf("handshake port %d: %w", o.Config.Ports.Handshake, err)
	}
	a.closing = append(a.closing, func() error { hand.Close(); return nil })
	if l.machine, err = l.build(nil); err != nil {
		return nil, err
	}
	unix, err := listenKV(ctx, o.Config.KVSocket)
	if err != nil {
		return nil, err
	}
	a.closing = append(a.closing, ignoreClosed(unix.Close))
	k := &kvSocket{
		cfg: &o.Config, log: o.Log, loop: l, metrics: m, mover: mover, epoch: l.self.Epoch, listener: unix,
		places: make(chan struct{}, l.door.want+kvSpare), strangers: noisy{log: o.Log},
	}
	a.serving = append(
		a.serving,
		service{"loop", func(ctx context.Context) error { l.run(ctx); return nil }},
		service{"notify port", notify.serve},
		service{"handshake port", func(ctx context.Context) error { return hand.Serve(ctx, l.answerHandshake) }},
		service{"KV socket", k.serve},
	)
	m.gauge("inflight_transfers", "Transfers that are live.", l.inflight)
	m.gauge("early_asks", "Transfers that decode waits for and the own engine has not named yet.", l.earlyAsks)
	return &coreHealth{loop: l, socket: o.Config.KVSocket}, nil
}

func newLoop(o Options, m *metrics, mover transport.Mover, name string, keys *keyring) *loop {
	c := o.Config
	want := localRanks(&c) * (1 + c.Layout.Defaulted().TP)
	pace, limits := o.pace.withDefaults(), cmp.Or(o.limits, defaultLimits(o.PodIP))
	return &loop{
		log: o.Log, metrics: m, keys: keys, strangers: noisy{log: o.Log}, mover: mover, limits: limits, ports: c.Ports, config: &c,
		self: moriio.Agent{
			Version: moriio.AgentVersion, Epoch: incarnation(), Pairing: c.Pairing, Role: c.Role, Pool: c.Namespace + "/" + c.Pool,
			DPStart: c.DPStart, Layout: c.Layout, Block: c.Block, KVType: c.KVType, Model: c.Model,
			Mover: name, Address: mover.Address(),
		},
		inbox: make(chan turn, inboxTurns), ended: make(chan struct{}), born: time.Now(),
		leaving: departure{log: o.Log, engine: newEnginePages(c.Ports.HTTP), settle: pace.settle, every: pace.probe},
		answers: zmtp.NewBudget(metadataBytes, metadataFree),
		dials:   dialling{total: limits.dials, perHost: limits.hostDials, within: limits.dial},
		peers:   map[session.Peer]*peer{},
		door:    door{want: want, slots: map[session.Conn]*slot{}},
	}
}

// build makes a machine for the pod's role, with faults injected.
func (l *loop) build(faults []string) (session.Machine, error) {
	t := l.config.Timeouts
	cfg := session.Config{
		Self: l.self, Geometry: l.config.KV, Engine: l.config.Engine, Host: l.limits.own.String(),
		Handshake: l.ports.Handshake, Notify: l.ports.Notify,
		Timeouts: session.Timeouts{
			Handshake:    l.limits.handshake,
			Defer:        time.Duration(t.Defer) * time.Second,
			Transfer:     time.Duration(t.Transfer) * time.Second,
			ReceiveAbort: time.Duration(t.ReceiveAbort) * time.Second,
		},
	}
	if err := applyFaults(&cfg, faults); err != nil {
		return nil, err
	}
	if l.config.Role == kvlayout.Prefill {
		return session.NewPrefill(cfg), nil
	}
	return session.NewDecode(cfg), nil
}

// count accounts for a transfer that has ended.
func (l *loop) count(t session.Transfer) {
	outcome, rule := "done", ""
	switch {
	case t.State != session.Broken:
	case t.Rule == session.RuleAborted:
		outcome = "aborted"
	default:
		outcome, rule = "failed", l.metrics.rules.bound(t.Rule)
		l.log.Warn("transfer failed", "transfer", t.ID, "rule", t.Rule, "text", t.Text)
	}
	l.metrics.transfers.WithLabelValues(strings.ToLower(string(l.config.Mode)), outcome, rule).Inc()
	received := int64(0)
	for _, c := range l.mover.Received(t.ID) {
		received += c.Bytes
	}
	l.metrics.bytes.WithLabelValues("received").Add(float64(received))
}

// inflight is the number of live transfers, for the metric.
func (l *loop) inflight() float64 { return l.counted(session.Machine.Live) }

// earlyAsks is the number of asks ahead of the own engine, for the metric.
func (l *loop) earlyAsks() float64 { return l.counted(session.Machine.Asked) }

// counted reads a number of the machine; -1 when the loop does not answer.
func (l *loop) counted(read func(session.Machine) int) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	n := 0
	if err := l.ask(ctx, func(context.Context) { n = read(l.machine) }); err != nil {
		return -1
	}
	return float64(n)
}

// coreHealth answers probes and questions for the loop.
type coreHealth struct {
	loop   *loop
	socket string
}

// alive implements health.
func (h *coreHealth) alive() error {
	if err := h.loop.stuck(); err != nil {
		return err
	}
	st, err := os.Stat(h.socket)
	if err != nil {
		return fmt.Errorf("KV socket: %w", err)
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("KV socket %s is something else now", strconv.Quote(h.socket))
	}
	return nil
}

// ready implements health.
func (h *coreHealth) ready(context.Context) error {
	switch err := h.loop.leaving.reason(); {
	case err != nil:
		return err
	case !h.loop.door.open.Load():
		return errors.New("the engine is not connected with all its ranks")
	}
	return h.alive()
}

// drain implements health: the transfers that the agent knows have to end, and the
// requests of its engine, as far as it counts them.
func (h *coreHealth) drain(ctx context.Context) error {
	h.loop.leaving.begin(h.loop.door.open.Load())
	return h.loop.leaving.wait(ctx, h.loop.remnant)
}

// live is the number of transfers that this agent has to end, or that a peer waits for:
// these may be in the engine's queue.
func (l *loop) live() int { return l.machine.Live() + l.machine.Asked() }

// remnant tells what is live, for drain.
func (l *loop) remnant(ctx context.Context) (int, <-chan struct{}, error) {
	var left struct { // written late when ctx ends first, and not read then
		live int
		idle <-chan struct{}
	}
	err := l.ask(ctx, func(context.Context) {
		if left.live = l.live(); left.live == 0 {
			return
		}
		if l.idle == nil {
			l.idle = make(chan struct{})
		}
		left.idle = l.idle
	})
	if err != nil {
		return 0, nil, err
	}
	return left.live, left.idle, nil
}

// transfer implements health.
func (h *coreHealth) transfer(ctx context.Context, id string) (transferView, bool, error) {
	var v transferView
	ok := false
	if err := h.loop.ask(ctx, func(context.Context) { v.Transfer, ok = h.loop.machine.Transfer(id) }); err != nil {
		return transferView{}, false, err
	}
	if !ok {
		return transferView{}, false, nil
	}
	for _, c := range h.loop.mover.Received(id) {
		v.Received = append(v.Received, receivedFlow{
			WriterDP: c.Flow.Writer.DP, WriterTP: c.Flow.Writer.TP, ReaderDP: c.Flow.Reader.DP, ReaderTP: c.Flow.Reader.TP, Bytes: c.Bytes,
		})
	}
	return v, true, nil
}

// transfers implements health.
func (h *coreHealth) transfers(ctx context.Context) ([]session.Transfer, error) {
	var live []session.Transfer
	if err := h.loop.ask(ctx, func(context.Context) { live = h.loop.machine.Transfers() }); err != nil {
		return nil, err
	}
	return live, nil
}

// reasonOf is the metric label of an error.
func reasonOf(err error) string {
	var event *session.EventError
	var refused *refusal
	var reasoned interface{ Reason() string } // of the codecs and of zmtp
	switch {
	case errors.As(err, &event):
		return event.Reason
	case errors.As(err, &refused):
		return refused.rule
	case errors.As(err, &reasoned):
		return reasoned.Reason()
	}
	return "other"
}
