package transferagent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/pdpool/pdpool/zmtp"
)

// pace is how often an agent does what nobody asks it for. A zero field stands for
// its default.
type pace struct {
	probe   time.Duration // look at the engine; 1 s
	settle  time.Duration // for routers to notice that the pod drains; 2 s
	relay   time.Duration // tell each router; 3 s, as a stock engine does
	resolve time.Duration // look up the routers; 10 s
}

func (p pace) withDefaults() pace {
	p.probe = cmp.Or(p.probe, time.Second)
	p.settle = cmp.Or(p.settle, 2*time.Second)
	p.relay = cmp.Or(p.relay, 3*time.Second)
	p.resolve = cmp.Or(p.resolve, 10*time.Second)
	return p
}

const (
	relayDial    = 5 * time.Second
	relaySend    = 2 * time.Second
	relayBackoff = 500 * time.Millisecond // doubled per failure, up to maxBackoff
	maxBackoff   = 15 * time.Second
	maxRouters   = 64
)

// relay passes the engine's registration to one router address until ctx ends.
// It connects again by itself.
func (r *registrar) relay(ctx context.Context, to netip.AddrPort) {
	wait := relayBackoff
	for ctx.Err() == nil {
		begun := r.now()
		err := r.relayOnce(ctx, to)
		if ctx.Err() != nil {
			return
		}
		r.metrics.relayed.WithLabelValues("failed").Inc()
		r.log.Warn("router not reached", "router", to, "error", err)
		if r.now().Sub(begun) > maxBackoff {
			wait = relayBackoff
		}
		pause(ctx, wait)
		wait = min(2*wait, maxBackoff)
	}
}

// relayOnce sends over one connection until it breaks: at once, every 3 s, and
// when the engine or draining turns. While the engine's listeners are down it sends nothing,
// so that routers forget the engine.
func (r *registrar) relayOnce(ctx context.Context, to netip.AddrPort) error {
	dialCtx, stop := context.WithTimeout(ctx, relayDial)
	d, err := zmtp.Dial(dialCtx, to.String(), zmtp.Options{})
	stop()
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // always nil
	tick := time.NewTicker(r.pace.relay)
	defer tick.Stop()
	for {
		turned := r.change()
		if m, err := r.current(); err == nil {
			sendCtx, stop := context.WithTimeout(ctx, relaySend)
			err := d.Send(sendCtx, m.Append(nil))
			stop()
			if err != nil {
				return err
			}
			r.metrics.relayed.WithLabelValues("sent").Inc()
		}
		select {
		case <-tick.C:
		case <-turned:
		case <-d.Done():
			return d.Err()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// relayAll keeps one relay for each address of each router, and looks names up
// again: routers come and go.
func (r *registrar) relayAll(ctx context.Context) error {
	running := map[netip.AddrPort]context.CancelFunc{}
	for ctx.Err() == nil {
		found := r.resolve(ctx)
		for at, stop := range running {
			if !found[at] {
				stop()
				delete(running, at)
			}
		}
		for at := range found {
			if running[at] == nil && len(running) < maxRouters {
				relayCtx, stop := context.WithCancel(ctx)
				running[at] = stop
				r.group.Go(func() { r.relay(relayCtx, at) })
			}
		}
		r.metrics.routers.Set(float64(len(running)))
		pause(ctx, r.pace.resolve)
	}
	for _, stop := range running {
		stop()
	}
	r.group.Wait()
	return nil
}

// resolve looks up the routers. The addresses of a name that can't be looked up
// now stay as they were.
func (r *registrar) resolve(ctx context.Context) map[netip.AddrPort]bool {
	found := map[netip.AddrPort]bool{}
	for _, router := range r.cfg.Routers {
		at, err := lookUp(ctx, router)
		if err != nil {
			r.log.Warn("router not looked up", "router", router, "error", err)
			at = r.known[router]
		}
		r.known[router] = at
		for _, a := range at {
			found[a] = true
		}
	}
	return found
}

func lookUp(ctx context.Context, router string) ([]netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, relayDial)
	defer cancel()
	host, service, err := net.SplitHostPort(router)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	out := make([]netip.AddrPort, 0, len(ips))
	for _, ip := range ips {
		out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	return out, nil
}

// engineCore binds what an agent needs beside an engine that moves its own bytes.
func (a *Agent) engineCore(ctx context.Context, o Options, m *metrics) (health, error) {
	// The engine is in the pod: nobody else may register.
	ping, err := zmtp.Listen(ctx, endpoint(engineAddress, o.Config.Ports.Ping), controlOptions(m, portPing, &keyring{}))
	if err != nil {
		return nil, fmt.Errorf("ping port %d: %w", o.Config.Ports.Ping, err)
	}
	a.closing = append(a.closing, func() error { ping.Close(); return nil })
	r := newRegistrar(o, m)
	a.serving = append(
		a.serving,
		service{"ping port", func(ctx context.Context) error { return ping.Serve(ctx, r.takePing) }},
		service{"engine probe", r.watch},
		service{"relay", r.relayAll},
	)
	return r, nil
}

func newRegistrar(o Options, m *metrics) *registrar {
	pages, pace := newEnginePages(o.Config.Ports.HTTP), o.pace.withDefaults()
	return &registrar{
		cfg: &o.Config, podIP: o.PodIP.Unmap(), podName: o.PodName, log: o.Log, metrics: m, now: time.Now, pace: pace,
		engine: pages, leaving: departure{log: o.Log, engine: pages, settle: pace.settle, every: pace.probe},
		strangers: noisy{log: o.Log}, turned: make(chan struct{}), known: map[string][]netip.AddrPort{},
	}
}
