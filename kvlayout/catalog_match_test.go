package kvlayout

import (
	"strings"
	"testing"
)

func TestLookupModel(t *testing.T) {
	for name, want := range map[string]string{
		"deepseek-ai/DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
		"DEEPSEEK-AI/deepseek-r1": "deepseek-ai/DeepSeek-R1",
		"/root/.cache/huggingface/hub/models--deepseek-ai--DeepSeek-R1/snapshots/8d7b": "deepseek-ai/DeepSeek-R1",
		"/hub/models--amd--DeepSeek-R1-0528-MXFP4/snapshots/8d7b/":                     "deepseek-ai/DeepSeek-R1-0528",
		"/models/DeepSeek-R1":                         "deepseek-ai/DeepSeek-R1",
		"/models/DeepSeek-R1/":                        "deepseek-ai/DeepSeek-R1",
		"./DeepSeek-R1":                               "deepseek-ai/DeepSeek-R1",
		"/models/deepseek-ai--DeepSeek-R1":            "deepseek-ai/DeepSeek-R1",
		"s3://bucket/DeepSeek-R1":                     "deepseek-ai/DeepSeek-R1",
		"/hub/models/Qwen/Qwen2___5-7B-Instruct":      "Qwen/Qwen2.5-7B-Instruct",
		"unsloth/Llama-3.3-70B-Instruct":              "meta-llama/Llama-3.3-70B-Instruct",
		"meta-llama/Meta-Llama-3.1-405B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-405B-Instruct",

		"amd/Llama-3.1-405B-Instruct-FP8-KV":              "meta-llama/Llama-3.1-405B-Instruct",
		"amd/Llama-3.1-70B-Instruct-FP8-KV":               "meta-llama/Llama-3.1-70B-Instruct",
		"amd/Llama-3.3-70B-Instruct-FP8-KV":               "meta-llama/Llama-3.3-70B-Instruct",
		"amd/Llama-3.3-70B-Instruct-MXFP4-Preview":        "meta-llama/Llama-3.3-70B-Instruct",
		"amd/Llama-3.1-8B-Instruct-WMXFP4FP8-AMP-KVFP8":   "meta-llama/Llama-3.1-8B-Instruct",
		"amd/DeepSeek-R1-0528-MXFP4":                      "deepseek-ai/DeepSeek-R1-0528",
		"amd/DeepSeek-R1-MXFP4-ASQ":                       "deepseek-ai/DeepSeek-R1",
		"amd/DeepSeek-R1-0528-MXFP4-MTP-MoEFP4":           "deepseek-ai/DeepSeek-R1-0528",
		"amd/Kimi-K2.5-MXFP4":                             "moonshotai/Kimi-K2.5",
		"amd/gpt-oss-120b-w-mxfp4-a-fp8":                  "openai/gpt-oss-120b",
		"unsloth/gpt-oss-20b-BF16":                        "openai/gpt-oss-20b",
		"unsloth/Qwen3-14B-unsloth-bnb-4bit":              "Qwen/Qwen3-14B",
		"RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8":  "meta-llama/Llama-3.3-70B-Instruct",
		"RedHatAI/Qwen3-32B-FP8-dynamic":                  "Qwen/Qwen3-32B",
		"RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic": "meta-llama/Meta-Llama-3.1-8B-Instruct",
		"nvidia/DeepSeek-V3.1-NVFP4":                      "deepseek-ai/DeepSeek-V3.1",
		"Qwen/Qwen3-32B-AWQ":                              "Qwen/Qwen3-32B",
		"Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4":             "Qwen/Qwen2.5-72B-Instruct",
		"Eco-Tech/GLM-5.1-w4a8":                           "zai-org/GLM-5.1",
		"MiniMaxAI/MiniMax-M3-MXFP8":                      "MiniMaxAI/MiniMax-M3-MXFP8",
		"deepseek-ai/DeepSeek-V3.2-Exp":                   "deepseek-ai/DeepSeek-V3.2-Exp",
		"meta-llama/Meta-Llama-3-8B":                      "meta-llama/Meta-Llama-3-8B",
		"meta-llama/Meta-Llama-3-70B-Instruct":            "meta-llama/Meta-Llama-3-70B-Instruct",
		"deepseek-ai/DeepSeek-R1-Distill-Llama-70B":       "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
		"Qwen/Qwen2.5-Coder-32B-Instruct":                 "Qwen/Qwen2.5-Coder-32B-Instruct",
	} {
		if m, ok := LookupModel(name); !ok || m.Name != want {
			t.Errorf("%s: looked up as %q, want %s", name, m.Name, want)
		}
	}
}

// A suffix that is no quantization may be another model.
func TestLookupModelTakesNothingElse(t *testing.T) {
	for _, name := range []string{
		"", "/", ".", "--", "___", "/models/", "models--/snapshots/", "FP8", "-FP8", "acme/-FP8",
		"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "deepseek-ai/DeepSeek-V4", "deepseek-ai/DeepSeek-V3.4-FP8",
		"zai-org/GLM-5.9", "zai-org/GLM-5.9-FP8", "zai-org/GLM-5.3-Flash", "acme/Qwen3-32B-v2", "acme/Qwen3-32B-v2-FP8", "acme/Qwen3-32B-4", "acme/Qwen3-32B-w",
		"acme/Qwen3-32B-MTP", "acme/Qwen3-32BFP8", "acme/Qwen3-32B-Eagle3-FP8", "acme/tiny-DeepSeek-R1", "acme/DeepSeek-R1/quantized",
		strings.Repeat("/models", 1000) + "/DeepSeek-R1",
	} {
		if m, ok := LookupModel(name); ok || m.Architecture != "" {
			t.Errorf("%.80q is taken for %s", name, m.Name)
		}
	}
}

// Every name is found as itself, alone in the catalog, and by its path.
func TestLookupModelFindsTheCatalog(t *testing.T) {
	for _, m := range Models() {
		for _, name := range []string{m.Name, "/models/" + m.Name, "/hub/models--" + strings.ReplaceAll(m.Name, "/", "--") + "/snapshots/8d7b"} {
			if got, ok := LookupModel(name); !ok || got.Name != m.Name {
				t.Errorf("%s: looked up as %q", name, got.Name)
			}
		}
	}
}
