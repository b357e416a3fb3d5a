package transferagent

import (
	"context"
	"fmt"
	"net"
	"time"
)

const (
	probeWithin   = 2 * time.Second
	probeBody     = 4 << 20 // of the engine's metrics
	probeLine     = 1 << 20
	engineAddress = "127.0.0.1"
)

// watch looks at the engine until ctx ends.
func (r *registrar) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		err := r.look(ctx)
		if old := r.probed.Swap(&probe{at: r.now(), err: err}); old == nil || (old.err == nil) != (err == nil) {
			r.log.Info("engine looked at", "up", err == nil, "error", err)
			r.turn()
		}
		pause(ctx, r.pace.probe)
	}
	return nil
}

// look asks the engine's health and connects to each of its control ports. A
// stock engine whose listener thread has died refuses the connection, while the
// engine itself goes on; connecting and closing disturbs nothing.
func (r *registrar) look(ctx context.Context) error {
	resp, err := r.engine.fetch(ctx, "/health")
	if err != nil {
		return fmt.Errorf("engine health: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("engine health: %w", err)
	}
	for _, port := range r.controlPorts() {
		if err := touch(ctx, port); err != nil {
			return fmt.Errorf("engine port %d is not listening: %w", port, err)
		}
	}
	return nil
}

// controlPorts are the handshake and notify ports of the pod's ranks.
func (r *registrar) controlPorts() []int {
	if !r.listens() {
		return nil
	}
	n := localRanks(r.cfg) + r.cfg.Layout.Defaulted().TP - 1
	ports := make([]int, 0, 2*n)
	for offset := range n {
		ports = append(ports, r.cfg.Ports.EngineHandshake+offset, r.cfg.Ports.EngineNotify+offset)
	}
	return ports
}

func touch(ctx context.Context, port int) error {
	conn, err := (&net.Dialer{Timeout: probeWithin}).DialContext(ctx, "tcp", endpoint(engineAddress, port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// drain implements health: routers are told, then the engine's own count of requests
// has to reach zero.
func (r *registrar) drain(ctx context.Context) error {
	if r.leaving.begin(r.ready(ctx) == nil) {
		r.turn()
	}
	return r.leaving.wait(ctx, func(context.Context) (int, <-chan struct{}, error) { return 0, nil, nil })
}
