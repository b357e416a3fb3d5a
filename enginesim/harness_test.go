package enginesim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	latentJSON  = `{"kind":"MLA","layers":3,"attentionHeads":16,"kvHeads":1,"headValues":32}`
	shardedJSON = `{"kind":"GQA","layers":3,"attentionHeads":16,"kvHeads":4,"headValues":16}`
)

// patience is longer than anything takes that comes at all.
const patience = time.Minute

// start runs an instance until the test ends.
func start(t *testing.T, args ...string) *Instance {
	t.Helper()
	return startPatient(t, patience, args...)
}

func startPatient(t *testing.T, patience time.Duration, args ...string) *Instance {
	t.Helper()
	c, err := Parse(append([]string{"m", "--host", "127.0.0.1", "--port", "0", "--kv-cache-memory-bytes", "200k"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	in, err := New(t.Context(), c, Options{Seed: 7, Patience: patience, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return in
}

// client keeps no connections, which would outlive a test.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * patience}

func (in *Instance) url(path string) string { return "http://" + in.Addr().String() + path }

// response is what a client may see.
type response struct {
	status int
	raw    string
	answer
	errorBody
}

func (r *response) text() string {
	if len(r.Choices) == 0 || r.Choices[0].Text == nil {
		return ""
	}
	return *r.Choices[0].Text
}

func post(ctx context.Context, t *testing.T, in *Instance, path string, body any, headers ...string) *response {
	t.Helper()
	raw, ok := body.(string)
	if !ok {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		raw = string(b)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url(path), strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return &response{raw: err.Error()}
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	out := &response{status: res.StatusCode, raw: string(b)}
	if err != nil {
		out.raw += err.Error()
	}
	if bytes.HasPrefix(b, []byte("{")) {
		if err := json.Unmarshal(b, &out.answer); err != nil {
			t.Errorf("%s: %v", b, err)
		}
		if err := json.Unmarshal(b, &out.errorBody); err != nil {
			t.Errorf("%s: %v", b, err)
		}
	}
	return out
}

// pair is a prefill and a decode instance behind a fabric.
type pair struct {
	*fabric
	p, d *Instance
	n    int

	patience time.Duration // of decode
}

func startPair(t *testing.T, geometry string, prefill, decode []string) *pair {
	t.Helper()
	x := &pair{fabric: newFabric(t), patience: patience}
	x.start(t, geometry, prefill, decode)
	return x
}

func (x *pair) start(t *testing.T, geometry string, prefill, decode []string) {
	t.Helper()
	config := func(role, socket string) []string {
		return []string{
			"--sim-geometry", geometry, "--kv-transfer-config",
			fmt.Sprintf(`{"kv_connector":"AgentConnector","kv_role":%q,"kv_connector_extra_config":{"socket":%q}}`, role, socket),
		}
	}
	x.p = start(t, append(config("kv_producer", x.prefill.path), prefill...)...)
	x.d = startPatient(t, x.patience, append(config("kv_consumer", x.decode.path), decode...)...)
	until(t, func() bool { return x.p.ready() == nil && x.d.ready() == nil })
}

// legs are the bodies of both legs of a request.
func (x *pair) legs(prompt string, count int) (prefill, decode map[string]any) {
	x.n++
	id := fmt.Sprintf("tx-%d", x.n)
	prefill = map[string]any{"prompt": prompt, "max_tokens": 1, "ignore_eos": true, "kv_transfer_params": map[string]any{
		"do_remote_decode": true, "do_remote_prefill": false, "transfer_id": id, "remote_engine_id": nil, "remote_block_ids": nil,
		"remote_host": "10.0.0.2", "remote_handshake_port": "6301", "remote_notify_port": 61005, "remote_tp_size": 4, "remote_dp_size": 1,
	}}
	decode = map[string]any{"prompt": prompt, "max_tokens": count, "kv_transfer_params": map[string]any{
		"do_remote_prefill": true, "do_remote_decode": false, "transfer_id": id, "remote_engine_id": nil, "remote_block_ids": nil,
		"remote_host": "10.0.0.1", "remote_handshake_port": "6301", "remote_notify_port": 61005, "remote_tp_size": 4, "remote_dp_size": 1, "remote_dp_rank": 0,
	}}
	return prefill, decode
}

// ask sends both legs at once and returns both answers.
func (x *pair) ask(t *testing.T, prompt string, count int) (prefill, decode *response) {
	t.Helper()
	p, d := x.legs(prompt, count)
	got := make(chan *response, 1)
	go func() { got <- post(t.Context(), t, x.p, "/v1/completions", p) }()
	decode = post(t.Context(), t, x.d, "/v1/completions", d)
	return <-got, decode
}

// awaitReceive returns when decode has told its agent of the first transfer.
func (x *pair) awaitReceive(t *testing.T) {
	t.Helper()
	until(t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		f := x.flows["tx-1"]
		return f != nil && f.receive != nil
	})
}

// sound waits until nothing is in work, and then holds that no block is missing
// and nothing has written where nothing may be.
func sound(t *testing.T, in *Instance) {
	t.Helper()
	until(t, func() bool { return in.State().Groups[0].Live == 0 })
	for _, g := range in.State().Groups {
		if g.FreeBlocks != g.Blocks || g.Violations != 0 || g.Refused != 0 {
			t.Errorf("%s: %+v", in.State().Role, g)
		}
	}
}

// words is a prompt of n tokens.
func words(n, seed int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "w%d-%d ", seed, i)
	}
	return b.String()
}

// reference is what the prompt has to be answered.
func (in *Instance) reference(prompt string, count int) string {
	return Text(Answer(in.cfg.Geometry, Tokenize(prompt), count))
}

// ready is nil when every group is registered at its agent.
func (in *Instance) ready() error {
	for _, g := range in.groups {
		if g.link == nil {
			continue
		}
		if _, err := g.link.current(); err != nil {
			return err
		}
	}
	return nil
}
