package transferagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// freshWithin is how old the engine's last registration may be: a stock engine
// sends one every 3 s.
const freshWithin = 10 * time.Second

// stuckAfter is how old the last look may be before the agent counts as stuck. One
// look ends at the first page or port that does not answer within probeWithin.
const stuckAfter = time.Minute

// registrar stands between an engine that moves its own bytes and the routers: it
// holds the engine's last registration and says whether it may be passed on.
type registrar struct {
	cfg     *agentconfig.Config
	podIP   netip.Addr
	podName string
	log     *slog.Logger
	metrics *metrics
	now     func() time.Time
	pace    pace

	strangers noisy

	engine  *enginePages
	probed  atomic.Pointer[probe] // what was last seen of the engine's listeners
	leaving departure

	group sync.WaitGroup              // of the relays
	known map[string][]netip.AddrPort // routers' addresses as last looked up, for resolve only

	mu     sync.Mutex
	last   *moriio.Registration
	seen   time.Time
	turned chan struct{} // closed and replaced when routers should hear at once
}

// change is closed when there is something new to tell routers.
func (r *registrar) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.turned
}

func (r *registrar) turn() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.turned)
	r.turned = make(chan struct{})
}

// probe is one look at the engine.
type probe struct {
	at  time.Time
	err error
}

// take reads one message of the ping port, and reports whether it was of this pod's engine.
func (r *registrar) take(frame []byte) bool {
	m, err := moriio.ParseRegistration(frame)
	if err == nil {
		err = r.check(m)
	}
	if err != nil {
		r.metrics.drop(portPing, reasonOf(err))
		r.strangers.warn("registration dropped", "error", err)
		return false
	}
	if _, err := r.fresh(); err != nil {
		r.log.Info("engine registers", "http", m.HTTPAddress, "zmq", m.ZMQAddress)
		defer r.turn()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.seen = m, r.now()
	return true
}

// takePing serves one message of the ping port.
func (r *registrar) takePing(p *zmtp.Peer, frames [][]byte) {
	if len(frames) != 1 {
		r.metrics.drop(portPing, "frames")
		return
	}
	if r.take(frames[0]) {
		p.Prove("")
	}
}

// check refuses the registration of an engine that is not this pod's.
func (r *registrar) check(m *moriio.Registration) error {
	_, http, err := moriio.ParseHTTPAddress(m.HTTPAddress)
	if err != nil {
		return err
	}
	_, handshake, notify, err := moriio.ParseZMQAddress(m.ZMQAddress)
	if err != nil {
		return err
	}
	l := r.cfg.Layout.Defaulted()
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"role", m.Role, r.cfg.Role},
		{"transfer mode", m.TransferMode, r.cfg.Mode},
		{"tp", m.TPSize, l.TP},
		{"dp", m.DPSize, l.DP},
		{"http port", http, r.cfg.Ports.HTTP},
		{"handshake port", handshake, r.cfg.Ports.EngineHandshake},
		{"notify port", notify, r.cfg.Ports.EngineNotify},
	} {
		if f.got != f.want {
			return refusef("registration-differs", "%s: the engine registers with %v, the pool has %v", f.name, f.got, f.want)
		}
	}
	return nil
}

// registers reports whether an engine of this pod is expected to register: a
// stock vLLM does so from world rank 0 only.
func (r *registrar) registers() bool { return r.listens() && r.cfg.DPStart == 0 && r.cfg.Pod == 0 }

// listens reports whether the engine has MoRIIO listeners: SGLang has none.
func (r *registrar) listens() bool { return r.cfg.Engine != kvlayout.SGLang }

// ready implements health.
func (r *registrar) ready(context.Context) error {
	if err := r.leaving.reason(); err != nil {
		return err
	}
	if err := r.listening(); err != nil {
		return err
	}
	if r.registers() {
		_, err := r.fresh()
		return err
	}
	return nil
}

// listening is nil while the engine's health and listeners are good.
func (r *registrar) listening() error {
	p := r.probed.Load()
	switch {
	case p == nil:
		return errors.New("the engine was not looked at yet")
	case p.err != nil:
		return p.err
	case r.now().Sub(p.at) > freshWithin:
		return fmt.Errorf("the engine was last looked at %v ago", r.now().Sub(p.at).Round(time.Second))
	}
	return nil
}

func (r *registrar) fresh() (*moriio.Registration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil, errors.New("the engine has not registered")
	}
	if age := r.now().Sub(r.seen); age > freshWithin {
		return nil, fmt.Errorf("the engine last registered %v ago", age.Round(time.Second))
	}
	return r.last, nil
}

// current is what to tell routers now, or why there is nothing to tell.
func (r *registrar) current() (*moriio.Registration, error) {
	m, err := r.fresh()
	if err != nil {
		return nil, err
	}
	if err := r.listening(); err != nil {
		return nil, err
	}
	return r.enrich(m)
}

// enrich adds what a router needs to pair the instance, and puts the pod's
// address in place of what the engine takes for its own.
func (r *registrar) enrich(m *moriio.Registration) (*moriio.Registration, error) {
	_, handshake, notify, err := moriio.ParseZMQAddress(m.ZMQAddress)
	if err != nil {
		return nil, err
	}
	c, ip := r.cfg, r.podIP.String()
	out := *m
	out.HTTPAddress = endpoint(ip, c.Ports.HTTP)
	out.ZMQAddress = moriio.FormatZMQAddress(ip, handshake, notify)
	out.PDPool = &moriio.Instance{
		Namespace: c.Namespace, Pool: c.Pool, Pod: r.podName, Pairing: c.Pairing, Revision: c.Revision,
		Layout: c.Layout, Block: c.Block, KVType: c.KVType, Model: c.Served,
		Agent: endpoint(ip, c.Ports.Agent), Draining: r.leaving.draining(),
	}
	return &out, nil
}

// alive implements health: the agent looks at its engine every second, however the
// engine is.
func (r *registrar) alive() error {
	p := r.probed.Load()
	if p == nil {
		return nil
	}
	if age := r.now().Sub(p.at); age > stuckAfter {
		return fmt.Errorf("the agent has not looked at its engine for %v", age.Round(time.Second))
	}
	return nil
}

// transfer implements health: such an engine moves its own bytes.
func (r *registrar) transfer(context.Context, string) (transferView, bool, error) {
	return transferView{}, false, nil
}

// transfers implements health.
func (r *registrar) transfers(context.Context) ([]session.Transfer, error) { return nil, nil }
