package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/kvlayout"
)

// vllm is a command line of a side; read makes the connector read.
func vllm(role, args string) string {
	return fmt.Sprintf(`VLLM_SSM_CONV_STATE_LAYOUT=DS vllm serve %s --kv-transfer-config `+
		`'{"kv_connector":"MoRIIOConnector","kv_role":"%s","kv_connector_extra_config":{"http_port":8000,"read_mode":%v}}'`,
		strings.TrimPrefix(args, "READ "), role, strings.HasPrefix(args, "READ "))
}

func checkPair(t *testing.T, prefill, decode string, flags ...string) Verdict {
	t.Helper()
	got := run(t, "", append([]string{"check", "-o", "json", "--prefill-cmd", prefill, "--decode-cmd", decode}, flags...)...)
	var r Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Pools) != 1 {
		t.Fatalf("%v (%v): %s", err, got.err, got.out)
	}
	return r.Pools[0]
}

// TestRefusedPairs holds that what command lines say reaches the rules: each pair is
// refused by one rule, and its place is the flag that the rule is about.
func TestRefusedPairs(t *testing.T) {
	const (
		r1   = "deepseek-ai/DeepSeek-R1 --block-size 64 "
		qwen = "Qwen/Qwen3-32B --block-size 16 "
	)
	for _, c := range []struct {
		rule, at        string // at is what begins where the problem is
		prefill, decode string
		flags           []string
	}{
		{rule: "dcp-mix", at: "-dcp 2", prefill: r1 + "-tp 4 -dcp 2", decode: r1 + "-tp 4 -dcp 4", flags: []string{"--mover", "Agent"}},
		{
			rule: "dcp-interleave", at: "--cp-kv-cache-interleave-size 16",
			prefill: r1 + "-tp 4 -dcp 4 --cp-kv-cache-interleave-size 16", decode: r1 + "-tp 4 -dcp 4 --cp-kv-cache-interleave-size 64",
		},
		{rule: "dcp-read", at: "--kv-transfer-config", prefill: "READ " + r1 + "-tp 4", decode: "READ " + r1 + "-tp 4 -dcp 4", flags: []string{"--mover", "Agent"}},
		{rule: "interleave-block", at: "--cp-kv-cache-interleave-size 48", prefill: r1 + "-tp 4", decode: r1 + "-tp 4 -dcp 4 --cp-kv-cache-interleave-size 48", flags: []string{"--mover", "Agent"}},
		{rule: "dcp-tp", at: "-dcp 3", prefill: r1 + "-tp 4", decode: r1 + "-tp 4 -dcp 3", flags: []string{"--mover", "Agent"}},
		{rule: "block-size", at: "--block-size 32", prefill: qwen + "-tp 4", decode: "Qwen/Qwen3-32B --block-size 32 -tp 4"},
		{rule: "kv-type", at: "--kv-cache-dtype fp8", prefill: qwen + "-tp 4", decode: qwen + "-tp 4 --kv-cache-dtype fp8"},
		{rule: "dcp-mla", at: "-dcp 2", prefill: qwen + "-tp 16", decode: qwen + "-tp 16 -dcp 2", flags: []string{"--mover", "Agent"}},
		{
			rule: "interleave-indexer", at: "--cp-kv-cache-interleave-size 1", prefill: "deepseek-ai/DeepSeek-V3.2 --block-size 64 -tp 8",
			decode: "deepseek-ai/DeepSeek-V3.2 --block-size 64 -tp 8 -dcp 8 --cp-kv-cache-interleave-size 1", flags: []string{"--mover", "Agent"},
		},
		{rule: "tp-write", at: "--kv-transfer-config", prefill: qwen + "-tp 4", decode: qwen + "-tp 8", flags: []string{"--engine-version", "0.32.0"}},
		{rule: "pp-moriio", at: "-pp 2", prefill: qwen + "-tp 4 -pp 2", decode: qwen + "-tp 4", flags: []string{"--engine-version", "0.33.0"}},
		{rule: "model-same", at: "vllm", prefill: qwen + "-tp 4", decode: "Qwen/Qwen3-14B --block-size 16 -tp 4"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			prefill, decode := vllm("kv_producer", c.prefill), vllm("kv_consumer", c.decode)
			v := checkPair(t, prefill, decode, c.flags...)
			i := slices.IndexFunc(v.Problems, func(p Problem) bool { return p.Rule == c.rule && refuses(p) })
			if v.Admitted || i < 0 {
				t.Fatalf("not refused by %s: %+v", c.rule, v.Problems)
			}
			at := v.Problems[i].Place
			text := map[string]string{"--prefill-cmd": prefill, "--decode-cmd": decode}[at.File]
			if at.Line != 1 || at.Column < 1 || at.Column > len(text) || !strings.HasPrefix(text[at.Column-1:], c.at) {
				t.Errorf("%s is at %v, want the place of %q", c.rule, at, c.at)
			}
		})
	}
}

// TestSGLangBackendsAreNotes holds that a way for bytes which the environment of one
// side chooses refuses nothing.
func TestSGLangBackendsAreNotes(t *testing.T) {
	const serve = "python3 -m sglang.launch_server --model-path a/b --disaggregation-transfer-backend mori --disaggregation-mode "
	v := checkPair(t, "MORI_DISABLE_AUTO_XGMI=0 "+serve+"prefill --tp 2", serve+"decode --tp 2", "--engine", "SGLang")
	if !v.Admitted || !slices.ContainsFunc(v.Notes, func(n Note) bool { return strings.Contains(n.Text, "prefill moves bytes by XGMI") }) {
		t.Errorf("%+v", v)
	}
}

// TestImportMeansTheSame holds that the manifest of two command lines has their
// layouts, blocks and types.
func TestImportMeansTheSame(t *testing.T) {
	for _, c := range []struct{ prefill, decode string }{
		{"a/b --block-size 64 -tp 4", "a/b --block-size 64 -tp 4 -dcp 4 --cp-kv-cache-interleave-size 64"},
		{"a/b -tp 2 -dp 4 -dpl 2 --kv-cache-dtype fp8", "a/b -tp 1 --kv-cache-dtype fp8 --max-model-len 4k"},
		{"a/b --block-size=32 --data-parallel-size 8 --enable-expert-parallel", "a/b --block-size 32 -tp 8 --kv-cache-memory-bytes 5G"},
	} {
		prefill, decode := vllm("kv_producer", c.prefill), vllm("kv_consumer", c.decode)
		pair, err := Options{}.readPair(commandFlags{prefill: prefill, decode: decode, engine: "vLLM"})
		if err != nil {
			t.Fatal(err)
		}
		got := run(t, "", "import", "--prefill-cmd", prefill, "--decode-cmd", decode, "--image", "example/vllm:v0.33.0")
		content := manifest.Read("pool.yaml", []byte(got.out))
		if got.code == 2 || len(content.Pools) != 1 || len(content.Pools[0].Faults) > 0 {
			t.Fatalf("%v: %+v: %s", got.err, content, got.out)
		}
		spec := content.Pools[0].Spec
		for _, side := range []struct {
			name string
			want kvlayout.Layout
			got  kvlayout.Layout
		}{
			{"prefill", pair.prefill.Layout, layoutOf(spec.Prefill.Layout)},
			{"decode", pair.decode.Layout, layoutOf(spec.Decode.Layout)},
		} {
			if side.got.Defaulted() != side.want.Defaulted() {
				t.Errorf("%s: %+v, want %+v", side.name, side.got, side.want)
			}
		}
		if int(spec.Engine.BlockSize) != pair.decode.BlockSize || spec.Engine.KVCacheType != "" && kvlayout.KVType(spec.Engine.KVCacheType) != pair.decode.KVType {
			t.Errorf("blocks of %d, type %q: %s", spec.Engine.BlockSize, spec.Engine.KVCacheType, got.out)
		}
	}
}

// TestFurtherPods holds that of an instance whose script starts a leading and further
// pods, the leading one counts.
func TestFurtherPods(t *testing.T) {
	pod := func(role string) string {
		c := " --kv-transfer-config '{\"kv_connector\":\"MoRIIOConnector\",\"kv_role\":\"" + role + "\",\"kv_connector_extra_config\":{\"http_port\":8000}}'"
		return "N=8\nif [ \"${INDEX:-0}\" -eq 0 ]; then\n  vllm serve deepseek-ai/DeepSeek-R1 --block-size 64 -tp 1 -dp 16 -dpl $N" + c +
			"\nelse\n  vllm serve deepseek-ai/DeepSeek-R1 --block-size 64 -tp 1 -dp 16 -dpl $N --headless" + c + "\nfi\n"
	}
	v := checkPair(t, pod("kv_producer"), pod("kv_consumer"), "--engine-version", "0.33.0")
	if v.Layout != "TP1 DP16 DPL8 -> TP1 DP16 DPL8" || v.Unread || v.Place.Line != 3 {
		t.Errorf("%+v", v)
	}
}
