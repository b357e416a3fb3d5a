package enginesim

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/fault"
)

// What the operator renders is what the simulator takes.
func TestParseRendered(t *testing.T) {
	g, _ := kvlayout.Lookup("deepseek-ai/DeepSeek-R1")
	cmd, err := engine.Render(engine.Input{
		Kind: kvlayout.Simulator, Role: kvlayout.Decode, Model: g.Model, Served: "r1", Geometry: g,
		Layout: kvlayout.Layout{TP: 4, DP: 4, DPLocal: 2, DCP: 4, Interleave: 64}, KVType: kvlayout.FP8,
		KVMemory: 64 << 20, MaxLength: 4096, Mover: kvlayout.MoverAgent, Mode: kvlayout.Write,
		Ports: engine.Ports{HTTP: 20000}, Pods: 2, Pod: 1, DPStart: 2, KVSocket: "/run/pdpool/kv.sock",
		Args: []string{"--attention-backend", "ROCM_AITER_MLA", "--sim-ms-per-token=2.5", "--sim-agent-silence-ms=25000", "--sim-fault", "first-writer-ends"},
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(cmd.Args)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Model: g.Model, Served: []string{"r1"},
		Geometry: Geometry{Model: g.Model, Kind: mla, Layers: 61, AttentionHeads: 128, KVHeads: 1, HeadValues: 576, ValueBytes: 1},
		Layout:   Layout{TP: 4, DP: 4, DPLocal: 2, DPStart: 2, DCP: 4, Interleave: 64, Block: 64},
		Blocks:   29, MaxLength: 4096, Host: "0.0.0.0", Port: 20000, Socket: "/run/pdpool/kv.sock", KVType: "FP8",
		PerToken: 2500 * time.Microsecond, Silence: 25 * time.Second, MaxQueue: defaultQueue, Ignored: []string{"--attention-backend"},
		faults: faults{agent: []string{"first-writer-ends"}},
	}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(Config{}, faults{}, fault.Faults{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The table of known models is that of the catalog, and so are the figures of the
// demo: 71,958,528 bytes for 1,000 tokens.
func TestTableIsTheCatalog(t *testing.T) {
	for _, m := range models {
		g, ok := kvlayout.Lookup(m.Model)
		want := Geometry{Model: g.Model, Kind: string(g.Kind), Layers: g.Layers, AttentionHeads: g.AttentionHeads, KVHeads: g.KVHeads, HeadValues: g.HeadValues}
		if diff := cmp.Diff(want, m); !ok || diff != "" {
			t.Errorf("%s: %s", m.Model, diff)
		}
	}
	g := models[0]
	g.ValueBytes = 2
	l := Layout{TP: 4, DCP: 1, Interleave: 1, Block: 64}
	if got := int64(l.blocksFor(1000)) * blockBytes(g, l); got != 71958528 {
		t.Errorf("1,000 tokens take %d bytes of a rank", got)
	}
}

func TestParseRefuses(t *testing.T) {
	kv := func(s string) []string { return []string{"m", "--sim-geometry", latentJSON, "--kv-transfer-config", s} }
	agent := `{"kv_connector":"AgentConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"socket":"/s"}}`
	producer := strings.Replace(agent, "consumer", "producer", 1)
	for _, tc := range []struct {
		args  []string
		usage bool
		want  string
	}{
		{nil, true, "a model is needed"},
		{[]string{"m", "n"}, true, `"n" belongs to no flag`},
		{[]string{"m", "--sim-colour", "red"}, true, "--sim-colour"},
		{[]string{"m", "--port", "x"}, true, "whole number"},
		{[]string{"m", "--port=70000"}, false, "not a port"},
		{[]string{"m"}, false, "geometry"},
		{[]string{"m", "--sim-geometry", `{"kind":"MHA"}`}, false, "MHA"},
		{[]string{"m", "--sim-geometry", `{"kind":"MLA","layers":1,"attentionHeads":1,"kvHeads":1,"headValues":3}`}, false, "whole words"},
		{[]string{"m", "--sim-geometry", latentJSON, "-tp", "3"}, false, "tensor-parallel-size 3"},
		{[]string{"m", "--sim-geometry", latentJSON, "-tp", "4", "-dcp", "4", "--cp-kv-cache-interleave-size", "48"}, false, "multiple"},
		{[]string{"m", "--sim-geometry", latentJSON, "-tp", "4", "-dcp", "4", "--dcp-kv-cache-interleave-size", "48"}, false, "multiple"},
		{[]string{"m", "--sim-geometry", latentJSON, "-dp", "4", "-dpl", "2"}, false, "hybrid-lb"},
		{[]string{"m", "--sim-geometry", latentJSON, "--data-parallel-start-rank", "9223372036854775807"}, false, "data parallel ranks"},
		{[]string{"m", "--sim-geometry", latentJSON, "--sim-max-queue", "0"}, false, "sim-max-queue 0"},
		{[]string{"m", "--sim-geometry", latentJSON, "-pp", "2"}, false, "not simulated"},
		{[]string{"m", "--sim-geometry", latentJSON, "--headless"}, false, "serves HTTP"},
		{[]string{"m", "--sim-geometry", latentJSON, "--enable-prefix-caching"}, false, "no prefix cache"},
		{[]string{"m", "--sim-geometry", latentJSON, "--kv-cache-dtype", "int4"}, false, "int4"},
		{[]string{"m", "--sim-geometry", latentJSON, "--kv-cache-memory-bytes", "100"}, false, "no block"},
		{[]string{"m", "--sim-geometry", latentJSON, "--max-model-len", "0"}, false, "max-model-len"},
		{[]string{"m", "--sim-geometry", latentJSON, "--sim-kv-layout", "BLHNC"}, false, "BLHNC"},
		{[]string{"m", "--sim-geometry", latentJSON, "--sim-ms-per-token", "-1"}, true, "milliseconds"},
		{kv(`{"kv_connector":"NixlConnector","kv_role":"kv_producer"}`), false, "NixlConnector"},
		{kv(`{"kv_connector":"AgentConnector","kv_role":"kv_both"}`), false, "kv_both"},
		{kv(`{"kv_connector":"AgentConnector","kv_role":"kv_producer"}`), false, "no socket"},
		{kv(`{"kv_connector":"AgentConnector","kv_rool":"kv_producer"}`), false, "kv_rool"},
		{kv(`[`), true, "not JSON"},
		{append(kv(agent), "--sim-fault", "flood"), false, "flood"},
		{append(kv(agent), "--sim-fault", "copies-off:rank=1"), false, "no arguments"},
		{append(kv(agent), "--sim-fault", "flip:rank=0,layer=0"), false, "lacks row="},
		{append(kv(agent), "--sim-fault", "flip:rank=0,layer=0,row=x"), false, `"x" is not a number`},
		{append(kv(agent), "--sim-fault", "flip:rank=0,layer=0,row=1"), false, "prefill side"},
		{append(kv(agent), "--sim-fault", "copies-off"), false, "prefill side"},
		{append(kv(agent), "--sim-fault", "interleave-off"), false, "prefill side"},
		{append(kv(agent), "--sim-fault", "all-to-rank-0"), false, "prefill side"},
		{append(kv(producer), "--sim-fault", "first-writer-ends"), false, "decode side"},
		{append(kv(producer), "--sim-fault", "delay-writer:rank=1,ms=5"), false, "strikes none"},
		{append(kv(producer), "--sim-fault", "kill-writer:rank=0,layer=3"), false, "strikes none"},
		{[]string{"m", "--sim-geometry", latentJSON, "--sim-fault", "kill-writer:rank=0,layer=0"}, false, "no agent"},
		{[]string{"m", "--sim-geometry", latentJSON, "--sim-fault", "copies-off"}, false, "no agent"},
		{[]string{"m", "--sim-geometry", latentJSON, "--sim-fault", "flip:rank=1,layer=0,row=1"}, false, "rank 1, layer 0 of 1 ranks"},
		{[]string{"m", "--sim-geometry", latentJSON, "--sim-fault", "flip:rank=0,layer=3,row=1"}, false, "layer 3 of 1 ranks, 3 layers"},
	} {
		_, err := Parse(tc.args)
		var wrong *UsageError
		if err == nil || errors.As(err, &wrong) != tc.usage || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q, usage %t", tc.args, err, tc.want, tc.usage)
		}
	}
}

// The offline answer is that of a running instance.
func TestAnswerText(t *testing.T) {
	args := []string{"m", "--sim-geometry", latentJSON}
	c, o, err := ParseAnswer(append(slices.Clone(args), "--max-tokens=5", "--chat"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := AnswerText(c, o, "a b\n")
	if err != nil {
		t.Fatal(err)
	}
	r := post(t.Context(), t, start(t, args[1:]...), "/v1/chat/completions", `{"messages":[{"role":"user","content":"a b"}],"max_tokens":5}`)
	if len(r.Choices) != 1 || r.Choices[0].Message.Content != got {
		t.Errorf("%q offline, %s", got, r.raw)
	}
	if _, _, err := ParseAnswer(append(args, "--max-tokens", "0")); err == nil {
		t.Error("no tokens were asked for, and none refused")
	}
	if _, err := AnswerText(c, AnswerOptions{MaxTokens: 1}, " \n"); err == nil {
		t.Error("an empty prompt was answered")
	}
}
