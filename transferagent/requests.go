package transferagent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// enginePages gets pages of the pod's engine.
type enginePages struct {
	port   int
	client *http.Client
}

func newEnginePages(port int) *enginePages {
	return &enginePages{port: port, client: &http.Client{Timeout: probeWithin, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// fetch gets a page; the caller closes the body of a 200.
func (e *enginePages) fetch(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+endpoint(engineAddress, e.port)+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := e.client.Do(req)
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

// countless says that there is nothing to count: the engine has no such page and will
// have none, or nobody listens. Other errors may pass.
func countless(err error) bool {
	if errors.Is(err, unix.ECONNREFUSED) {
		return true
	}
	e, ok := errors.AsType[*statusError](err)
	return ok && (e.code == http.StatusNotFound || e.code == http.StatusMethodNotAllowed || e.code == http.StatusNotImplemented)
}

// count is how many requests an engine has, or why that is not known.
type count struct {
	n   int
	err error
}

// String implements fmt.Stringer.
func (c count) String() string {
	if c.err != nil {
		return fmt.Sprintf("requests of the engine not known (%v)", c.err)
	}
	return fmt.Sprintf("%d requests of the engine", c.n)
}

// countOf asks for the engine's requests. One that counts none has none.
func (e *enginePages) countOf(ctx context.Context) count {
	n, err := e.requests(ctx)
	if countless(err) {
		return count{}
	}
	return count{n, err}
}

// requests is the number of requests that the engine runs or queues by its own count,
// as vLLM tells it.
func (e *enginePages) requests(ctx context.Context) (int, error) {
	resp, err := e.fetch(ctx, "/metrics")
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
