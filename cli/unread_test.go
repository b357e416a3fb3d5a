package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/engine"
)

// TestUnread holds that a pair of which something could not be read has no verdict, that
// its layout says so, and that no rule speaks which depends on it.
func TestUnread(t *testing.T) {
	const r1 = "deepseek-ai/DeepSeek-R1 --block-size 64 "
	for _, c := range []struct {
		name, prefill, decode string
		layout                string
		rules                 []string // of all problems
		flags                 []string
	}{
		{name: "no number", prefill: r1 + "-tp eight", decode: r1 + "-tp 4", layout: "TP? -> TP4"},
		{name: "no value", prefill: r1 + "-tp 4", decode: r1 + "-dcp 2 --tensor-parallel-size", layout: "TP4 -> TP? DCP2 I1"},
		{name: "a variable", prefill: r1 + "-tp 4", decode: r1 + "-tp $TP -dcp $DCP", layout: "TP4 -> TP? DCP?"},
		{name: "unlike block sizes whatever tp is", prefill: "Qwen/Qwen3-32B --block-size 16 -tp $TP", decode: "Qwen/Qwen3-32B --block-size 32 -tp 4", layout: "TP? -> TP4", rules: []string{"block-size"}, flags: []string{"--engine-version", "0.33.0"}},
		{name: "a model", prefill: r1 + "-tp 4", decode: "$MODEL --block-size 64 -tp 4", layout: "TP4 -> TP4"},
		{name: "dcp beyond tp, which is not known", prefill: r1 + "-tp 4", decode: r1 + "-tp $TP -dcp 3", layout: "TP4 -> TP? DCP3 I1", flags: []string{"--mover", "Agent"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			prefill, decode := vllm("kv_producer", c.prefill), vllm("kv_consumer", c.decode)
			args := append([]string{"check", "-o", "json", "--prefill-cmd", prefill, "--decode-cmd", decode}, c.flags...)
			got := run(t, "", args...)
			var r Report
			if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Pools) != 1 {
				t.Fatalf("%v (%v): %s", err, got.err, got.out)
			}
			v := r.Pools[0]
			if got.code != 2 || !v.Unread || v.Admitted || v.Layout != c.layout {
				t.Errorf("exit status %d, unread %v, admitted %v, layout %q, want %q", got.code, v.Unread, v.Admitted, v.Layout, c.layout)
			}
			var rules []string
			for _, p := range v.Problems {
				if refuses(p) || p.Rule == "model-geometry" {
					rules = append(rules, p.Rule)
				}
			}
			if !slices.Equal(rules, c.rules) {
				t.Errorf("refused by %v, want %v", rules, c.rules)
			}
			text := run(t, "", append([]string{"check", "--prefill-cmd", prefill, "--decode-cmd", decode}, c.flags...)...)
			if !strings.HasPrefix(text.out, "unread  ") || !strings.Contains(text.out, "0 admitted, 0 refused, 1 unread") {
				t.Errorf("%s", text.out)
			}
		})
	}
}

// TestStops holds that what ends an engine at its start refuses the pair, at its place.
func TestStops(t *testing.T) {
	const serve = "vllm serve deepseek-ai/DeepSeek-R1 -tp 4 "
	decode := vllm("kv_consumer", "deepseek-ai/DeepSeek-R1 -tp 4")
	for _, c := range []struct{ prefill, want string }{
		{serve, "no --kv-transfer-config"},
		{serve + `--kv-transfer-config '{"kv_connector":"MoRIIOConnector","kv_role":"kv_producer"}'`, "http_port is missing"},
		{vllm("kv_producer", "deepseek-ai/DeepSeek-R1 extra"), "belongs to no flag"},
	} {
		v := checkPair(t, c.prefill, decode, "--engine-version", "0.33.0")
		i := slices.IndexFunc(v.Problems, func(p Problem) bool { return p.Rule == "command-stops" })
		if v.Admitted || v.Unread || i < 0 {
			t.Errorf("%s: %+v", c.prefill, v)
			continue
		}
		if p := v.Problems[i]; !strings.Contains(p.Message, c.want) || p.Place.File != "--prefill-cmd" || !strings.HasPrefix(p.Field, "prefill.") {
			t.Errorf("%s: %+v", c.prefill, p)
		}
		if slices.ContainsFunc(v.Notes, func(n Note) bool { return n.Kind == engine.Stops }) {
			t.Errorf("told twice: %+v", v.Notes)
		}
	}
}

// TestLayoutsAlone holds that two command lines without a word of a transfer are judged
// by their layouts, and that one of them beside a whole one is not.
func TestLayoutsAlone(t *testing.T) {
	for _, engines := range []string{"vllm serve deepseek-ai/DeepSeek-R1 -tp 4", "sglang serve --model-path deepseek-ai/DeepSeek-R1 --tp-size 4"} {
		v := checkPair(t, engines, engines)
		if !v.Admitted || v.Unread || len(v.Problems) > 0 || len(v.Notes) != 2 {
			t.Errorf("%s: %+v", engines, v)
		}
	}
	v := checkPair(t, "vllm serve deepseek-ai/DeepSeek-R1 -tp 4", "vllm serve deepseek-ai/DeepSeek-R1 -tp 4 -dcp 4", "--engine-version", "0.33.0", "--mover", "Engine")
	if v.Admitted || v.Problems[0].Rule != "dcp-version" {
		t.Errorf("with mover Engine: %+v", v)
	}
}

// TestOneFactOnce holds that what a rule refuses is not told as what stops the engine too.
func TestOneFactOnce(t *testing.T) {
	const serve = "python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --disaggregation-transfer-backend mori --disaggregation-mode "
	v := checkPair(t, serve+"prefill --tp-size 8 --dp-size 16 --enable-dp-attention", serve+"decode --tp-size 8", "--engine", "SGLang")
	var rules []string
	for _, p := range v.Problems {
		if refuses(p) {
			rules = append(rules, p.Rule)
		}
	}
	if !slices.Equal(rules, []string{"degrees"}) {
		t.Errorf("%v: %+v", rules, v.Problems)
	}
}

// TestStrictSaysWhy holds that notes are counted, and that --strict names what fails.
func TestStrictSaysWhy(t *testing.T) {
	// A shell would take the quotes of this JSON away, which is a note.
	prefill := strings.ReplaceAll(vllm("kv_producer", "Qwen/Qwen3-32B -tp 4 --block-size 16"), "'", "")
	decode := vllm("kv_consumer", "Qwen/Qwen3-32B -tp 4 --block-size 16")
	args := []string{"check", "--prefill-cmd", prefill, "--decode-cmd", decode, "--engine-version", "0.33.0"}
	if got := run(t, "", args...); got.code != 0 || !strings.Contains(got.out, "0 warnings, 1 note\n") || strings.Contains(got.out, "--strict") {
		t.Errorf("exit status %d: %s", got.code, got.out)
	}
	if got := run(t, "", append(args, "--strict")...); got.code != 1 || !strings.HasSuffix(got.out, "--strict: not passed, for its 1 note\n") {
		t.Errorf("exit status %d: %s", got.code, got.out)
	}
	if got := run(t, "", append(args, "--quiet")...); got.code != 0 || got.out != "" {
		t.Errorf("exit status %d: %s", got.code, got.out)
	}
	if got := run(t, "", append(args, "--quiet", "--strict")...); got.code != 1 || !strings.HasPrefix(got.out, "admitted") {
		t.Errorf("exit status %d: %s", got.code, got.out)
	}
}

// TestFilesOfFlags holds that a file of flags is read that lies beside the text.
func TestFilesOfFlags(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "@" + path
	}
	write("flags.yaml", "tensor-parallel-size: 8\nblock-size: 64\n")
	prefill := write("prefill.sh", vllm("kv_producer", "deepseek-ai/DeepSeek-R1 --config flags.yaml"))
	decode := write("decode.sh", vllm("kv_consumer", "deepseek-ai/DeepSeek-R1 -tp 8 --block-size 64"))
	if v := checkPair(t, prefill, decode, "--engine-version", "0.33.0"); v.Unread || v.Layout != "TP8 -> TP8" {
		t.Errorf("%+v", v)
	}
	missing := write("missing.sh", vllm("kv_producer", "deepseek-ai/DeepSeek-R1 --config none.yaml"))
	if v := checkPair(t, missing, decode, "--engine-version", "0.33.0"); !v.Unread || v.Layout != "TP? -> TP8" {
		t.Errorf("%+v", v)
	}
}
