package enginesim

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestParseMishap(t *testing.T) {
	for text, want := range map[string]mishap{
		"500":                  {status: 500},
		"503:times=2":          {status: 503, times: 2},
		"hang":                 {hang: true},
		"hang:after=3,times=1": {hang: true, after: 3, times: 1},
		"cut:after=0":          {cut: true},
	} {
		if got, err := parseMishap(text); err != nil || *got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, none := range []string{"", "off"} {
		if got, err := parseMishap(none); got != nil || err != nil {
			t.Errorf("%q: %+v, %v", none, got, err)
		}
	}
	for _, wrong := range []string{"200", "600", "x", "500:after=1", "hang:after=-1", "cut:times=0", "cut:times", "cut:after=1,after=2", "hang:x=1"} {
		if got, err := parseMishap(wrong); err == nil {
			t.Errorf("%q was taken: %+v", wrong, got)
		}
	}
}

func fails(t *testing.T, in *Instance, as string) {
	t.Helper()
	if r := post(t.Context(), t, in, "/sim/fail?as="+as, ""); r.status != http.StatusNoContent {
		t.Fatalf("as=%s: %s", as, r.raw)
	}
}

func TestMishaps(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON, "--sim-fail", "503:times=2")
	ask := map[string]any{"prompt": "a b c", "max_tokens": 4, "stream": true}
	for range 2 {
		if r := post(t.Context(), t, in, "/v1/completions", ask); r.status != http.StatusServiceUnavailable || r.Error.Message == "" {
			t.Errorf("%d: %s", r.status, r.raw)
		}
	}
	if r := post(t.Context(), t, in, "/v1/completions", ask); r.status != http.StatusOK || !strings.Contains(r.raw, "[DONE]") {
		t.Errorf("the third one: %d: %s", r.status, r.raw)
	}
	fails(t, in, "500")
	if r := post(t.Context(), t, in, "/v1/completions", ask, MishapHeader, "off"); r.status != http.StatusOK {
		t.Errorf("off for one request: %d: %s", r.status, r.raw)
	}
	fails(t, in, "off")
	if r := post(t.Context(), t, in, "/v1/completions", ask, MishapHeader, "cut:after=2"); strings.Count(r.raw, "data: {") != 2 || !strings.Contains(r.raw, io.ErrUnexpectedEOF.Error()) {
		t.Errorf("cut after two tokens: %s", r.raw)
	}
	if r := post(t.Context(), t, in, "/v1/completions", ask, MishapHeader, "cut"); r.status != 0 || !strings.Contains(r.raw, "EOF") {
		t.Errorf("cut at once: %d: %s", r.status, r.raw)
	}
	if r := post(t.Context(), t, in, "/v1/completions", ask, MishapHeader, "sulk"); r.status != http.StatusBadRequest {
		t.Errorf("an unknown one: %d: %s", r.status, r.raw)
	}
	if raw := hangs(t, in, `{"prompt": "a b c", "max_tokens": 4, "stream": true}`, "hang:after=1"); strings.Count(raw, "data: {") != 1 {
		t.Errorf("hang after one token: %s", raw)
	}
	sound(t, in)
}

// hangs reads an answer until nothing has come for a while after its first token.
func hangs(t *testing.T, in *Instance, ask, as string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url("/v1/completions"), strings.NewReader(ask))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(MishapHeader, as)
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var raw strings.Builder
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		fmt.Fprintln(&raw, lines.Text())
		time.AfterFunc(200*time.Millisecond, cancel)
	}
	if ctx.Err() == nil {
		t.Errorf("the answer ends: %s", raw.String())
	}
	return raw.String()
}
