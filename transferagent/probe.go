package transferagent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	probeWithin   = 2 * time.Second
	probeBody     = 4 << 20 // of the engine's metrics
	probeLine     = 1 << 20
	engineAddress = "127.0.0.1"
)

// watch looks at the engine until ctx ends.
func (r *registrar) watch(ctx context.Context) error {
	client := &http.Client{Timeout: probeWithin, Transport: &http.Transport{DisableKeepAlives: true}}
	for ctx.Err() == nil {
		err := r.look(ctx, client)
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
func (r *registrar) look(ctx context.Context, client *http.Client) error {
	resp, err := r.fetch(ctx, client, "/health")
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

// fetch gets a page of the engine; the caller closes the body of a 200.
func (r *registrar) fetch(ctx context.Context, client *http.Client, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint(engineAddress, r.cfg.Ports.HTTP)+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(&statusError{path, resp.StatusCode}, resp.Body.Close())
	}
	return resp, nil
}

// statusError is the engine's answer that is no page.
type statusError struct {
	path string
	code int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s answers %d %s", e.path, e.code, http.StatusText(e.code))
}

// absent says that the engine has no such page and will have none. Other errors may pass.
func absent(err error) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && (e.code == http.StatusNotFound || e.code == http.StatusMethodNotAllowed || e.code == http.StatusNotImplemented)
}

// drain implements health: routers are told, then the engine's own count of
// requests has to reach zero. An engine that refuses the connection is gone and has
// none, and without a page of numbers there is nothing to wait for; one that is slow,
// or answers something else, is asked again.
func (r *registrar) drain(ctx context.Context) error {
	if r.draining.CompareAndSwap(false, true) {
		r.turn()
	}
	client := &http.Client{Timeout: probeWithin, Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		n, err := r.requests(ctx, client)
		switch {
		case absent(err):
			r.log.Info("the engine does not tell its requests, draining waits for none", "error", err)
			return nil
		case errors.Is(err, unix.ECONNREFUSED), err == nil && n == 0:
			return nil
		case ctx.Err() != nil && err != nil:
			return fmt.Errorf("requests of the engine not known: %w: %w", err, context.Cause(ctx))
		case ctx.Err() != nil:
			return fmt.Errorf("%d requests: %w", n, context.Cause(ctx))
		}
		pause(ctx, r.pace.probe)
	}
}

// requests is the number of requests that a vLLM engine runs or queues.
func (r *registrar) requests(ctx context.Context, client *http.Client) (int, error) {
	resp, err := r.fetch(ctx, client, "/metrics")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read to the end
	total := 0.0
	lines := bufio.NewScanner(io.LimitReader(resp.Body, probeBody))
	lines.Buffer(nil, probeLine)
	for lines.Scan() {
		metric, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || !strings.HasPrefix(metric, "vllm:num_requests_running{") && !strings.HasPrefix(metric, "vllm:num_requests_waiting{") {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, fmt.Errorf("metric %.80q: %w", lines.Text(), err)
		}
		total += n
	}
	return int(total), lines.Err()
}
