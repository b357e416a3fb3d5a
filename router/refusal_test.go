package router

import (
	"net/http"
	"strings"
	"testing"
)

func TestRefusalOfAnEngineHoldsNoAddress(t *testing.T) {
	const told = `{"error":{"message":"no peer at 10.9.8.7:20002, [fd00::7]:80 or 127.0.0.1:1 (decode-pod-0)","code":400}}`
	const want = `{"error":{"message":"no peer at an address, an address or the prefill pod (the decode pod)","code":400}}`
	r := newRig(t)
	r.instances[1].Pods[0].Name = "decode-pod-0"
	r.publish()
	r.prefill.says(400, told)
	r.decode.hangs()
	if a := r.post(t, completions, simple); a.status != 400 || a.body != want {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
	if a := r.post(t, "/tokenize", simple); a.status != 400 || a.body != want {
		t.Errorf("tokenize: status %d, body %q", a.status, a.body)
	}
	r.prefill.hangs()
	r.decode.says(422, told)
	if a := r.post(t, completions, simple); a.status != 422 || a.body != want {
		t.Errorf("status %d, body %q", a.status, a.body)
	}
}

// TestRefusalOfAnEngineHasTheRoutersHeaders: an engine's own tell no address and replace none.
func TestRefusalOfAnEngineHasTheRoutersHeaders(t *testing.T) {
	r := newRig(t)
	r.decode.hangs()
	r.prefill.does(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(TransferHeader, "tx-forged")
		w.Header().Set("X-Served-By", "10.9.8.7:8000")
		reply(w, 400, `{"error":{"message":"no","code":400}}`)
	})
	a := r.post(t, completions, simple)
	if a.status != 400 || a.header.Get(TransferHeader) == "tx-forged" || a.header.Get("X-Served-By") != "" {
		t.Errorf("status %d, %v", a.status, a.header)
	}
	if a := r.post(t, "/tokenize", simple); a.status != 400 || a.header.Get(TransferHeader) != "" || a.header.Get("X-Served-By") != "" {
		t.Errorf("tokenize: status %d, %v", a.status, a.header)
	}
}

// TestPrefillRefusesTheRoutersEdits: the client can't mend that.
func TestPrefillRefusesTheRoutersEdits(t *testing.T) {
	for body, status := range map[string]int{
		`{"error":{"message":"this engine takes no such field","param":"kv_transfer_params"}}`:                                 502,
		`{"object":"error","message":"ignore_eos is not supported","param":null}`:                                              502,
		`{"message":"[{'loc': ('body', 'min_tokens'), 'msg': 'too large', 'input': 1}]"}`:                                      502,
		`{"message":"[{'loc': ('body', 'top_p'), 'msg': 'too large', 'input': {'min_tokens': 1, 'kv_transfer_params': {}}}]"}`: 400,
		`{"error":{"message":"min_tokens is in the prompt","param":"prompt"}}`:                                                 400,
		`{"error":{"message":"max_tokens is too large: 1, the prompt fills the context"}}`:                                     400,
	} {
		r := newRig(t)
		r.decode.hangs()
		r.prefill.says(400, body)
		a := r.post(t, completions, simple)
		if a.status != status {
			t.Errorf("%s: status %d, %s", body, a.status, a.body)
		}
		if status == 502 && (a.code(t) != codeFailed || !strings.HasPrefix(a.message(t), "prefill leg failed: ")) {
			t.Errorf("%s: %s", body, a.body)
		}
		r.decode.says(400, body)
		r.prefill.hangs()
		if a := r.post(t, completions, simple); a.status != 400 || a.body != body {
			t.Errorf("%s: decode's: status %d, %s", body, a.status, a.body)
		}
	}
}
