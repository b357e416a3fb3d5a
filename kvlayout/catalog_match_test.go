package kvlayout

import (
	"strings"
	"testing"
)

func TestFindModel(t *testing.T) {
	for name, want := range map[string]struct {
		model string
		match Match
	}{
		"deepseek-ai/DeepSeek-R1": {"deepseek-ai/DeepSeek-R1", NameMatch},
		"DEEPSEEK-AI/deepseek-r1": {"deepseek-ai/DeepSeek-R1", NameMatch},
		"/root/.cache/huggingface/hub/models--deepseek-ai--DeepSeek-R1/snapshots/8d7b": {"deepseek-ai/DeepSeek-R1", NameMatch},
		"/hub/models--amd--DeepSeek-R1-0528-MXFP4/snapshots/8d7b/":                     {"deepseek-ai/DeepSeek-R1-0528", QuantizedMatch},
		"/models/DeepSeek-R1":                         {"deepseek-ai/DeepSeek-R1", BaseMatch},
		"/models/DeepSeek-R1/":                        {"deepseek-ai/DeepSeek-R1", BaseMatch},
		"./DeepSeek-R1":                               {"deepseek-ai/DeepSeek-R1", BaseMatch},
		"/models/deepseek-ai--DeepSeek-R1":            {"deepseek-ai/DeepSeek-R1", BaseMatch},
		"s3://bucket/DeepSeek-R1":                     {"deepseek-ai/DeepSeek-R1", BaseMatch},
		"/hub/models/Qwen/Qwen2___5-7B-Instruct":      {"Qwen/Qwen2.5-7B-Instruct", BaseMatch},
		"unsloth/Llama-3.3-70B-Instruct":              {"meta-llama/Llama-3.3-70B-Instruct", BaseMatch},
		"meta-llama/Meta-Llama-3.1-405B-Instruct-FP8": {"meta-llama/Meta-Llama-3.1-405B-Instruct", QuantizedMatch},

		"amd/Llama-3.1-405B-Instruct-FP8-KV":              {"meta-llama/Llama-3.1-405B-Instruct", QuantizedMatch},
		"amd/Llama-3.1-70B-Instruct-FP8-KV":               {"meta-llama/Llama-3.1-70B-Instruct", QuantizedMatch},
		"amd/Llama-3.3-70B-Instruct-FP8-KV":               {"meta-llama/Llama-3.3-70B-Instruct", QuantizedMatch},
		"amd/Llama-3.3-70B-Instruct-MXFP4-Preview":        {"meta-llama/Llama-3.3-70B-Instruct", QuantizedMatch},
		"amd/Llama-3.1-8B-Instruct-WMXFP4FP8-AMP-KVFP8":   {"meta-llama/Llama-3.1-8B-Instruct", QuantizedMatch},
		"amd/DeepSeek-R1-0528-MXFP4":                      {"deepseek-ai/DeepSeek-R1-0528", QuantizedMatch},
		"amd/DeepSeek-R1-MXFP4-ASQ":                       {"deepseek-ai/DeepSeek-R1", QuantizedMatch},
		"amd/DeepSeek-R1-0528-MXFP4-MTP-MoEFP4":           {"deepseek-ai/DeepSeek-R1-0528", QuantizedMatch},
		"amd/Kimi-K2.5-MXFP4":                             {"moonshotai/Kimi-K2.5", QuantizedMatch},
		"amd/gpt-oss-120b-w-mxfp4-a-fp8":                  {"openai/gpt-oss-120b", QuantizedMatch},
		"unsloth/gpt-oss-20b-BF16":                        {"openai/gpt-oss-20b", QuantizedMatch},
		"unsloth/Qwen3-14B-unsloth-bnb-4bit":              {"Qwen/Qwen3-14B", QuantizedMatch},
		"RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8":  {"meta-llama/Llama-3.3-70B-Instruct", QuantizedMatch},
		"RedHatAI/Qwen3-32B-FP8-dynamic":                  {"Qwen/Qwen3-32B", QuantizedMatch},
		"RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic": {"meta-llama/Meta-Llama-3.1-8B-Instruct", QuantizedMatch},
		"nvidia/DeepSeek-V3.1-NVFP4":                      {"deepseek-ai/DeepSeek-V3.1", QuantizedMatch},
		"Qwen/Qwen3-32B-AWQ":                              {"Qwen/Qwen3-32B", QuantizedMatch},
		"Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4":             {"Qwen/Qwen2.5-72B-Instruct", QuantizedMatch},
		"Eco-Tech/GLM-5.1-w4a8":                           {"zai-org/GLM-5.1", QuantizedMatch},
		"MiniMaxAI/MiniMax-M3-MXFP8":                      {"MiniMaxAI/MiniMax-M3-MXFP8", NameMatch},
		"deepseek-ai/DeepSeek-V3.2-Exp":                   {"deepseek-ai/DeepSeek-V3.2-Exp", NameMatch},
		"meta-llama/Meta-Llama-3-8B":                      {"meta-llama/Meta-Llama-3-8B", NameMatch},
		"meta-llama/Meta-Llama-3-70B-Instruct":            {"meta-llama/Meta-Llama-3-70B-Instruct", NameMatch},
		"deepseek-ai/DeepSeek-R1-Distill-Llama-70B":       {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", NameMatch},
		"Qwen/Qwen2.5-Coder-32B-Instruct":                 {"Qwen/Qwen2.5-Coder-32B-Instruct", NameMatch},
	} {
		if m, match := FindModel(name); m.Name != want.model || match != want.match {
			t.Errorf("%s: %s, matched by %q; want %s, %q", name, m.Name, match, want.model, want.match)
		}
		if m, ok := LookupModel(name); !ok || m.Name != want.model {
			t.Errorf("%s: looked up as %q", name, m.Name)
		}
	}
}

// A suffix that is no quantization may be another model.
func TestFindModelTakesNothingElse(t *testing.T) {
	for _, name := range []string{
		"", "/", ".", "--", "___", "/models/", "models--/snapshots/", "FP8", "-FP8", "acme/-FP8",
		"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "deepseek-ai/DeepSeek-V4", "deepseek-ai/DeepSeek-V3.4-FP8",
		"zai-org/GLM-5.9", "zai-org/GLM-5.9-FP8", "zai-org/GLM-5.3-Flash", "acme/Qwen3-32B-v2", "acme/Qwen3-32B-v2-FP8", "acme/Qwen3-32B-4", "acme/Qwen3-32B-w",
		"acme/Qwen3-32B-MTP", "acme/Qwen3-32BFP8", "acme/Qwen3-32B-Eagle3-FP8", "acme/tiny-DeepSeek-R1", "acme/DeepSeek-R1/quantized",
		strings.Repeat("/models", 1000) + "/DeepSeek-R1",
	} {
		if m, match := FindModel(name); match != "" || m.Architecture != "" {
			t.Errorf("%.80q is taken for %s by %s", name, m.Name, match)
		}
	}
}

// Every name is found as itself, alone in the catalog, and by its path.
func TestFindModelFindsTheCatalog(t *testing.T) {
	for _, m := range Models() {
		for name, want := range map[string]Match{
			m.Name: NameMatch, "/models/" + m.Name: BaseMatch,
			"/hub/models--" + strings.ReplaceAll(m.Name, "/", "--") + "/snapshots/8d7b": NameMatch,
		} {
			if got, match := FindModel(name); got.Name != m.Name || match != want {
				t.Errorf("%s: %s by %q", name, got.Name, match)
			}
		}
	}
}
