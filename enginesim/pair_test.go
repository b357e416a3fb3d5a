package enginesim

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

func TestUnsplitAnswers(t *testing.T) {
	for name, args := range map[string][]string{
		"one rank":       {"--sim-geometry", latentJSON},
		"latent":         {"--sim-geometry", latentJSON, "-tp", "4"},
		"latent dealt":   {"--sim-geometry", latentJSON, "-tp", "4", "-dcp", "4", "--cp-kv-cache-interleave-size", "8", "--block-size", "16"},
		"sharded":        {"--sim-geometry", shardedJSON, "-tp", "2"},
		"token major":    {"--sim-geometry", shardedJSON, "-tp", "2", "--sim-kv-layout", "LBNHC"},
		"sharded, dealt": {"--sim-geometry", shardedJSON, "-tp", "8", "-dcp", "2"},
		"eight bits":     {"--sim-geometry", shardedJSON, "-tp", "8", "--kv-cache-dtype", "fp8"},
	} {
		t.Run(name, func(t *testing.T) {
			in := start(t, args...)
			for i, n := range []int{1, 15, 16, 17, 100} {
				prompt := words(n, i)
				r := post(t.Context(), t, in, "/v1/completions", map[string]any{"prompt": prompt, "max_tokens": 20})
				if r.status != http.StatusOK || r.text() != in.reference(prompt, 20) {
					t.Errorf("%d tokens: %s", n, r.raw)
				}
				if u := r.Usage; u == nil || u.Prompt != n || u.Completion != 20 || u.Total != n+20 {
					t.Errorf("%d tokens: usage %+v", n, r.Usage)
				}
			}
			sound(t, in)
		})
	}
}

func TestPairAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		geometry        string
		prefill, decode []string
	}{
		"latent":           {latentJSON, []string{"-tp", "4"}, []string{"-tp", "4"}},
		"dealt by 1":       {latentJSON, []string{"-tp", "4"}, []string{"-tp", "4", "-dcp", "4"}},
		"dealt by 16":      {latentJSON, []string{"-tp", "4"}, []string{"-tp", "4", "-dcp", "4", "--cp-kv-cache-interleave-size", "16"}},
		"dealt by 64":      {latentJSON, []string{"-tp", "4"}, []string{"-tp", "4", "-dcp", "4", "--cp-kv-cache-interleave-size=64"}},
		"dealt on both":    {latentJSON, []string{"-tp", "4", "-dcp", "2", "--cp-kv-cache-interleave-size", "8"}, []string{"-tp", "4", "-dcp", "2", "--cp-kv-cache-interleave-size", "8"}},
		"to fewer, dealt":  {latentJSON, []string{"-tp", "8"}, []string{"-tp", "4", "-dcp", "4"}},
		"sharded":          {shardedJSON, []string{"-tp", "4"}, []string{"-tp", "4"}},
		"sharded to fewer": {shardedJSON, []string{"-tp", "4"}, []string{"-tp", "2"}},
		"sharded to more":  {shardedJSON, []string{"-tp", "2"}, []string{"-tp", "4"}},
		"other order":      {shardedJSON, []string{"-tp", "4"}, []string{"-tp", "2", "--sim-kv-layout", "LBNHC"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := startPair(t, tc.geometry, tc.prefill, tc.decode)
			for i, n := range []int{1, 64, 65, 200} {
				prompt := words(n, i)
				p, d := x.ask(t, prompt, 12)
				if d.status != http.StatusOK || d.text() != x.d.reference(prompt, 12) {
					t.Errorf("%d tokens: decode answers %s", n, d.raw)
				}
				if p.status != http.StatusOK || p.text() != x.d.reference(prompt, 1) {
					t.Errorf("%d tokens: prefill answers %s", n, p.raw)
				}
				if k := p.Transfer; k == nil || !k.DoRemotePrefill || k.DoRemoteDecode || len(k.Blocks) != 1 || len(k.Blocks[0]) == 0 {
					t.Errorf("%d tokens: prefill's kv_transfer_params are %+v", n, p.Transfer)
				}
			}
			sound(t, x.p)
			sound(t, x.d)
		})
	}
}

// Every fault ends in an error that names a row or a reason, never in text.
func TestFaults(t *testing.T) {
	deal4 := []string{"-tp", "4", "-dcp", "4", "--cp-kv-cache-interleave-size", "16"}
	for name, tc := range map[string]struct {
		geometry        string
		prefill, decode []string
		want            []string
	}{
		"copies-off":                   {latentJSON, nil, deal4, []string{"wrong row at rank 0, layer 0, head 0, token 0 ", "never written"}},
		"interleave-off":               {latentJSON, nil, deal4, []string{"wrong row at rank 0, layer 0, head 0, token 0 ", "it holds"}},
		"all-to-rank-0":                {latentJSON, nil, deal4, []string{"wrong row at rank "}},
		"flip:rank=2,layer=1,row=37":   {latentJSON, nil, deal4, []string{"wrong row at rank 2, layer 1, head 0, token 37 ", "the first at byte 0"}},
		"kill-writer:rank=1,layer=2":   {shardedJSON, nil, []string{"-tp", "2"}, []string{"engine-gone"}},
		"first-writer-ends":            {shardedJSON, []string{"--sim-fault", "delay-writer:rank=1,ms=10000"}, []string{"-tp", "2"}, []string{"wrong row at rank 0, layer 0, head 1, token 0 ", "never written"}},
		"flip:rank=3,layer=0,row=0":    {shardedJSON, nil, []string{"-tp", "2"}, []string{"wrong row at rank 1, layer 0, head 3, token 0 "}},
		"delay-writer:rank=1,ms=50":    {shardedJSON, nil, []string{"-tp", "2"}, nil},
		"delay-writer:rank=3,ms=50":    {latentJSON, nil, deal4, nil},
		"kill-writer:rank=0,layer=0":   {latentJSON, nil, deal4, []string{"engine-gone"}},
		"flip:rank=0,layer=2,row=1000": {latentJSON, nil, deal4, nil}, // no such token
	} {
		t.Run(name, func(t *testing.T) {
			prefill := append([]string{"-tp", "4"}, tc.prefill...)
			decode := tc.decode
			if name == "first-writer-ends" {
				decode = append([]string{"--sim-fault", name}, decode...)
			} else {
				prefill = append(prefill, "--sim-fault", name)
			}
			x := startPair(t, tc.geometry, prefill, decode)
			prompt := words(100, 0)
			_, d := x.ask(t, prompt, 4)
			if tc.want == nil {
				if d.text() != x.d.reference(prompt, 4) {
					t.Errorf("decode answers %s", d.raw)
				}
				return
			}
			if d.status != http.StatusInternalServerError || d.text() != "" {
				t.Errorf("decode answers %d: %s", d.status, d.raw)
			}
			for _, part := range tc.want {
				if !strings.Contains(d.raw, part) {
					t.Errorf("decode's error lacks %q: %s", part, d.raw)
				}
			}
			until(t, func() bool { s := x.d.State().Groups[0]; return s.Live == 0 && s.FreeBlocks == s.Blocks })
		})
	}
}

// A killed worker dies alone: the others write theirs, and only then the engine
// registers anew, all of it.
func TestKilledWriter(t *testing.T) {
	x := startPair(t, shardedJSON, []string{"-tp", "4", "--sim-fault", "kill-writer:rank=2,layer=0"}, []string{"-tp", "4"})
	for i := range 2 {
		until(t, func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			return x.prefill.greeted == 5*(i+1) && len(x.prefill.ready) == 4 && x.p.ready() == nil
		})
		if _, d := x.ask(t, words(100, i), 4); d.Error.Rule != "engine-gone" {
			t.Errorf("decode answers %s", d.raw)
		}
		x.mu.Lock()
		f := x.flows[fmt.Sprintf("tx-%d", i+1)]
		for w := range 4 {
			if f.copied[w] == (w == 2) {
				t.Errorf("request %d: writer %d has copied: %t", i, w, f.copied[w])
			}
		}
		x.mu.Unlock()
	}
	sound(t, x.p)
	sound(t, x.d)
}

// The rule and the sentence of the agent reach the client.
func TestAgentSaysWhy(t *testing.T) {
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4"})
	x.mu.Lock()
	x.frozen = true
	x.mu.Unlock()
	_, body := x.legs(words(10, 0), 4)
	got := make(chan *response, 1)
	go func() { got <- post(t.Context(), t, x.d, "/v1/completions", body) }()
	x.awaitReceive(t)
	x.mu.Lock()
	x.fail(x.flows["tx-1"], "dcp-mix", "prefill has dcp 2, decode 4")
	x.mu.Unlock()
	r := <-got
	if r.status != http.StatusInternalServerError || r.Error.Rule != "dcp-mix" || !strings.Contains(r.Error.Message, "prefill has dcp 2, decode 4") {
		t.Errorf("%s", r.raw)
	}
	sound(t, x.d)
}

// A client that goes away ends the transfer; the blocks stay taken until the agent
// says that nothing touches them.
func TestClientGone(t *testing.T) {
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4"})
	aborted := make(chan *flow, 1)
	x.mu.Lock()
	x.frozen = true
	x.abort = func(f *flow) { aborted <- f }
	x.mu.Unlock()
	_, body := x.legs(words(10, 0), 4)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *response, 1)
	go func() { ended <- post(ctx, t, x.d, "/v1/completions", body) }()
	x.awaitReceive(t)
	cancel()
	<-ended
	f := <-aborted
	until(t, func() bool { return x.d.State().Groups[0].Failed == 1 })
	s := x.d.State().Groups[0]
	if s.FreeBlocks == s.Blocks || s.Live == 0 {
		t.Errorf("blocks are free while the transfer may touch them: %+v", s)
	}
	if len(s.Held) != 1 || s.Held[0].Transfer != "tx-1" || len(s.Held[0].Blocks) != s.Blocks-s.FreeBlocks {
		t.Errorf("the state does not tell who holds the blocks: %+v", s.Held)
	}
	x.mu.Lock()
	x.decode.tell(-1, kvproto.Quiet{Transfer: f.id})
	x.mu.Unlock()
	sound(t, x.d)
}

// An agent that restarts ends what is in flight at once; the engine registers
// again, and only then are the blocks used again.
func TestAgentRestarts(t *testing.T) {
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4"})
	x.mu.Lock()
	x.frozen = true
	x.mu.Unlock()
	_, body := x.legs(words(10, 0), 4)
	got := make(chan *response, 1)
	go func() { got <- post(t.Context(), t, x.d, "/v1/completions", body) }()
	x.awaitReceive(t)
	x.decode.restart(t)
	if r := <-got; r.status != http.StatusInternalServerError || r.Error.Rule != "agent-gone" {
		t.Errorf("%s", r.raw)
	}
	until(t, func() bool { return x.d.ready() == nil })
	sound(t, x.d)
	x.mu.Lock()
	x.frozen = false
	x.mu.Unlock()
	prompt := words(70, 1)
	if _, d := x.ask(t, prompt, 4); d.text() != x.d.reference(prompt, 4) {
		t.Errorf("after the restart: %s", d.raw)
	}
}

func TestLateWrites(t *testing.T) {
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4", "--num-gpu-blocks-override", "2"})
	until(t, func() bool { x.mu.Lock(); defer x.mu.Unlock(); return len(x.decode.ready) == 4 })
	x.mu.Lock()
	r := x.decode.regions[1][2]
	x.decode.memory[1][offset(r, 0, 0, 5)+3] ^= 1 // nobody has asked for it
	x.mu.Unlock()
	_, d := x.ask(t, words(70, 0), 4)
	if d.Error.Rule != "late-write" || !strings.Contains(d.raw, "rank 1, layer 2, block 0") || !strings.Contains(d.raw, "slot 5") {
		t.Errorf("%s", d.raw)
	}
	prompt := words(70, 1)
	if _, d := x.ask(t, prompt, 4); d.text() != x.d.reference(prompt, 4) {
		t.Errorf("the block was not poisoned again: %s", d.raw)
	}
	until(t, func() bool { return x.d.State().Groups[0].Live == 0 })
	if s := x.d.State().Groups[0]; s.Violations != 1 || s.FreeBlocks != s.Blocks {
		t.Errorf("%+v", s)
	}
}

// What a transfer writes behind the prompt is noticed though nobody reads it.
func TestWritesBehindThePrompt(t *testing.T) {
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4", "--block-size", "64"})
	x.mu.Lock()
	x.frozen = true
	x.mu.Unlock()
	prompt := words(10, 0)
	p, d := x.legs(prompt, 4)
	got := make(chan *response, 2)
	go func() { got <- post(t.Context(), t, x.d, "/v1/completions", d) }()
	x.awaitReceive(t)
	if r := post(t.Context(), t, x.p, "/v1/completions", p); r.status != http.StatusOK {
		t.Errorf("prefill: %s", r.raw)
	}
	until(t, func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		f := x.flows["tx-1"]
		return f.hold != nil && len(f.sealed) == 4
	})
	x.mu.Lock()
	x.frozen = false
	f := x.flows["tx-1"]
	before := x.prefill.memory[2]
	r := x.prefill.regions[2][0]
	at := offset(r, f.hold.Blocks[0], 0, 20) // behind the prompt's 10 tokens
	for i := range r.RowBytes {
		before[at+i] = 0x42
	}
	x.advance(f)
	x.mu.Unlock()
	if d := <-got; d.Error.Rule != "wrong-write" || !strings.Contains(d.raw, "rank 2, layer 0") || !strings.Contains(d.raw, "slot 20") {
		t.Errorf("%s", d.raw)
	}
	until(t, func() bool { return x.p.State().Groups[0].Live == 0 })
	if s := x.p.State().Groups[0]; s.Violations != 1 {
		t.Errorf("prefill has not noticed the write into its own memory: %+v", s)
	}
}

func TestNoAgent(t *testing.T) {
	in := start(t, "--sim-geometry", latentJSON, "--kv-transfer-config",
		`{"kv_connector":"AgentConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"socket":"`+t.TempDir()+`/none"}}`)
	x := &pair{}
	_, body := x.legs("a b", 1)
	if r := post(t.Context(), t, in, "/v1/completions", body); r.status != http.StatusServiceUnavailable {
		t.Errorf("%d: %s", r.status, r.raw)
	}
	res, err := client.Get(in.url("/health"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("health is %d: an engine without an agent lives", res.StatusCode)
	}
}

// What is under way when the instance is told to end does not keep it from ending.
func TestEndsWithTransfersUnderWay(t *testing.T) {
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4"})
	x.mu.Lock()
	x.frozen = true
	x.abort = func(*flow) {}
	x.mu.Unlock()
	p, body := x.legs(words(10, 0), 4)
	if r := post(t.Context(), t, x.p, "/v1/completions", p); r.status != http.StatusOK {
		t.Errorf("prefill: %s", r.raw)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan *response, 1)
	go func() { ended <- post(ctx, t, x.d, "/v1/completions", body) }()
	x.awaitReceive(t)
	cancel()
	<-ended
	// Both now wait for an agent that never answers; goleak says whether they end.
}

// A transfer id that comes again is refused, at once and without harm to the
// transfer that has it.
func TestTransferComesAgain(t *testing.T) {
	x := startPair(t, latentJSON, []string{"-tp", "4"}, []string{"-tp", "4"})
	x.mu.Lock()
	x.frozen = true
	x.mu.Unlock()
	prompt := words(10, 0)
	prefill, decode := x.legs(prompt, 4)
	first := make(chan *response, 1)
	go func() { first <- post(t.Context(), t, x.d, "/v1/completions", decode) }()
	x.awaitReceive(t)
	if r := post(t.Context(), t, x.d, "/v1/completions", decode); r.status == http.StatusOK || !strings.Contains(r.raw, "under way") {
		t.Errorf("while it is live: %s", r.raw)
	}
	x.mu.Lock()
	x.frozen = false
	x.mu.Unlock()
	if r := post(t.Context(), t, x.p, "/v1/completions", prefill); r.status != http.StatusOK {
		t.Errorf("prefill: %s", r.raw)
	}
	if r := <-first; r.text() != x.d.reference(prompt, 4) {
		t.Errorf("the live one: %s", r.raw)
	}
	sound(t, x.p)
	sound(t, x.d)
	// It has ended. Prefill may have answered before it hears of it; decode can't.
	post(t.Context(), t, x.p, "/v1/completions", prefill)
	if r := post(t.Context(), t, x.d, "/v1/completions", decode); r.status != http.StatusInternalServerError || r.Error.Rule != "duplicate" {
		t.Errorf("after its end: %s", r.raw)
	}
	for _, in := range []*Instance{x.p, x.d} {
		until(t, func() bool { return in.State().Groups[0].Live == 0 })
		if g := in.State().Groups[0]; g.FreeBlocks != g.Blocks || g.Violations != 0 || g.Refused != 1 {
			t.Errorf("%s: %+v", in.State().Role, g)
		}
	}
	if x.p.ready() != nil || x.d.ready() != nil {
		t.Error("a refused transfer has ended the registration")
	}
}
