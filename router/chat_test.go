package router

import (
	"net/http"
	"strings"
	"testing"
)

// TestChat holds what engines get of a chat and what its client gets, byte for byte.
func TestChat(t *testing.T) {
	const (
		whole  = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":" a"},"finish_reason":"stop"}]}`
		chunks = `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n" +
			`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" a"},"finish_reason":"stop"}]}` + "\n\n" +
			"data: [DONE]\n\n"
		head = `{"model":"m","messages":[{"role":"user","content":"hi"}]`
	)
	for name, c := range map[string]struct{ body, prefill, decode, answer, kind string }{
		"whole": {
			head + `,"max_completion_tokens":8}`,
			head + `,"max_completion_tokens":1,"max_tokens":1,"min_tokens":1,"n":1,"stream":false,"ignore_eos":true,"kv_transfer_params":{`,
			head + `,"max_completion_tokens":8,"kv_transfer_params":{`,
			whole, "application/json",
		},
		"stream": {
			head + `,"stream":true,"stream_options":{"include_usage":true},"stop":"x"}`,
			head + `,"stream":false,"max_tokens":1,"min_tokens":1,"n":1,"ignore_eos":true,"kv_transfer_params":{`,
			head + `,"stream":true,"stream_options":{"include_usage":true},"stop":"x","kv_transfer_params":{`,
			chunks, "text/event-stream; charset=utf-8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.prefill.says(200, whole)
			r.decode.does(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.kind)
				for event := range strings.SplitAfterSeq(c.answer, "\n\n") {
					_, _ = w.Write([]byte(event))
					_ = http.NewResponseController(w).Flush()
				}
			})
			a := r.post(t, chatCompletions, c.body)
			if a.status != 200 || a.body != c.answer || a.err != nil || a.header.Get("Content-Type") != c.kind {
				t.Errorf("status %d, %q, %v", a.status, a.body, a.err)
			}
			p, d := next(t, "prefill's leg", r.prefill.calls), next(t, "decode's leg", r.decode.calls)
			if p.path != chatCompletions || !strings.HasPrefix(p.body, c.prefill) {
				t.Errorf("prefill got %s %s", p.path, p.body)
			}
			if d.path != chatCompletions || !strings.HasPrefix(d.body, c.decode) {
				t.Errorf("decode got %s %s", d.path, d.body)
			}
		})
	}
}

// TestTwoRoutersServeOnePool: they share nothing, so that what one tells engines of
// a transfer must not be what the other tells of another.
func TestTwoRoutersServeOnePool(t *testing.T) {
	a := newRig(t)
	b := newRig(t)
	b.prefill, b.decode, b.instances = a.prefill, a.decode, a.instances
	b.publish()
	seen := map[string]bool{}
	const body = `{"model":"m","messages":[{"role":"user","content":"hi"}],"request_id":"same"}`
	for range 8 {
		for _, r := range []*rig{a, b} {
			got := r.post(t, chatCompletions, body, "X-Request-Id", "same")
			p, d := next(t, "prefill's leg", a.prefill.calls), next(t, "decode's leg", a.decode.calls)
			transfer := got.header.Get(TransferHeader)
			for _, leg := range []call{p, d} {
				if !strings.Contains(leg.body, `"transfer_id":"`+transfer+`"`) {
					t.Fatalf("%s is not that of %s", transfer, leg.body)
				}
			}
			if id := p.header.Get("X-Request-Id"); got.status != 200 || seen[transfer] || seen[id] || id != d.header.Get("X-Request-Id") {
				t.Fatalf("status %d, transfer %s, ids %s and %s", got.status, transfer, id, d.header.Get("X-Request-Id"))
			}
			seen[transfer], seen[p.header.Get("X-Request-Id")] = true, true
		}
	}
}
