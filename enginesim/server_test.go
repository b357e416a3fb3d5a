package enginesim

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// stream posts a body and returns the data of the events.
func stream(t *testing.T, in *Instance, path, body string) []string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, in.url(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.Errorf("content type %q", kind)
	}
	var events []string
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			events = append(events, data)
		} else if lines.Text() != "" {
			t.Errorf("line %q is no event", lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	return events
}

func TestStreamHasOneTokenPerChunk(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON)
	for _, tc := range []struct{ path, body, want string }{
		{"/v1/completions", `{"prompt":"a b c","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`, in.reference("a b c", 5)},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"a b"},{"type":"text","text":"c"}]}],"max_completion_tokens":5,"max_tokens":9,"stream":true,"stream_options":{"include_usage":true}}`, in.reference("<|user|> a b c <|assistant|>", 5)},
	} {
		events := stream(t, in, tc.path, tc.body)
		if len(events) != 5+2 || events[6] != "[DONE]" {
			t.Fatalf("%s: %d events: %q", tc.path, len(events), events)
		}
		var text strings.Builder
		for i, e := range events[:5] {
			var a answer
			if err := json.Unmarshal([]byte(e), &a); err != nil {
				t.Fatal(err)
			}
			c := a.Choices[0]
			text.WriteString(c.piece(t, i == 0))
			if (c.Finish != nil) != (i == 4) {
				t.Errorf("chunk %d: finish_reason %v", i, c.Finish)
			}
			if len(strings.Fields(text.String())) != i+1 {
				t.Errorf("after chunk %d the text is %q", i, text.String())
			}
		}
		if text.String() != tc.want {
			t.Errorf("%s: %q, want %q", tc.path, text.String(), tc.want)
		}
		var last answer
		if err := json.Unmarshal([]byte(events[5]), &last); err != nil || len(last.Choices) != 0 || last.Usage == nil || last.Usage.Completion != 5 {
			t.Errorf("usage chunk: %s", events[5])
		}
	}
	sound(t, in)
}

// piece is the text of a chunk; only the first one of a chat names the role.
func (c choice) piece(t *testing.T, first bool) string {
	t.Helper()
	if c.Delta == nil {
		return *c.Text
	}
	if (c.Delta.Role == "assistant") != first {
		t.Errorf("a chunk, first %t, has the role %q", first, c.Delta.Role)
	}
	return c.Delta.Content
}

// A row that goes bad while the answer streams ends it with an error event.
func TestStreamBreaks(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON)
	g := in.groups[0]
	r := &request{id: "x", tokens: Tokenize("a b"), count: 4}
	n := 0
	r.emit = func(uint32) (bool, error) {
		n++
		if n == 2 {
			return true, &wrongRowError{what: "test"}
		}
		return true, nil
	}
	if _, err := g.generate(t.Context(), r); err == nil || !strings.Contains(err.Error(), "wrong row") {
		t.Errorf("error %v", err)
	}
	sound(t, in)
	w := &recorder{header: http.Header{}}
	a := &answering{w: w, request: r, model: "m", stream: true, in: in, group: g}
	if err := a.send(a.chunk("text", nil)); err != nil {
		t.Fatal(err)
	}
	a.fail(&TransferError{"peer-gone", "prefill has ended"})
	events := strings.Split(strings.TrimSpace(w.body.String()), "\n\n")
	if len(events) != 2 || !strings.Contains(events[1], `"rule":"peer-gone"`) || strings.Contains(w.body.String(), "[DONE]") {
		t.Errorf("%q", events)
	}
}

func TestStop(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON)
	whole := strings.Fields(in.reference("a b c", 6))
	r := post(t.Context(), t, in, "/v1/completions", map[string]any{"prompt": "a b c", "max_tokens": 6, "stop": []string{"nothing", whole[3]}})
	if want := strings.Join(whole[:3], " ") + " "; r.text() != want || *r.Choices[0].Finish != "stop" || r.Usage.Completion != 4 {
		t.Errorf("%s, want %q", r.raw, want)
	}
	r = post(t.Context(), t, in, "/v1/completions", map[string]any{"prompt": "a b c", "max_tokens": 6, "stop": "nothing"})
	if r.text() != strings.Join(whole, " ") || *r.Choices[0].Finish != "length" {
		t.Errorf("%s", r.raw)
	}
}

func TestPromptForms(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON)
	ids, err := json.Marshal(Tokenize("a b c"))
	if err != nil {
		t.Fatal(err)
	}
	want := in.reference("a b c", defaultTokens)
	for _, prompt := range []string{`"a b c"`, `" a\nb  c"`, `["a b c"]`, string(ids), "[" + string(ids) + "]"} {
		if r := post(t.Context(), t, in, "/v1/completions", `{"prompt":`+prompt+`}`); r.text() != want {
			t.Errorf("%s: %s", prompt, r.raw)
		}
	}
	r := post(t.Context(), t, in, "/tokenize", `{"prompt":"a b c"}`)
	if r.raw != fmt.Sprintf(`{"count":3,"max_model_len":%d,"tokens":%s}`+"\n", in.cfg.longest(), ids) {
		t.Errorf("tokenize: %s", r.raw)
	}
}

func TestRefusedRequests(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON, "--max-model-len", "50")
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4"})
	params := func(change string) string {
		return `{"prompt":"a","kv_transfer_params":{"do_remote_prefill":true,"transfer_id":"t","remote_engine_id":null,"remote_block_ids":null,"remote_host":"10.0.0.1","remote_handshake_port":1,"remote_notify_port":2` + change + `}}`
	}
	for _, tc := range []struct {
		in      *Instance
		body    string
		headers []string
		status  int
		want    string
	}{
		{in, `{`, nil, 400, "the request is not"},
		{in, `{}`, nil, 400, "neither a string"},
		{in, `{"prompt":""}`, nil, 400, "prompt is empty"},
		{in, `{"prompt":[]}`, nil, 400, "0 prompts"},
		{in, `{"prompt":["a","b"]}`, nil, 400, "2 prompts"},
		{in, `{"prompt":[1.5]}`, nil, 400, "neither a string"},
		{in, `{"prompt":[-1]}`, nil, 400, "token id -1"},
		{in, `{"prompt":[[["a"]]]}`, nil, 400, "neither a string"},
		{in, `{"prompt":"a","model":"other"}`, nil, 404, "other"},
		{in, `{"prompt":"a","n":2}`, nil, 400, "n 2"},
		{in, `{"prompt":"a","echo":true}`, nil, 400, "echo"},
		{in, `{"prompt":"a","max_tokens":0}`, nil, 400, "max_tokens 0"},
		{in, `{"prompt":"a","max_tokens":50}`, nil, 400, "holds 50 tokens"},
		{in, `{"prompt":"a","max_tokens":9223372036854775807}`, nil, 400, "holds 50 tokens"},
		{in, `{"prompt":"a","max_completion_tokens":9223372036854775807}`, nil, 400, "holds 50 tokens"},
		{x.p, strings.Replace(params(`,"do_remote_decode":true,"do_remote_prefill":false`), `"a"`, `"a","max_tokens":9223372036854775807`, 1), nil, 400, "tokens"},
		{in, `{"prompt":"a","stop":5}`, nil, 400, "stop"},
		{in, `{"prompt":"a","stop":""}`, nil, 400, "stop"},
		{in, `{"prompt":"` + strings.Repeat("a ", 5000) + `"}`, nil, 400, "holds 50 tokens"},
		{in, `{"prompt":"` + strings.Repeat("a ", maxBody/2) + `"}`, nil, 413, "too large"},
		{in, `{"prompt":"a"}`, []string{"X-data-parallel-rank", "1"}, 400, "X-data-parallel-rank"},
		{in, params(""), nil, 400, "not split"},
		{x.p, params(""), nil, 400, "prefills"},
		{x.d, strings.Replace(params(""), `"transfer_id":"t",`, "", 1), nil, 400, "lacks transfer_id"},
		{x.d, strings.Replace(params(""), `"remote_block_ids":null,`, "", 1), nil, 400, "lacks remote_block_ids"},
		{x.d, params(`,"do_remote_decode":true`), nil, 400, "at once"},
		{x.d, params(`,"remote_host":""`), nil, 400, "no remote_host"},
		{x.d, params(`,"remote_notify_port":70000`), nil, 400, "70000"},
		{x.d, params(`,"remote_notify_port":"x"`), nil, 400, "whole number"},
		{x.d, params(`,"remote_dp_rank":2147483648`), nil, 400, "remote_dp_rank 2147483648"},
		{x.d, params(`,"remote_tp_size":9223372036854775807`), nil, 400, "remote_tp_size"},
		{x.d, params(`,"transfer_id":""`), nil, 400, "transfer_id"},
	} {
		r := post(t.Context(), t, tc.in, "/v1/completions", tc.body, tc.headers...)
		if r.status != tc.status || r.Error.Code != tc.status || r.Error.Type == "" || !strings.Contains(r.raw, tc.want) {
			t.Errorf("%.80s: %d %s, want %d with %q", tc.body, r.status, r.raw, tc.status, tc.want)
		}
	}
	sound(t, in)
	sound(t, x.d)
}

// The address of prefill may come in the request id, as MoRIIO's router writes it.
func TestAddressInRequestID(t *testing.T) {
	p := transferParams{Transfer: "t", TPSizeOld: 8, DPRank: 3}
	peer, err := p.peer("cmpl-___prefill_addr_host:10.0.0.1,handshake:6301,notify:61005___decode_addr_host:10.0.0.2,handshake:1,notify:2_0123456789abcdef0123456789abcdef-0")
	if err != nil || peer.Host != "10.0.0.1" || peer.Handshake != 6301 || peer.Notify != 61005 || peer.DP != 3 || peer.TPSize != 8 {
		t.Errorf("%+v, %v", peer, err)
	}
}

// Requests wait for blocks in turn; beyond the bound they are turned away.
func TestQueueIsBounded(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON, "--num-gpu-blocks-override", "1", "--sim-max-queue", "1", "--sim-ms-per-token", "60000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := map[string]any{"prompt": "a", "max_tokens": 3}
	ended := make(chan *response, 2)
	ask := func() { ended <- post(ctx, t, in, "/v1/completions", body) }
	go ask()
	until(t, func() bool { return in.State().Groups[0].FreeBlocks == 0 })
	go ask()
	until(t, func() bool { return in.State().Groups[0].Waiting == 1 })
	if r := post(ctx, t, in, "/v1/completions", body); r.status != http.StatusTooManyRequests || r.Error.Rule != "busy" {
		t.Errorf("%d %s", r.status, r.raw)
	}
	cancel()
	<-ended
	<-ended
	sound(t, in)
}

func TestDataParallelRanks(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON, "-dp", "4", "-dpl", "2", "--data-parallel-start-rank", "2", "-dph")
	for i, header := range [][]string{{"X-data-parallel-rank", "1"}, {"X-data-parallel-rank", "1"}, nil, nil} {
		if r := post(t.Context(), t, in, "/v1/completions", `{"prompt":"a"}`, header...); r.status != http.StatusOK {
			t.Errorf("request %d: %s", i, r.raw)
		}
	}
	s := in.State()
	if len(s.Groups) != 2 || s.Groups[0].DP != 2 || s.Groups[0].Answered != 1 || s.Groups[1].DP != 3 || s.Groups[1].Answered != 3 {
		t.Errorf("%+v", s)
	}
}

func TestOtherEndpoints(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON, "--served-model-name", "a", "b")
	for path, want := range map[string]string{
		"/health":    "",
		"/v1/models": `"id":"b"`,
		"/sim/state": `"role":"whole"`,
		"/metrics":   `vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0`,
	} {
		res, err := client.Get(in.url(path))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d %s", path, res.StatusCode, b)
		}
	}
}

func TestPortInUse(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON)
	c := in.cfg
	_, port, _ := strings.Cut(in.Addr().String(), ":")
	if _, err := fmt.Sscan(port, &c.Port); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), c, Options{}); err == nil || !strings.Contains(err.Error(), "port "+port) {
		t.Errorf("error %v", err)
	}
}

// recorder is a ResponseWriter that can flush and takes deadlines.
type recorder struct {
	header http.Header
	status int
	body   strings.Builder
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
func (r *recorder) FlushError() error           { return nil }

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
