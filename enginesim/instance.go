// Package enginesim is a simulated inference engine: an OpenAI server with paged
// KV memory in the geometry and layout of a real one, whose content can be checked
// byte by byte. It exists to prove that KV transfer works, so everything that goes
// wrong on the way to a decode instance has to show.
//
// Prefill fills each row with bytes that follow from layer, plane, KV head,
// position, the tokens before it and a salt of the request. Decode takes its
// answer from the rows of its own memory, after it has compared each with what it
// must be; the first wrong one is an error that names it. Where a row lies is
// computed from vLLM's slot formula, apart from package kvlayout, so that an error
// of one is not hidden by the other. Blocks are handed out at random, reused soon
// and poisoned when taken and when freed; poison is checked where nothing may be
// written, and again when a block is taken.
//
// An instance never reads the memory of another. It registers its own at the
// transfer agent of its pod, or works alone when it is told of none.
package enginesim

import (
	"context"
	crypto "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Options are what a command line doesn't say. The zero value will do.
type Options struct {
	Log *slog.Logger
	// Seed makes the choice of blocks and poison repeatable; 0 is random.
	Seed uint64
	// Patience is how long the agent may say nothing of a transfer before it is
	// given up. 0 is the configuration's, and without one what the agent says that it
	// may take.
	Patience time.Duration
	// Crash ends the process without any farewell, for trials of what survives it;
	// nil serves no /sim/kill.
	Crash func()
}

// Instance is a simulated engine with its memory allocated and its port bound.
type Instance struct {
	cfg      Config
	log      *slog.Logger
	crash    func()
	groups   []*group
	turn     atomic.Uint64 // of the groups, for requests that name none
	listener net.Listener
	server   *http.Server
	stop     chan struct{}
	handlers sync.WaitGroup
	mishaps  mishaps
}

const (
	drainWithin = 10 * time.Second // open requests at the end
	// unsaidPatience is that with an agent that does not say what it may take.
	unsaidPatience = 10 * time.Minute
)

// New allocates memory and binds the port. The caller runs the instance, which
// gives both back.
func New(ctx context.Context, cfg Config, o Options) (*Instance, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience == 0 {
		o.Patience = cfg.Silence
	}
	if o.Seed == 0 {
		var b [8]byte
		_, _ = crypto.Read(b[:]) // never fails
		o.Seed = binary.LittleEndian.Uint64(b[:])
	}
	address := net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.Port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("port %d: %w", cfg.Port, err)
	}
	in := &Instance{cfg: cfg, log: o.Log, crash: o.Crash, listener: listener, stop: make(chan struct{})}
	in.mishaps.set(cfg.mishap)
	for dp := range cfg.Layout.DPLocal {
		g, err := newGroup(&in.cfg, dp, rand.New(rand.NewPCG(o.Seed, uint64(dp))), o.Log)
		if err != nil {
			return nil, errors.Join(err, in.release(), listener.Close())
		}
		g.stop, g.patience = in.stop, o.Patience
		if cfg.Socket != "" {
			g.link = &linker{}
		}
		in.groups = append(in.groups, g)
	}
	return in, nil
}

// Addr is where the server listens.
func (in *Instance) Addr() net.Addr { return in.listener.Addr() }

func (in *Instance) release() error {
	var errs []error
	for _, g := range in.groups {
		errs = append(errs, g.release())
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends; open requests may then end within 10 s. It returns
// when every goroutine has ended and the memory is given back.
func (in *Instance) Run(ctx context.Context) error {
	own, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var links sync.WaitGroup
	for _, g := range in.groups {
		if g.link != nil {
			links.Go(func() { g.link.run(own, g) })
		}
	}
	in.server = &http.Server{
		Handler: in.routes(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		BaseContext: func(net.Listener) context.Context { return own },
		ErrorLog:    slog.NewLogLogger(in.log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- in.server.Serve(in.listener) }()
	in.log.Info("serving", "address", in.Addr().String(), "model", in.cfg.Model, "blocks", in.cfg.Blocks,
		"tokens", in.cfg.Capacity(), "ranks", in.cfg.Layout.TP, "groups", len(in.groups), "ignored", in.cfg.Ignored)
	var err error
	select {
	case <-ctx.Done():
		err = in.shutdown(ctx)
		<-served
	case err = <-served:
	}
	end()
	in.handlers.Wait()
	close(in.stop)
	links.Wait() // which begin things in the background
	for _, g := range in.groups {
		g.background.Wait()
	}
	return errors.Join(err, in.release())
}

// shutdown lets open requests end, and cuts those that take too long.
func (in *Instance) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	err := in.server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return in.server.Close()
	}
	return err
}
