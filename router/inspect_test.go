package router

import (
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

func TestBadRequests(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		path, body string
		status     int
		code       string
		param      any
	}{
		{completions, `{`, 400, codeBadJSON, nil},
		{completions, `[]`, 400, codeBadJSON, nil},
		{completions, ``, 400, codeBadJSON, nil},
		{completions, `{"prompt":"x"}`, 400, codeBadValue, "model"},
		{completions, `{"model":null,"prompt":"x"}`, 400, codeBadValue, "model"},
		{completions, `{"model":7,"prompt":"x"}`, 400, codeBadValue, "model"},
		{completions, `{"model":"other","prompt":"x"}`, 404, RuleNoModel, "model"},
		{completions, `{"model":"m","n":2}`, 400, codeUnsupported, "n"},
		{completions, `{"model":"m","n":1,"n":2}`, 400, codeUnsupported, "n"},
		{completions, `{"model":"m","\u006e":2}`, 400, codeUnsupported, "n"},
		{completions, `{"model":"m","n":"2"}`, 400, codeUnsupported, "n"},
		{completions, `{"model":"m","n":0}`, 400, codeUnsupported, "n"},
		{chatCompletions, `{"model":"m","n":8}`, 400, codeUnsupported, "n"},
		{completions, `{"model":"m","best_of":3}`, 400, codeUnsupported, "best_of"},
		{completions, `{"model":"m","use_beam_search":true}`, 400, codeUnsupported, "use_beam_search"},
		{completions, `{"model":"m","prompt_logprobs":1}`, 400, codeUnsupported, "prompt_logprobs"},
		{completions, `{"model":"m","echo":true,"logprobs":1}`, 400, codeUnsupported, "echo"},
		{completions, `{"model":"m","prompt":["a","b"]}`, 400, codeUnsupported, "prompt"},
		{completions, `{"model":"m","prompt":[[1],[2]]}`, 400, codeUnsupported, "prompt"},
		{completions, `{"model":"m","prompt_embeds":["a","b"]}`, 400, codeUnsupported, "prompt_embeds"},
		{completions, `{"model":"m","kv_transfer_params":{"do_remote_prefill":true}}`, 400, codeReserved, "kv_transfer_params"},
		{completions, `{"model":"m","kv_transfer_params":null,"kv_transfer_params":{}}`, 400, codeReserved, "kv_transfer_params"},
		{completions, `{"model":"m","kv\u005ftransfer_params":{}}`, 400, codeReserved, "kv_transfer_params"},
		{completions, `{"model":"m","request_id":"___prefill_addr_host:1.2.3.4"}`, 400, codeReserved, "request_id"},
		{completions, `{"model":"m","request_id":"a\u005f__decode_addr_x"}`, 400, codeReserved, "request_id"},
		{completions, `{"model":"m","request_id":["x"]}`, 400, codeReserved, "request_id"},
		{completions, `{"model":"m","kv_transfer_params":null,"KV_TRANSFER_PARAMS":{}}`, 400, codeReserved, "kv_transfer_params"},
		{completions, `{"model":"m","\u212av_tran\u017ffer_params":{}}`, 400, codeReserved, "kv_transfer_params"},
		{completions, `{"model":"m","Request_ID":"x"}`, 400, codeReserved, "request_id"},
		{completions, `{"model":"m","MODEL":"other"}`, 400, codeReserved, "model"},
		{completions, `{"model":"m","\u017ftream":true}`, 400, codeReserved, "stream"},
		{completions, `{"model":"m","N":2}`, 400, codeReserved, "n"},
		{completions, `{"model":"m","max_tokens":1,"Max_Tokens":9}`, 400, codeReserved, "max_tokens"},
		{chatCompletions, `{"model":"m","max_Completion_tokens":9}`, 400, codeReserved, "max_completion_tokens"},
		{"/v1/nothing", `{}`, 404, codeNotFound, nil},
	} {
		a := r.post(t, c.path, c.body)
		e := a.error(t)
		if a.status != c.status || e["code"] != c.code || e["param"] != c.param || e["type"] != "invalid_request_error" {
			t.Errorf("%s: status %d, %v", c.body, a.status, e)
		}
		if c.param != nil && !strings.Contains(e["message"].(string), c.param.(string)) {
			t.Errorf("%s: message %q does not name %s", c.body, e["message"], c.param)
		}
		if a.header.Get(TransferHeader) != "" {
			t.Errorf("%s: not dispatched, yet has a transfer", c.body)
		}
	}
	if len(r.prefill.calls)+len(r.decode.calls) > 0 {
		t.Error("an engine got a leg")
	}
}

// TestEditedFieldsAreSpelled: what the legs' edits set is guarded in any letter case.
func TestEditedFieldsAreSpelled(t *testing.T) {
	d, err := cut(`{"model":"m","max_completion_tokens":1}`)
	if err != nil {
		t.Fatal(err)
	}
	q := &request{document: d}
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		leg := q.body(role, "{}")
		var text strings.Builder
		for _, piece := range leg {
			text.WriteString(piece)
		}
		made, err := cut(text.String())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range made.fields {
			if !slices.Contains(spelled, f.key) {
				t.Errorf("%s is written into the %s leg and taken from clients in another case", f.key, role)
			}
		}
	}
}

func TestGoodRequests(t *testing.T) {
	r := newRig(t)
	for _, body := range []string{
		`{"model":"m","prompt":[1,2,3]}`,
		`{"model":"m","prompt":["one"]}`,
		`{"model":"m","prompt":[[1,2,3]]}`,
		`{"model":"m","n":1,"best_of":1,"prompt":""}`,
		`{"model":"m","n":1.0,"use_beam_search":false}`,
		`{"model":"m","n":null,"best_of":null,"prompt_logprobs":null,"kv_transfer_params":null,"request_id":null}`,
		`{"model":"m","request_id":"mine","echo":true}`,
		`{"model":"x","model":"m"}`,
		`{"model":"m","User":"u","metadata":{"N":2,"KV_TRANSFER_PARAMS":1}}`,
	} {
		if a := r.post(t, completions, body); a.status != http.StatusOK {
			t.Errorf("%s: status %d, %s", body, a.status, a.body)
		}
	}
}

func TestBadHeaders(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		key, value string
		status     int
	}{
		{"X-Request-Id", "___prefill_addr_host:1.2.3.4,handshake:1,notify:2___decode_addr_x_0", 400},
		{"X-Request-Id", "x___decode_addr_y", 400},
		{"X-Request-Id", strings.Repeat("x", maxID+1), 400},
		{"X-Request-Id", "a b", 400},
		{"Content-Encoding", "gzip", 415},
	} {
		a := r.post(t, completions, simple, c.key, c.value)
		if a.status != c.status || a.error(t)["type"] != "invalid_request_error" {
			t.Errorf("%s %.40s: status %d, %s", c.key, c.value, a.status, a.body)
		}
		if got := a.header.Get("X-Request-Id"); got != "" {
			t.Errorf("a refused id is echoed: %q", got)
		}
	}
}

func TestTooLarge(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxBody = 1000; o.MaxBuffered = 1500 })
	big := `{"model":"m","prompt":"` + strings.Repeat("x", 2000) + `"}`
	if a := r.post(t, completions, big); a.status != 413 || a.code(t) != codeTooLarge {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	// Without a length it is found out on the way.
	q, err := http.NewRequest(http.MethodPost, r.http.URL+completions, struct{ *strings.Reader }{strings.NewReader(big)})
	if err != nil {
		t.Fatal(err)
	}
	q.ContentLength = -1
	response, err := r.http.Client().Do(q)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 413 {
		t.Errorf("chunked: status %d", response.StatusCode)
	}
	r.readers.bytes = 1499
	if a := r.post(t, completions, simple); a.status != 503 || a.code(t) != codeBusy || a.header.Get("Retry-After") == "" {
		t.Errorf("memory taken: status %d, %s", a.status, a.body)
	}
	if n := r.readers.held(); n != 1499 {
		t.Errorf("%d bytes are held", n)
	}
}

func TestTooMany(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxInflight, o.MaxQueue = 1, 0 })
	release := make(chan struct{})
	for _, e := range []*engine{r.prefill, r.decode} {
		e.does(func(w http.ResponseWriter, _ *http.Request) { <-release; reply200(w) })
	}
	first := make(chan answer, 1)
	go func() { first <- r.post(t, completions, simple) }()
	next(t, "the first request", r.decode.calls)
	if a := r.post(t, completions, simple); a.status != 503 || a.code(t) != codeBusy || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	close(release)
	if a := next(t, "the first answer", first); a.status != 200 {
		t.Errorf("status %d", a.status)
	}
	eventually(t, "room again", func() bool { return r.post(t, completions, simple).status == 200 })
}

// TestSlowBodiesTakeNoPlace: requests whose bodies do not come keep nobody out, and
// there may be only so many of them, half of that from one host.
func TestSlowBodiesTakeNoPlace(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxInflight = 2 })
	const most = 2 * readsPerWork
	var slow []net.Conn
	begin := func() {
		conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, "POST "+completions+" HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	reading := func(n int) func() bool {
		return func() bool {
			r.readers.mu.Lock()
			defer r.readers.mu.Unlock()
			return r.readers.all == n && len(r.readers.byHost) == min(n, 1)
		}
	}
	for range most/2 - 1 {
		begin()
	}
	eventually(t, "the slow ones are read", reading(most/2-1))
	if a := r.post(t, completions, simple); a.status != http.StatusOK {
		t.Errorf("beside slow bodies: status %d, %s", a.status, a.body)
	}
	begin()
	eventually(t, "one more is read", reading(most/2))
	if a := r.post(t, completions, simple); a.status != 429 || a.code(t) != codeShare || a.header.Get("Retry-After") == "" {
		t.Errorf("too many of one host: status %d, %s", a.status, a.body)
	}
	if limit := r.readers.enter("another", most); limit != "" {
		t.Error("a host is kept out by another")
	}
	r.readers.leave("another")
	for _, conn := range slow {
		_ = conn.Close()
	}
	eventually(t, "none is read", reading(0))
	if a := r.post(t, completions, simple); a.status != http.StatusOK {
		t.Errorf("afterwards: status %d, %s", a.status, a.body)
	}
}

func TestClientThatSendsNoBody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Body = 50 * time.Millisecond })
		body, silent := io.Pipe()
		defer func() { _ = silent.Close() }()
		q, err := http.NewRequest(http.MethodPost, r.http.URL+completions, body)
		if err != nil {
			t.Fatal(err)
		}
		q.ContentLength = 1000
		response, err := r.http.Client().Do(q)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode != http.StatusRequestTimeout {
				t.Errorf("status %d", response.StatusCode)
			}
		}
		if n := r.readers.held(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	})
}
