package engine_test

import (
	"testing"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// TestSide holds what a launch means to the rules where it does not say it in so many
// words.
func TestSide(t *testing.T) {
	speculation := func(s kvlayout.Side) any { return s.Speculation }
	conv := func(s kvlayout.Side) any { return s.ConvLayout }
	for name, c := range map[string]struct {
		text string
		of   func(kvlayout.Side) any
		want any
	}{
		"a method":                    {moriio("") + `--speculative-config '{"method":"eagle","model":"d"}'`, speculation, "eagle"},
		"a draft model":               {moriio("") + `--speculative-config '{"model":"org/small"}'`, speculation, "draft_model"},
		"a draft model of SGLang's":   {"python3 -m sglang.launch_server --model-path m --speculative-draft-model-path d", speculation, ""},
		"a method by the model":       {moriio("") + `--spec-model org/Big-DSpark`, speculation, "dspark"},
		"no speculation":              {moriio(""), speculation, ""},
		"tokens of a draft":           {moriio("") + "--spec-method mtp --spec-tokens 3", func(s kvlayout.Side) any { return s.DraftTokens }, 3},
		"convolutions, unset":         {moriio(""), conv, "SD"},
		"convolutions":                {"VLLM_SSM_CONV_STATE_LAYOUT=DS " + moriio(""), conv, "DS"},
		"convolutions, twice":         {"docker run -e VLLM_SSM_CONV_STATE_LAYOUT=DS -e VLLM_SSM_CONV_STATE_LAYOUT=SD vllm/vllm-openai-rocm:v0.33.0 --model m", conv, "SD"},
		"convolutions of SGLang":      {"python3 -m sglang.launch_server --model-path m", conv, ""},
		"states at the ends":          {moriio("") + "--mamba_cache_mode=align", func(s kvlayout.Side) any { return s.MambaAlign }, true},
		"hosts of a group":            {moriio("") + "--nnodes 2 --node-rank 0", func(s kvlayout.Side) any { return s.Nodes }, 2},
		"all to all":                  {moriio("") + "--all2all-backend mori", func(s kvlayout.Side) any { return s.AllToAll }, "mori"},
		"a form of SGLang's cache":    {"python3 -m sglang.launch_server --model-path m --dsv4-attn-backend trtllm", func(s kvlayout.Side) any { return s.KVFormat }, "trtllm"},
		"chunks as a whole":           {"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=0 vllm serve meta-llama/Llama-4-Scout-17B-16E-Instruct", func(s kvlayout.Side) any { return s.NoHybrid }, true},
		"chunks, of a model without":  {"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE=0 vllm serve Qwen/Qwen3-32B", func(s kvlayout.Side) any { return s.NoHybrid }, false},
		"SGLang's states":             {"python3 -m sglang.launch_server --model-path m --max-mamba-cache-size 30", func(s kvlayout.Side) any { return s.States }, 30},
		"SGLang's share of states":    {"python3 -m sglang.launch_server --model-path m --mamba-full-memory-ratio 1.5", func(s kvlayout.Side) any { return s.StateRatio }, 1.5},
		"SGLang's windows as a whole": {"python3 -m sglang.launch_server --model-path m --disable-hybrid-swa-memory", func(s kvlayout.Side) any { return s.NoHybrid }, true},
	} {
		in, _ := read(t, c.text)
		if got := c.of(in.Side()); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestConvLayoutFromElsewhere holds that a variable whose value is not known decides
// nothing.
func TestConvLayoutFromElsewhere(t *testing.T) {
	for _, e := range []engine.EnvVar{{Name: engine.ConvLayout, Field: "spec.nodeName"}, {Name: engine.ConvLayout, Value: "$(LAYOUT)"}} {
		in := engine.Instance{Engine: kvlayout.VLLM, Env: []engine.EnvVar{{Name: engine.ConvLayout, Value: "SD"}, e}}
		if got := in.Side().ConvLayout; got != "" {
			t.Errorf("%+v: %q", e, got)
		}
	}
}

// TestSimulatorHasNoEnginesFacts holds that arguments of an engine that is not there
// mean nothing.
func TestSimulatorHasNoEnginesFacts(t *testing.T) {
	in := engine.Instance{
		Engine: kvlayout.Simulator, Layout: kvlayout.Layout{TP: 2}, BlockSize: 16, Attention: "ROCM_ATTN", Experts: -1, Version: "0.32.0",
		Speculation: engine.Speculation{Method: "mtp"},
	}
	if got, want := in.Side(), (kvlayout.Side{Layout: kvlayout.Layout{TP: 2}, BlockSize: 16}); got != want {
		t.Errorf("%+v", got)
	}
}

// TestStateEnv holds that the operator sets the order of convolutions wherever a model
// may have some.
func TestStateEnv(t *testing.T) {
	for _, c := range []struct {
		kind  kvlayout.Engine
		model string
		want  int
	}{
		{kvlayout.VLLM, "moonshotai/Kimi-Linear-48B-A3B-Instruct", 1},
		{kvlayout.VLLM, "/models/anything", 1},
		{kvlayout.VLLM, "deepseek-ai/DeepSeek-R1", 0},
		{kvlayout.Simulator, "moonshotai/Kimi-Linear-48B-A3B-Instruct", 0},
	} {
		if got := engine.StateEnv(c.kind, c.model); len(got) != c.want {
			t.Errorf("%s, %s: %v", c.kind, c.model, got)
		}
	}
}
