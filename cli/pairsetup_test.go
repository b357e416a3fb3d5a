package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
)

// seedPair are the command lines that the manifest testdata/seed.yaml stands for.
func seedPair() []string {
	const r1 = "deepseek-ai/DeepSeek-R1 --block-size 64 -tp 4"
	return []string{"--prefill-cmd", vllm("kv_producer", r1), "--decode-cmd", vllm("kv_consumer", r1), "--engine-version", "0.33.0"}
}

// TestCommandLinesAreAdvised holds that advise ranks for command lines what it ranks for
// the pool that they are.
func TestCommandLinesAreAdvised(t *testing.T) {
	flags := []string{"--load", "in=8192,out=4096,concurrency=256", "--blocks", "22616", "-o", "json"}
	var of [2]Advice
	for i, args := range [][]string{{"-f", "testdata/seed.yaml"}, seedPair()} {
		got := run(t, "", slices.Concat([]string{"advise"}, args, flags)...)
		if err := json.Unmarshal([]byte(got.out), &of[i]); err != nil || got.code != 0 {
			t.Fatalf("exit status %d, %v, %v: %s", got.code, got.err, err, got.out)
		}
	}
	pool, pair := of[0], of[1]
	if pool.Now.Tokens != pair.Now.Tokens || pair.Now.Holds || len(pool.Candidates) != len(pair.Candidates) {
		t.Fatalf("now %+v and %+v, %d and %d candidates", pool.Now, pair.Now, len(pool.Candidates), len(pair.Candidates))
	}
	for i, c := range pair.Candidates {
		p := pool.Candidates[i]
		if c.Layout != p.Layout || c.Tokens != p.Tokens || c.Requests != p.Requests || c.PromptBytes != p.PromptBytes || c.Mover != p.Mover || c.Weights != p.Weights {
			t.Errorf("rank %d: %+v, of the pool %+v", i+1, c, p)
		}
	}
}

// TestCommandLinesArePlanned holds the figures of a pair, those of check included.
func TestCommandLinesArePlanned(t *testing.T) {
	got := run(t, "", slices.Concat([]string{"plan", "--blocks", "22616", "-o", "json"}, seedPair())...)
	var p Plan
	if err := json.Unmarshal([]byte(got.out), &p); err != nil || got.code != 0 {
		t.Fatalf("exit status %d, %v, %v: %s", got.code, got.err, err, got.out)
	}
	if p.Decode.Capacity == nil || p.Decode.Capacity.Tokens != 22616*64 || p.Decode.GPUs != 4 || p.Mover != string(kvlayout.MoverEngine) || len(p.Decode.Pods) > 0 {
		t.Errorf("%+v", p.Decode)
	}
	var sum int64
	for _, w := range p.Transfer.Writers {
		sum += w.Bytes
	}
	text := run(t, "", slices.Concat([]string{"check"}, seedPair())...)
	if sum != p.Transfer.Bytes || sum == 0 || !strings.Contains(text.out, "a new prompt of 1,000 tokens writes "+grouped(sum)+" bytes") {
		t.Errorf("%d bytes, flows of %d: %s", p.Transfer.Bytes, sum, text.out)
	}
	for _, o := range []string{"text", "svg"} {
		if drawn := run(t, "", slices.Concat([]string{"plan", "-o", o}, seedPair())...); drawn.code != 0 || !strings.Contains(drawn.out, "TP4") {
			t.Errorf("%s: exit status %d: %v", o, drawn.code, drawn.err)
		}
	}
}

// TestCommandLinesHold holds that check says what a decode instance of known blocks holds.
func TestCommandLinesHold(t *testing.T) {
	args := seedPair()
	args[3] += " --num-gpu-blocks-override 22616"
	if held := run(t, "", append([]string{"check"}, args...)...); !strings.Contains(held.out, "a decode instance holds "+grouped(int64(22616*64))+" tokens") {
		t.Errorf("%s", held.out)
	}
}

// TestCommandLinesAndNodes holds that the GPUs of command lines are counted.
func TestCommandLinesAndNodes(t *testing.T) {
	const qwen = "Qwen/Qwen3-32B --block-size 16 "
	for _, c := range []struct {
		decode     string
		pods, gpus int
		role       string
		more       []string
	}{
		{decode: "-tp 4", pods: 1, gpus: 4},
		{decode: "-tp 4 -dp 4 -dpl 2", pods: 2, gpus: 8},
		{decode: "-tp 16 --nnodes 2 --node-rank 0 --master-addr x", pods: 2, gpus: 8},
	} {
		args := []string{"check", "-o", "json", "--nodes", "testdata/nodes.yaml", "--prefill-cmd", vllm("kv_producer", qwen+"-tp 4"), "--decode-cmd", vllm("kv_consumer", qwen+c.decode)}
		got := run(t, "", args...)
		var r Report
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Pools) != 1 || r.Pools[0].GPUs == nil {
			t.Errorf("%s: %v: %s", c.decode, got.err, got.out)
			continue
		}
		if fit := r.Pools[0].GPUs.Fit.Decode; fit.Pods != c.pods || fit.GPUs != c.gpus {
			t.Errorf("%s: %d pods of %d GPUs", c.decode, fit.Pods, fit.GPUs)
		}
	}
}

// TestConfigOfCommandLines holds that a config.json says what the catalog doesn't know.
func TestConfigOfCommandLines(t *testing.T) {
	prefill, decode := vllm("kv_producer", "a/b --block-size 64 -tp 4"), vllm("kv_consumer", "a/b --block-size 64 -tp 4")
	without, with := checkPair(t, prefill, decode), checkPair(t, prefill, decode, "--config", "testdata/mla.json")
	unknown := func(v Verdict) bool {
		return slices.ContainsFunc(v.Problems, func(p Problem) bool { return p.Rule == "model-geometry" })
	}
	if !unknown(without) || unknown(with) || with.Transfer == nil || with.Transfer.PromptBytes == 0 {
		t.Errorf("without: %+v\nwith: %+v", without, with)
	}
	got := run(t, "", "import", "--prefill-cmd", prefill, "--decode-cmd", decode, "--config", "testdata/mla.json", "--image", "vllm/vllm-openai-rocm:v0.33.0")
	if got.code != 0 || !strings.Contains(got.out, "kind: MLA") {
		t.Errorf("exit status %d: %s", got.code, got.out)
	}
}

// TestOtherBackend holds that the Agent mover is said to move bytes in its own way.
func TestOtherBackend(t *testing.T) {
	xgmi := func(role string) string {
		return `vllm serve deepseek-ai/DeepSeek-R1 --block-size 64 -tp 4 --kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"` + role +
			`","kv_connector_extra_config":{"http_port":8000,"backend":"xgmi"}}'`
	}
	v := checkPair(t, xgmi("kv_producer"), xgmi("kv_consumer"), "--engine-version", "0.33.0", "--mover", "Agent")
	if n := len(v.Notes); !v.Admitted || n != 1 || !strings.Contains(v.Notes[0].Text, "XGMI") || v.Transfer.Backend != "" {
		t.Errorf("%+v", v)
	}
}

func TestLayoutLabels(t *testing.T) {
	for _, c := range []struct {
		label layoutLabel
		want  string
	}{
		{layoutLabel{}, "TP1"},
		{layoutLabel{Layout: kvlayout.Layout{TP: 8, PP: 2, DP: 4, DPLocal: 2}, ep: -1}, "TP8 PP2 DP4 DPL2 EP"},
		{layoutLabel{Layout: kvlayout.Layout{TP: 8, DP: 4, DPLocal: 4, DCP: 2}, ep: 8, pcp: 2}, "TP8 DP4 PCP2 DCP2 I1 EP8"},
		{layoutLabel{Layout: kvlayout.Layout{DCP: 4, Interleave: 64}, unread: map[string]bool{"tp": true, "interleave": true}}, "TP? DCP4 I?"},
	} {
		if got := c.label.String(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestImportFails holds the exit status of an import that does not mean the same.
func TestImportFails(t *testing.T) {
	const qwen = "Qwen/Qwen3-32B --block-size 16 "
	for _, c := range []struct {
		name, prefill, decode string
		code                  int
		want                  string
	}{
		{"the same", "-tp 4", "-tp 4", 0, "kind: PDPool"},
		{"stages", "-tp 4 -pp 2", "-tp 4", 1, "pools have no such degree"},
		{"refused", "-tp 4", "-tp 4 --kv-cache-dtype fp8", 1, "check refuses it (kv-type"},
		{"a type without a name", "-tp 4 --kv-cache-dtype fp8_e5m2", "-tp 4 --kv-cache-dtype fp8_e5m2", 1, "the pair has the KV cache type fp8_e5m2, and pools have no name for it"},
		{"a type without a name, of one side", "-tp 4", "-tp 4 --kv-cache-dtype fp8_e5m2", 1, "decode has the KV cache type fp8_e5m2"},
		{"not read", "-tp $TP", "-tp 4", 2, "not read: $TP"},
	} {
		got := run(t, "", "import", "--prefill-cmd", vllm("kv_producer", qwen+c.prefill), "--decode-cmd", vllm("kv_consumer", qwen+c.decode), "--image", "vllm/vllm-openai-rocm:v0.33.0")
		if got.code != c.code || !strings.Contains(got.out, c.want) || !strings.Contains(got.out, "\nspec:\n") {
			t.Errorf("%s: exit status %d: %s", c.name, got.code, got.out)
		}
	}
}

// TestFactors holds that no factor is rounded up to what does not fit.
func TestFactors(t *testing.T) {
	for _, c := range []struct {
		a, b int64
		want string
	}{{248, 256, "0.9x"}, {256, 256, "1.0x"}, {1, 256, "<0.1x"}, {0, 256, "0.0x"}, {1000, 256, "3.9x"}, {26, 256, "0.1x"}, {5, 0, ""}} {
		if got := factor(c.a, c.b); got != c.want {
			t.Errorf("%d of %d: %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

func TestWeights(t *testing.T) {
	for name, want := range map[string]weights{
		"deepseek-ai/DeepSeek-R1": 671e9, "Qwen/Qwen3-235B-A22B-FP8": 235e9, "openai/gpt-oss-120b": 60e9, "meta-llama/Llama-3.3-70B-Instruct": 140e9,
		"deepseek-ai/DeepSeek-R1-Distill-Llama-70B": 140e9, "a/b": 0, "Qwen/Qwen3-0.6B": 1_200_000_000, "mistralai/Mixtral-8x7B-v0.1": 93_400_000_000,
	} {
		if got := weightsOf(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

// TestLengthByDefault holds that a geometry by hand needs no longest sequence, as all of
// its layers keep every token.
func TestLengthByDefault(t *testing.T) {
	c := caching{cache: kvlayout.Cache{Layout: kvlayout.Layout{TP: 1}, BlockTokens: 16}, blocks: 1000}
	m := kvlayout.ModelOf(kvlayout.Geometry{Kind: kvlayout.GQA, Layers: 2, AttentionHeads: 8, KVHeads: 8, HeadValues: 64})
	if held, err := c.capacity(m); err != nil || held.Tokens != 16_000 {
		t.Errorf("%+v, %v", held, err)
	}
	m.Groups[0].Kind, m.Groups[0].Attention.Window = kvlayout.SlidingWindow, 128
	if held, err := c.capacity(m); err == nil || !strings.Contains(err.Error(), "model.maxLength") {
		t.Errorf("%+v, %v", held, err)
	}
}
