package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// How long an instance is passed over, where there is another one, after what was
// seen of it. Suspicion is cheap: who is the only one is asked all the same.
const (
	// holdFailed is after a connection that was refused or lost. A good probe ends it.
	holdFailed = time.Second
	// holdProbe is after a probe that failed; the next one that succeeds ends it.
	holdProbe = 5 * time.Second
	// holdSilent is after an answer that did not come, or after many that said that the
	// leg has failed. Its server may well answer probes meanwhile, so they do not end it.
	holdSilent = 10 * time.Second
)

// Probes of engines.
const (
	probeHealthy = 4  // rounds between two probes of a pod that is not suspected
	maxProbes    = 64 // at once; pods beyond wait for the next round
	probePath    = "/health"
)

const codeProbe = "probe-failed"

// maxFailures is after how many legs in a row that an engine itself says have failed it
// is passed over, for holdSilent: its health does not tell.
const maxFailures = 5

// load is what the router knows of a rank from its own requests. It outlives the
// snapshots in which the rank appears.
type load struct {
	open atomic.Int64 // legs that have not ended
	*vitals
}

// vitals is what the router has seen of a pod. Times are Unix times in nanoseconds.
type vitals struct {
	since   atomic.Int64 // when it was suspected last
	avoid   atomic.Int64 // until when it is passed over; a good probe ends it
	held    atomic.Int64 // the same, and no probe ends it
	probing atomic.Bool

	answered atomic.Int64 // when a probe was answered last; 0: never
	misses   atomic.Int64 // probes since then that were not answered in time
	failures atomic.Int64 // legs in a row that the engine says have failed
	heard    atomic.Int64 // when something of an answer to a leg came last, roughly
}

func (v *vitals) suspected(now int64) bool { return v.avoid.Load() > now || v.held.Load() > now }

// avoided says that a pod of the rank's instance is suspected: an engine without one
// of its pods serves nobody.
func (s *slot) avoided(now int64) bool {
	for _, k := range s.kin {
		if k.suspected(now) {
			return true
		}
	}
	return false
}

// suspect passes the instance of a rank over for a while.
func (s *Server) suspect(of *slot, reason string, hold time.Duration) {
	now := time.Now()
	if !of.suspected(now.UnixNano()) {
		s.metrics.suspected.WithLabelValues(reason).Inc()
		s.log.Warn("instance suspected", "role", of.instance.Role, "pod", of.pod.address(), "reason", reason)
	}
	of.since.Store(now.UnixNano())
	until := &of.avoid
	if hold == holdSilent {
		until = &of.held
	}
	if at := now.Add(hold).UnixNano(); until.Load() < at {
		until.Store(at)
	}
}

// judge remembers what an engine says of a leg. That a transfer has failed with a partner
// which is suspected is not held against it.
func (s *Server) judge(of, partner *slot, f *failure) {
	switch {
	case f == nil:
		of.failures.Store(0)
	case f.outcome != outcomeFailed, f.told && peerRules[f.code] && partner.avoided(time.Now().UnixNano()):
	case of.failures.Add(1) >= maxFailures:
		s.suspect(of, codeFailed, holdSilent)
	}
}

// Probe asks the engines for their health until ctx ends: those that are suspected
// often, so that they are back in use at once, the others now and then, so that one
// that hangs is found before requests are lost in it. Engines that requests wait for are
// asked even when they get nothing new.
func (s *Server) Probe(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	places := make(chan struct{}, maxProbes)
	tick := time.NewTicker(s.ProbeEvery)
	defer tick.Stop()
	for round := 0; ; round++ {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			engines := s.Registry.current.Load().engines
			for k := range engines {
				// Each is the first one once: many that hang leave places for the others.
				n := (k + round) % len(engines)
				if of := engines[n]; n%probeHealthy == round%probeHealthy || of.suspected(now.UnixNano()) {
					s.probe(ctx, of, places, &running)
				}
			}
			for _, of := range s.awaited.slots() {
				if round%probeHealthy == 0 || of.suspected(now.UnixNano()) {
					s.probe(ctx, of, places, &running)
				}
			}
			// Ranks that are passed over no longer have places for who waits.
			s.gate.wake(s.mostInWork())
		}
	}
}

// probe asks one engine in the background, if no question to it is open and there is
// a place for one.
func (s *Server) probe(ctx context.Context, of *slot, places chan struct{}, running *sync.WaitGroup) {
	if of.probing.Swap(true) {
		return
	}
	select {
	case places <- struct{}{}:
	default:
		of.probing.Store(false)
		return
	}
	running.Go(func() {
		defer func() { <-places; of.probing.Store(false) }()
		began := time.Now().UnixNano()
		switch err := s.healthOf(ctx, of.pod); {
		case ctx.Err() != nil:
		case err != nil:
			s.log.Debug("probe failed", "pod", of.pod.address(), "error", err)
			of.note(err)
			s.suspect(of, codeProbe, holdProbe)
		default:
			of.note(nil)
			s.trust(of, began)
		}
	})
}

// trust ends the suspicion of a pod whose good probe was sent at a time. What was
// seen since counts for more.
func (s *Server) trust(of *slot, at int64) {
	if of.since.Load() < at && of.avoid.Swap(0) > at {
		s.log.Info("instance trusted again", "role", of.instance.Role, "pod", of.pod.address())
	}
}

// errUnhealthy is an engine's own word that it can't serve.
var errUnhealthy = errors.New("the engine says that it is not healthy")

// healthOf asks an engine for its health.
func (s *Server) healthOf(ctx context.Context, pod *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, s.ProbeWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod.address()+probePath, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := s.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, maxReason)); err != nil {
		return err
	}
	if answer.StatusCode >= http.StatusInternalServerError {
		return errUnhealthy
	}
	return nil
}
