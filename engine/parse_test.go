package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

func TestParseSpellings(t *testing.T) {
	for _, tc := range []struct {
		args string // split at spaces
		name string
		want string
	}{
		{"--tensor-parallel-size 8", "tensor-parallel-size", "8"},
		{"--tensor-parallel-size=8", "tensor-parallel-size", "8"},
		{"--tensor_parallel_size 8", "tensor-parallel-size", "8"},
		{"--tensor_parallel_size=8", "tensor-parallel-size", "8"},
		{"-tp 8", "tensor-parallel-size", "8"},
		{"-tp=8", "tensor-parallel-size", "8"},
		{"--tensor-parallel 8", "tensor-parallel-size", "8"},
		{"--tensor-parallel-size 8 -tp 4", "tensor-parallel-size", "4"},
		{"-pcp 2", "prefill-context-parallel-size", "2"},
		{"-dcp 2", "decode-context-parallel-size", "2"},
		{"-dpl 2 -dp 4", "data-parallel-size", "4"},
		{"-n2", "nnodes", "2"},
		{"--data-parallel-size 4 --data-parallel-size-local 2", "data-parallel-size", "4"},
		{"--max-model-len -1", "max-model-len", "-1"},
		{"--unknown_thing x y --port 1", "unknown-thing", "x"},
		{"--unknown-thing --port 1", "port", "1"},
		{"--block-size 16 --block_size=64", "block-size", "64"},
	} {
		flags, problems := engine.ParseArgs(strings.Fields(tc.args))
		if len(problems) > 0 {
			t.Errorf("%s: problems %v", tc.args, problems)
		}
		if got := flags.Value(tc.name); got != tc.want {
			t.Errorf("%s: --%s is %q, want %q", tc.args, tc.name, got, tc.want)
		}
	}
}

func TestParseSwitches(t *testing.T) {
	flags, problems := engine.ParseArgs([]string{"model", "--enable-prefix-caching", "--no-enable-chunked-prefill", "--headless", "rest"})
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	if !flags.Switch("enable-prefix-caching") || flags.Switch("enable-chunked-prefill") || !flags.Switch("headless") {
		t.Errorf("switches: %+v", flags.List)
	}
	if diff := cmp.Diff([]string{"model", "rest"}, flags.Positional); diff != "" {
		t.Error(diff)
	}
}

func TestParseProblems(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--tensor-parallel-size 4"}, `write "--tensor-parallel-size" and "4"`},
		{[]string{"--tensor-parallel-size", "four"}, "whole number"},
		{[]string{"--tensor-parallel-size"}, "needs a value"},
		{[]string{"--headless=true"}, "takes no value"},
		{[]string{"--kv-transfer-config", "{"}, "not JSON"},
		{[]string{"--port.x", "1"}, "takes no keys"},
	} {
		_, problems := engine.ParseArgs(tc.args)
		if len(problems) != 1 || !strings.Contains(problems[0].Text, tc.want) {
			t.Errorf("%q: problems %v, want one with %q", tc.args, problems, tc.want)
		}
	}
	if _, problems := engine.ParseArgs([]string{"--chat-template", "- a b", "-O3", "--x", "-foo bar"}); len(problems) > 0 {
		t.Errorf("problems without a cause: %v", problems)
	}
}

func TestJSONForms(t *testing.T) {
	for _, args := range [][]string{
		{"--kv-transfer-config", `{"kv_connector":"AgentConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"socket":"/s"}}`},
		{"--kv_transfer_config.kv_connector=AgentConnector", "--kv-transfer-config.kv_role", "kv_consumer", "--kv-transfer-config.kv_connector_extra_config.socket", "/s"},
		{"--kv-transfer-config", `{"kv_role":"kv_producer","kv_connector":"AgentConnector"}`, "--kv-transfer-config.kv_role=kv_consumer", "--kv-transfer-config.kv_connector_extra_config", `{"socket":"/s"}`},
	} {
		flags, problems := engine.ParseArgs(args)
		if len(problems) > 0 {
			t.Errorf("%q: %v", args, problems)
		}
		raw, err := flags.JSON("kv-transfer-config")
		if err != nil {
			t.Fatal(err)
		}
		c, err := engine.ParseTransferConfig(raw)
		if err != nil {
			t.Fatal(err)
		}
		if c.Connector != engine.AgentConnector || c.Role != engine.Consumer || c.Socket() != "/s" {
			t.Errorf("%q gives %+v", args, c)
		}
	}
	flags, _ := engine.ParseArgs([]string{"--kv-transfer-config", "[]"})
	if _, err := flags.JSON("kv-transfer-config"); err == nil {
		t.Error("a list was taken for an object")
	}
	if raw, err := (engine.Flags{}).JSON("kv-transfer-config"); raw != nil || err != nil {
		t.Errorf("nothing typed: %s, %v", raw, err)
	}
	for _, key := range []string{"kv_connectr", "kv_buffer_device"} {
		if _, err := engine.ParseTransferConfig([]byte(`{"` + key + `":"x"}`)); err == nil {
			t.Errorf("%s was accepted", key)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"4096": 4096, "8k": 8000, "8K": 8192, "1.5k": 1500, "2G": 2 << 30, "25g": 25e9, "1T": 1 << 40,
	} {
		flags, _ := engine.ParseArgs([]string{"--kv-cache-memory-bytes", in})
		if got, err := flags.Size("kv-cache-memory-bytes", 0); err != nil || got != want {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"1.5K", "x", "G", "99999999999G", "nank", "infk", "9e30k"} {
		flags, _ := engine.ParseArgs([]string{"--kv-cache-memory-bytes=" + in})
		if got, err := flags.Size("kv-cache-memory-bytes", 0); err == nil {
			t.Errorf("%s: %d", in, got)
		}
	}
}

// The forms of cases A22 and A23, and those of the rule args-owned.
func TestOwned(t *testing.T) {
	for _, tc := range []struct {
		args []string
		env  []string
		fix  string
	}{
		{args: []string{"-tp", "4"}, fix: "spec.decode.layout.tp"},
		{args: []string{"--tensor_parallel_size=4"}, fix: "spec.decode.layout.tp"},
		{args: []string{"--tensor-parallel-size 4"}, fix: "spec.decode.layout.tp"},
		{args: []string{"--tensor-par", "4"}, fix: "spec.decode.layout.tp"},
		{args: []string{"-dcp=4"}, fix: "spec.decode.layout.dcp"},
		{args: []string{"-pcp", "2"}, fix: "remove it"},
		{args: []string{"--dcp-kv-cache-interleave-size", "64"}, fix: "spec.decode.layout.interleave"},
		{args: []string{"--block_size=64"}, fix: "spec.engine.blockSize"},
		{args: []string{"--kv-transfer-config", `{"kv_role":"kv_producer","kv_rank":0}`}, fix: "spec.transfer"},
		{args: []string{"--kv_transfer_config.kv_role", "kv_producer"}, fix: "spec.transfer"},
		{args: []string{"--port", "8000"}, fix: "chooses the ports"},
		{args: []string{"--served-model-name", "a", "b"}, fix: "spec.model.servedName"},
		{args: []string{"--config", "x.yaml"}, fix: "can't be checked"},
		{args: []string{"-n2"}, fix: "one pod"},
		{args: []string{"--headless"}, fix: "serves HTTP"},
		{env: []string{"VLLM_PORT"}, fix: "chooses the ports"},
		{env: []string{"VLLM_MORIIO_TRANSFER_TIMEOUT_S"}, fix: "spec.transfer.receiveAbortTimeoutSeconds"},
		{env: []string{"PDPOOL_AGENT_CONFIG"}, fix: "PDPOOL_"},
	} {
		owned := engine.Owned(kvlayout.VLLM, tc.args, tc.env)
		if len(owned) != 1 || owned[0].Env != (tc.env != nil) || !strings.Contains(owned[0].Fix(kvlayout.Decode), tc.fix) {
			t.Errorf("%q %q: %+v, want a fix with %q", tc.args, tc.env, owned, tc.fix)
		}
	}
	if both := engine.Owned(kvlayout.VLLM, []string{"x", "-tp", "4"}, nil)[0]; both.Fix("") != "use spec.prefill.layout.tp and spec.decode.layout.tp instead" || both.Index != 1 || both.Spelled != "-tp" {
		t.Errorf("%+v: %s", both, both.Fix(""))
	}
	free := []string{
		"--enable-expert-parallel", "--gpu-memory-utilization=0.9", "--attention-backend", "ROCM_AITER_MLA", "-O3",
		"--model-impl", "auto", "--kv-cache-dtype-skip-layers", "1", "--config-format", "hf", "--max-num-seqs", "8", "--sim-fault", "copies-off",
	}
	if owned := engine.Owned(kvlayout.VLLM, free, []string{"HIP_VISIBLE_DEVICES", "VLLM_KV_CACHE_LAYOUT"}); len(owned) > 0 {
		t.Errorf("a false refusal: %+v", owned)
	}
}

func TestVersionOf(t *testing.T) {
	for image, want := range map[string]string{
		"vllm/vllm-openai-rocm:v0.33.0":                        "0.33.0",
		"vllm/vllm-openai:v0.29.0@sha256:0123":                 "0.29.0",
		"registry.example:5000/vllm/vllm-openai-rocm:0.33.0":   "0.33.0",
		"rocm/vllm:rocm7.0.0_ubuntu_22.04_py3.12_vllm_0.33.0":  "0.33.0",
		"rocm/vllm:rocm6.4.1_vllm_0.10.1_20250909":             "0.10.1",
		"rocm/vllm-dev:v0.33.0-rocm710":                        "0.33.0",
		"vllm/vllm-openai:v0.33.0.post1":                       "0.33.0",
		"vllm/vllm-openai:v0.33.0rc1":                          "",
		"vllm/vllm-openai:v0.33.0-rc1":                         "",
		"vllm/vllm-openai:v0.34.0.dev12":                       "",
		"vllm/vllm-openai:nightly":                             "",
		"vllm/vllm-openai:nightly-0123456789abcdef":            "",
		"vllm/vllm-openai":                                     "",
		"registry.example:5000/vllm-openai":                    "",
		"vllm/vllm-openai@sha256:aa":                           "",
		"rocm/vllm:rocm7.0_mi300_ubuntu_22.04_vllm_0.33":       "",
		"example/vllm-rocm:v0.33.0":                            "0.33.0",
		"registry.example/llm-d/llm-d-rocm:v0.5.0":             "", // the distribution's own releases
		"registry.example/llm-d/llm-d-rocm:v0.5.0_vllm_0.33.0": "0.33.0",
		"registry.example/ai-dynamo/vllm-runtime:0.9.0":        "",
		"lmcache/vllm-openai:v0.3.9":                           "",
		"example/inference:1.4.2":                              "",
		"rocm/vllm-router:0.1.9":                               "",
		"vllm/vllm-omni:v0.14.0":                               "",
		"":                                                     "",
	} {
		if got := engine.VersionOf(kvlayout.VLLM, image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}

func FuzzParseArgs(f *testing.F) {
	for _, seed := range []string{
		"--tensor-parallel-size\x008", "-tp=4", "--kv-transfer-config\x00{\"a\":1}", "--kv-transfer-config.a.b\x00[1]",
		"--no-headless", "-n2\x00-", "--\x00-=\x00--=x", "--a b", "-O3", "--kv-transfer-config..\x00x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\x00")
		flags, problems := engine.ParseArgs(args)
		words := len(flags.Positional)
		for _, g := range flags.List {
			if g.Index < 0 || g.Index >= len(args) || !strings.HasPrefix(args[g.Index], "-") {
				t.Fatalf("flag %+v is not at its index in %q", g, args)
			}
			words++
			if !strings.HasPrefix(args[g.Index], g.Spelled+"=") && args[g.Index] == g.Spelled {
				words += len(g.Values)
			}
			_, _ = flags.JSON(g.Name) // must not panic
		}
		if words != len(args) {
			t.Fatalf("%d of %d words of %q are accounted for", words, len(args), args)
		}
		for _, p := range problems {
			if p.Index < 0 || p.Index >= len(args) || p.Text == "" {
				t.Fatalf("problem %+v of %q", p, args)
			}
		}
		engine.Owned(kvlayout.VLLM, args, args)
	})
}

func FuzzVersionOf(f *testing.F) {
	f.Add("rocm/vllm:rocm7.0.0_vllm_0.33.0")
	f.Add("a:v1.2.3@x")
	f.Fuzz(func(t *testing.T, image string) {
		if v := engine.VersionOf(kvlayout.VLLM, image); v != "" && strings.Count(v, ".") != 2 {
			t.Fatalf("%q: version %q", image, v)
		}
	})
}
