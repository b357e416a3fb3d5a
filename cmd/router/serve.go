package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pdpool/pdpool/places"
	"github.com/pdpool/pdpool/router"
	"github.com/pdpool/pdpool/router/discovery"
	"github.com/pdpool/pdpool/router/registration"
	"github.com/pdpool/pdpool/router/static"
)

// Limits of the HTTP servers.
const (
	headersWithin = 5 * time.Second
	maxHeaders    = 64 << 10
	keepClient    = 2 * time.Minute
	opsWithin     = 15 * time.Second
	lastWords     = time.Second
)

// How many connections are open at once: those of requests in work and as many again
// that are read or idle, some for a router that may do little, and those of probes.
// Half of them are one host's at most.
const (
	connsPerWork = 4
	spareConns   = 4096
	opsConns     = 256
)

// service is one thing that runs until its context ends.
type service struct {
	name string
	run  func(context.Context) error
}

// servers is all that the router has opened.
type servers struct {
	o       options
	log     *slog.Logger
	router  *router.Server
	clients *http.Server
	ops     *http.Server // nil without a port
	listen  net.Listener
	opsAt   net.Listener
	sources []service
}

// open binds everything, so that what is in the way is told before anything runs.
func open(ctx context.Context, o options, log *slog.Logger) (*servers, error) {
	registry := router.NewRegistry()
	o.limits.Registry, o.limits.Log, o.limits.Random = registry, log, rand.IntN
	s := &servers{o: o, log: log, router: router.NewServer(o.limits)}
	err := s.bind(ctx)
	if err == nil {
		err = s.openSources(ctx, registry)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// bind opens the ports of the HTTP servers.
func (s *servers) bind(ctx context.Context) (err error) {
	o, log := s.o, s.log
	if s.listen, err = listen(ctx, o.listen); err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	s.clients = &http.Server{
		Handler: places.Keep(s.router.Handler()), ConnContext: places.ConnContext,
		ReadHeaderTimeout: headersWithin, IdleTimeout: keepClient, MaxHeaderBytes: maxHeaders,
		DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	closed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "pdpool", Subsystem: "router", Name: "connections_closed_total",
		Help: "Connections that lost their place to newer ones or found none, by port.",
	}, []string{"port"})
	if err := s.router.Metrics().Register(closed); err != nil {
		return fmt.Errorf("register the metric of connections: %w", err)
	}
	most := spareConns + connsPerWork*o.limits.MaxInflight
	s.listen = places.Bound(s.listen, most, most/2, closed.WithLabelValues("http").Inc)
	if o.metrics != "" {
		if s.opsAt, err = listen(ctx, o.metrics); err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
		s.opsAt = places.Bound(s.opsAt, opsConns, opsConns/2, closed.WithLabelValues("metrics").Inc)
		s.ops = &http.Server{
			Handler: places.Keep(s.router.OpsHandler()), ConnContext: places.ConnContext,
			ReadHeaderTimeout: headersWithin, ReadTimeout: opsWithin, WriteTimeout: opsWithin, IdleTimeout: keepClient,
			MaxHeaderBytes: maxHeaders, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		}
	}
	return nil
}

// close gives back what was opened, when the rest could not be.
func (s *servers) close() {
	for _, l := range []net.Listener{s.listen, s.opsAt} {
		if l != nil {
			_ = l.Close() // nothing was accepted
		}
	}
}

// openSources adds the sources, the most trusted first.
func (s *servers) openSources(ctx context.Context, registry *router.Registry) error {
	o := s.o
	s.sources = append(s.sources, service{"probes", s.router.Probe})
	if o.static != "" {
		instances, err := static.Read(o.static)
		if err != nil {
			return fmt.Errorf("--static: %w", err)
		}
		registry.Source("the file").Publish(instances)
	}
	if o.pool != "" {
		config, err := discovery.Config(o.kubeconfig)
		if err != nil {
			return err
		}
		pods, err := discovery.Pods(config, o.namespace, o.pool)
		if err != nil {
			return err
		}
		source := registry.Source("Kubernetes")
		s.sources = append(s.sources, service{"watch of pods", func(ctx context.Context) error {
			return discovery.Watch(ctx, pods, source, s.log)
		}})
	}
	if o.registrations == "" {
		return nil
	}
	// In a pool a registration only adds to what Kubernetes knows.
	source := registry.Overlay
	if o.pool == "" {
		source = registry.Source
	}
	l, err := registration.Listen(ctx, o.registrations, registration.Options{
		Source: source("registrations"), Log: s.log, Namespace: o.namespace, Pool: o.pool, Metrics: s.router.Metrics(),
	})
	if err != nil {
		return fmt.Errorf("--registrations: %w", err)
	}
	s.sources = append(s.sources, service{"registrations", l.Serve})
	return nil
}

func listen(ctx context.Context, addr string) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", addr)
}

// serve runs until ctx ends or something fails, then drains.
func (s *servers) serve(ctx context.Context) error {
	// Sources go on while requests drain: those that are still taken want to know.
	live, stop := context.WithCancel(context.WithoutCancel(ctx))
	failed := make(chan error, len(s.sources)+2)
	var running sync.WaitGroup
	start := func(name string, f func() error) {
		running.Go(func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	for _, source := range s.sources {
		start(source.name, func() error { return source.run(live) })
	}
	start("HTTP server", func() error { return s.clients.Serve(s.listen) })
	if s.ops != nil {
		start("metrics server", func() error { return s.ops.Serve(s.opsAt) })
	}
	s.log.Info("serving", "listen", s.listen.Addr().String(), "pool", s.o.pool, "namespace", s.o.namespace, "version", version)
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		s.drain(context.WithoutCancel(ctx))
	}
	// What is left is cut off.
	_ = s.clients.Close()
	cut, cancel := context.WithCancel(live)
	cancel()
	s.router.Close(cut)
	if s.ops != nil {
		_ = s.ops.Close()
	}
	stop()
	running.Wait()
	return err
}

// drain takes requests for a moment more, then lets those in work end.
func (s *servers) drain(ctx context.Context) {
	s.log.Info("draining", "delay", s.o.linger.String(), "deadline", s.o.drain.String())
	s.router.Unready()
	late := time.NewTimer(s.o.linger)
	defer late.Stop()
	<-late.C
	ctx, cancel := context.WithTimeout(ctx, s.o.drain)
	defer cancel()
	if err := s.clients.Shutdown(ctx); err != nil {
		s.log.Warn("requests cut off at the drain deadline", "error", err)
	}
	s.router.Close(ctx)
	// Requests whose legs were ended just now tell their clients.
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer stop()
	_ = s.clients.Shutdown(last) // who has not ended then is cut off
}
