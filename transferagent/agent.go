// Package transferagent is the agent of one engine pod: with mover Agent it takes
// the engine's KV memory over a unix socket, speaks MoRIIO's control protocol
// with the agents of other pods and moves the bytes; with mover Engine it relays
// the registrations of an engine that moves its own.
//
// One goroutine, the loop, owns all state and drives the transfer machine of
// package session. Everything that may wait runs beside it.
package transferagent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/places"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// Options are what an agent is started with.
type Options struct {
	Config  agentconfig.Config // valid
	PodIP   netip.Addr         // told to peers
	PodName string             // told to routers
	Log     *slog.Logger
	// Mover replaces the one that Config.Backend names. The agent closes it.
	Mover transport.Mover

	pace   pace   // tests are faster
	limits limits // and have more patience; zero: the default ones
}

// Agent is one agent with its listeners bound. Run serves it.
type Agent struct {
	http    *http.Server
	web     net.Listener
	log     *slog.Logger
	serving []service
	closing []func() error // in reverse order, after all services have ended
}

// service is one part of the agent that runs until its context ends. An earlier
// return ends the agent.
type service struct {
	name string
	run  func(context.Context) error
}

// New binds all that the configuration names. An error is one sentence fit for
// the person who starts the agent, and nothing is left open then.
func New(ctx context.Context, o Options) (*Agent, error) {
	if !o.PodIP.IsValid() || o.PodIP.IsUnspecified() || o.PodIP.Zone() != "" {
		return nil, fmt.Errorf("pod IP %q is not an address that peers can reach", o.PodIP)
	}
	a := &Agent{log: o.Log}
	if err := a.bind(ctx, o); err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *Agent) bind(ctx context.Context, o Options) error {
	m := newMetrics()
	keys, err := openKeys(o.Config.KeyDir, o.Log)
	if err != nil {
		return err
	}
	if o.Config.KeyDir != "" {
		a.serving = append(a.serving, service{"pool secrets", keys.watch})
	}
	h, err := a.core(ctx, o, m, keys)
	if err != nil {
		return err
	}
	// Probes and port-forward come by any address of the pod.
	host := ""
	if o.PodIP.IsLoopback() {
		host = o.PodIP.String()
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", endpoint(host, o.Config.Ports.Agent))
	if err != nil {
		return fmt.Errorf("agent port %d: %w", o.Config.Ports.Agent, err)
	}
	a.web = places.Bound(l, httpConns, httpHostConns, func() { m.drop(portHTTP, "too-many") })
	a.closing = append(a.closing, ignoreClosed(a.web.Close))
	a.http = newServer(h, m, newGate(&o.Config, m), time.Duration(o.Config.Timeouts.Drain)*time.Second)
	a.http.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)
	a.serving = append(a.serving, service{"http", a.serveHTTP})
	return nil
}

// core binds what the mover of the configuration needs.
func (a *Agent) core(ctx context.Context, o Options, m *metrics, keys *keyring) (health, error) {
	if o.Config.Mover == kvlayout.MoverEngine {
		return a.engineCore(ctx, o, m)
	}
	return a.agentCore(ctx, o, m, keys)
}

// Run serves until ctx ends or a listener fails, and returns when every
// goroutine of the agent has ended.
func (a *Agent) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	for _, s := range a.serving {
		group.Go(func() {
			switch err := s.run(ctx); {
			case ctx.Err() != nil:
			case err != nil:
				cancel(fmt.Errorf("%s: %w: %w", s.name, errService, err))
			default:
				cancel(fmt.Errorf("%s: %w", s.name, errService))
			}
		})
	}
	group.Wait()
	err := a.close()
	if cause := context.Cause(ctx); errors.Is(cause, errService) {
		return errors.Join(cause, err)
	}
	return err
}

var errService = errors.New("ended before the agent")

func (a *Agent) close() error {
	var all error
	for _, c := range slices.Backward(a.closing) {
		all = errors.Join(all, c())
	}
	a.closing = nil
	return all
}

func (a *Agent) serveHTTP(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { a.http.Close() }) //nolint:errcheck // Serve tells
	defer stop()
	err := a.http.Serve(a.web)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ignoreClosed makes a close that may come second.
func ignoreClosed(f func() error) func() error {
	return func() error {
		if err := f(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// incarnation draws the epoch of an agent.
func incarnation() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint64(b[:])
}
