package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--what"}, {"--listen"}, {"--max-body=x"}, {"--log-level=loud"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%v: %v", args, err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"--version"}, &out, io.Discard); err != nil || !strings.HasPrefix(out.String(), "router ") {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestBadConfiguration(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	quiet := []string{"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--registrations=127.0.0.1:0"}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve"}, `argument "serve"`},
		{[]string{"--pool=p"}, "--namespace"},
		{[]string{"--namespace=n"}, "no effect without --pool"},
		{[]string{"--registrations="}, "there are no instances"},
		{[]string{"--pool=p", "--namespace=n", "--static=x"}, "exclude each other"},
		{[]string{"--max-body=0"}, "--max-body 0"},
		{[]string{"--request-timeout=0s"}, "--request-timeout 0s"},
		{[]string{"--shutdown-delay=-1s"}, "--shutdown-delay -1s"},
		{[]string{"--policy=best"}, `"best"`},
		{[]string{"--static=/nowhere/x"}, "/nowhere/x"},
		{[]string{"--pool=p", "--namespace=n"}, "find the API server"},
		{[]string{"--listen=" + taken.Addr().String()}, "--listen: "},
		{[]string{"--metrics=" + taken.Addr().String()}, "--metrics: "},
		{[]string{"--registrations=" + taken.Addr().String()}, "--registrations: "},
	} {
		err := run(t.Context(), append(quiet, c.args...), io.Discard, io.Discard)
		if err == nil || errors.Is(err, errUsage) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestRegistrationsBesideAFile: a file's instances are all, unless told otherwise.
func TestRegistrationsBesideAFile(t *testing.T) {
	for want, args := range map[string][]string{
		"":       {"--static=x"},
		":36367": {"--static=x", "--registrations=:36367"},
		":1":     {"--registrations=:1", "--static=x"},
	} {
		o, done, err := parse(args, io.Discard, io.Discard)
		if err != nil || done || o.registrations != want {
			t.Errorf("%v: %q, not %q; %v, %v", args, o.registrations, want, done, err)
		}
	}
	if o, _, err := parse(nil, io.Discard, io.Discard); err != nil || o.registrations != ":36367" {
		t.Errorf("without a file: %q, %v", o.registrations, err)
	}
}

// process is a router that runs within the test.
type process struct {
	url  string
	stop context.CancelFunc
	done chan error
}

// start runs a router on free ports and waits until it serves.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	logs, log := io.Pipe()
	p := &process{stop: stop, done: make(chan error, 1)}
	go func() {
		p.done <- run(ctx, append([]string{"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0", "--registrations=127.0.0.1:0"}, args...), io.Discard, log)
		_ = log.Close()
	}()
	lines := bufio.NewScanner(logs)
	for p.url == "" && lines.Scan() {
		var line struct{ Msg, Listen string }
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Msg == "serving" {
			p.url = "http://" + line.Listen
		}
	}
	rest := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, logs); close(rest) }()
	t.Cleanup(func() { stop(); <-rest })
	if p.url == "" {
		t.Fatal(<-p.done)
	}
	return p
}

// instances writes a file with one prefill and one decode.
func instances(t *testing.T, prefill, decode *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "instances.yaml")
	text := ""
	for role, s := range map[string]*httptest.Server{"prefill": prefill, "decode": decode} {
		port := s.Listener.Addr().(*net.TCPAddr).Port
		text += fmt.Sprintf("- {role: %s, pairing: k, model: m, blockSize: 64, layout: {tp: 1}, pods: [{host: 127.0.0.1, http: %d, handshake: 1, notify: 2}]}\n", role, port)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDrain: once told to end the router is not ready, serves who still comes, lets
// streams end, and then is gone.
func TestDrain(t *testing.T) {
	for delay := 300 * time.Millisecond; !drains(t, delay); delay *= 2 {
		if delay > patience {
			t.Fatal("nobody is served after the signal")
		}
	}
}

// drains plays it; false if the machine was too slow for somebody to come in the time that
// requests are still taken.
func drains(t *testing.T, delay time.Duration) bool {
	release := make(chan struct{})
	prefill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}))
	t.Cleanup(prefill.Close)
	decode := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-release
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}))
	t.Cleanup(decode.Close)
	p := start(t, "--static="+instances(t, prefill, decode), "--shutdown-delay="+delay.String())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	open := func() (*http.Response, error) {
		return client.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x","stream":true}`))
	}
	streams := func(response *http.Response) {
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(text) != "data: 1\n\ndata: [DONE]\n\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
	first, err := open() //nolint:bodyclose // streams does
	if err != nil {
		t.Fatal(err)
	}
	if status := get(t, client, p.url+"/ready"); status != http.StatusOK {
		t.Errorf("ready: %d", status)
	}
	p.stop()
	ready := http.StatusOK
	for end := time.Now().Add(patience); ready == http.StatusOK && time.Now().Before(end); {
		ready = statusOf(client, p.url+"/ready")
	}
	second, late := open() //nolint:bodyclose // streams does
	close(release)
	streams(first)
	if late == nil {
		if ready != http.StatusServiceUnavailable || !second.Close {
			t.Errorf("ready: %d; a connection is kept that will be closed: %v", ready, !second.Close)
		}
		streams(second)
	}
	p.ends(t)
	return late == nil
}

// ends waits for the router's good end.
func (p *process) ends(t *testing.T) {
	t.Helper()
	select {
	case err := <-p.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the router does not end")
	}
}

// TestDrainDeadline: who does not end in time is ended, and told.
func TestDrainDeadline(t *testing.T) {
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(hang.Close)
	p := start(t, "--static="+instances(t, hang, hang), "--shutdown-delay=0s", "--drain-timeout=50ms")
	status := make(chan int, 1)
	go func() {
		response, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(`{"model":"m","prompt":"x"}`))
		if err != nil {
			status <- 0
			return
		}
		_ = response.Body.Close()
		status <- response.StatusCode
	}()
	late := time.After(patience)
	for inflight(t, p.url) != "1" {
		select {
		case <-late:
			t.Fatal("the request does not come")
		default:
		}
	}
	p.stop()
	p.ends(t)
	if got := <-status; got != http.StatusServiceUnavailable {
		t.Errorf("status %d", got)
	}
}

func get(t *testing.T, c *http.Client, url string) int {
	t.Helper()
	status := statusOf(c, url)
	if status == 0 {
		t.Fatalf("no answer from %s", url)
	}
	return status
}

// statusOf is 0 when nobody answers.
func statusOf(c *http.Client, url string) int {
	response, err := c.Get(url)
	if err != nil {
		return 0
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func inflight(t *testing.T, url string) string {
	t.Helper()
	response, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), "pdpool_router_inflight "); ok {
			return v
		}
	}
	return ""
}
