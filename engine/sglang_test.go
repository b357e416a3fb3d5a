package engine_test

import (
	"strings"
	"testing"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

func TestOwnedSGLang(t *testing.T) {
	for args, fix := range map[string]string{
		"--tp 8":                               "spec.decode.layout.tp",
		"--tp-size=8":                          "spec.decode.layout.tp",
		"--tensor-parallel 8":                  "spec.decode.layout.tp",
		"--dcp-size 2":                         "spec.decode.layout.dcp",
		"--data-parallel-size 2":               "spec.decode.layout.dp",
		"--enable-dp-attention":                "spec.decode.layout.dp",
		"--attn-dp-size 2":                     "spec.decode.layout.dp",
		"--page-size 64":                       "spec.engine.blockSize",
		"--kv-cache-dtype fp8_e4m3":            "spec.engine.kvCacheType",
		"--context-length 4096":                "spec.model.maxLength",
		"--model m":                            "spec.model.name",
		"--disaggregation-mode prefill":        "spec.transfer",
		"--disaggregation-transfer mori":       "spec.transfer",
		"--disaggregation-bootstrap-port 9000": "chooses the ports",
		"--nccl-init-addr a:1":                 "chooses the ports",
		"--nnodes 2":                           "places the pods",
		"--load-balance-method round_robin":    "the router chooses",
		"--enable-pd-role-switch":              "the role of a pod",
		"--config x.yaml":                      "can't be checked",
	} {
		owned := engine.Owned(kvlayout.SGLang, strings.Fields(args), nil)
		if len(owned) != 1 || !strings.Contains(owned[0].Fix(kvlayout.Decode), fix) {
			t.Errorf("%s: %+v, want a fix with %q", args, owned, fix)
		}
	}
	free := "--ep 8 --mem-fraction-static 0.8 --attention-backend aiter --trust-remote-code --tp_size 4 --disaggregation-ib-device rdma0 --chunked-prefill-size -1"
	if owned := engine.Owned(kvlayout.SGLang, strings.Fields(free), []string{"SGLANG_USE_AITER", "VLLM_PORT"}); len(owned) > 0 {
		t.Errorf("a false refusal: %+v", owned)
	}
	if owned := engine.Owned(kvlayout.SGLang, nil, []string{"MORI_NODE_ID", "SGLANG_RUST_SERVER", "HOST_IP"}); len(owned) != 3 {
		t.Errorf("variables: %+v", owned)
	}
}

func TestParseSGLang(t *testing.T) {
	flags, problems := engine.ParseArgsOf(kvlayout.SGLang, strings.Fields("--tp 8 --ep=4 --dp 2 --enable-dp-attention --a.b 1 --no-dcp-replicate-q-proj --page-size"))
	if flags.Value("tp-size") != "8" || flags.Value("ep-size") != "4" || flags.Value("dp-size") != "2" || !flags.Switch("enable-dp-attention") {
		t.Errorf("%+v", flags.List)
	}
	if flags.Value("a.b") != "1" || flags.Switch("dcp-replicate-q-proj") {
		t.Errorf("%+v", flags.List)
	}
	if len(problems) != 1 || !strings.Contains(problems[0].Text, "--page-size needs a value") {
		t.Errorf("problems %v", problems)
	}
	for _, args := range []string{"--no-trust-remote-code", "--tp_size 8", "--disaggregation 1"} {
		flags, _ := engine.ParseArgsOf(kvlayout.SGLang, strings.Fields(args))
		if flags.List[0].Known {
			t.Errorf("%s is no flag of SGLang: %+v", args, flags.List)
		}
	}
}

func TestVersionOfSGLang(t *testing.T) {
	for image, want := range map[string]string{
		"lmsysorg/sglang:v0.5.22-rocm700-mi35x":              "0.5.22",
		"rocm/sgl-dev:v0.5.13.post1-ubuntu24.04-rocm7.14":    "0.5.13",
		"rocm/sgl-dev:rocm7.0_sglang_0.5.9_20260316":         "0.5.9",
		"lmsysorg/sglang-rocm:rocm720-mi35x-k3-20260727":     "",
		"lmsysorg/sglang:v0.5.23rc1":                         "",
		"rocm/vllm:rocm7.0.0_ubuntu_22.04_py3.12_vllm_0.8.5": "",
		"example/mirror/sglang-rocm:v0.5.9":                  "0.5.9",
		"registry.example/dynamo/sglang-runtime:0.8.1":       "",
		"lmsysorg/sglang-router:v0.3.2":                      "",
		"example/server:2.0.1":                               "",
	} {
		if got := engine.VersionOf(kvlayout.SGLang, image); got != want {
			t.Errorf("%s: %q, want %q", image, got, want)
		}
	}
}
