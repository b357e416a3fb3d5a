package kvlayout

import "strings"

// Catalog returns the KV geometries of the models that the project knows, one per
// Hugging Face name, in a fixed order.
func Catalog() []Geometry {
	var all []Geometry
	for _, f := range families() {
		for _, name := range f.names {
			g := f.Geometry
			g.Model = name
			all = append(all, g)
		}
	}
	return all
}

// Lookup returns the geometry of a model by its Hugging Face name; upper and lower
// case count as equal. The Model of the result is the name as the catalog spells it.
func Lookup(model string) (Geometry, bool) {
	for _, f := range families() {
		for _, name := range f.names {
			if strings.EqualFold(name, model) {
				g := f.Geometry
				g.Model = name
				return g, true
			}
		}
	}
	return Geometry{}, false
}

// family is one geometry with the names of the checkpoints that share it.
type family struct {
	Geometry
	names []string
}

// families holds the numbers of the models' public config.json: Layers is
// num_hidden_layers, AttentionHeads num_attention_heads; for MLA, HeadValues is
// kv_lora_rank + qk_rope_head_dim; for GQA, KVHeads is num_key_value_heads and
// HeadValues head_dim. MoE models have n_routed_experts or num_experts.
func families() []family {
	return []family{
		{
			// num_hidden_layers 61, num_attention_heads 128, kv_lora_rank 512,
			// qk_rope_head_dim 64, n_routed_experts 256.
			Geometry{Kind: MLA, Layers: 61, AttentionHeads: 128, KVHeads: 1, HeadValues: 512 + 64, MoE: true},
			[]string{
				"deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1-0528",
				"deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324",
				"deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-V3.1-Terminus",
			},
		},
		{
			// num_hidden_layers 27, num_attention_heads 16, kv_lora_rank 512,
			// qk_rope_head_dim 64, n_routed_experts 64.
			Geometry{Kind: MLA, Layers: 27, AttentionHeads: 16, KVHeads: 1, HeadValues: 512 + 64, MoE: true},
			[]string{"deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite-Chat"},
		},
		{
			// num_hidden_layers 61, num_attention_heads 64, kv_lora_rank 512,
			// qk_rope_head_dim 64, n_routed_experts 384.
			Geometry{Kind: MLA, Layers: 61, AttentionHeads: 64, KVHeads: 1, HeadValues: 512 + 64, MoE: true},
			[]string{
				"moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2-Instruct-0905",
				"moonshotai/Kimi-K2-Base", "moonshotai/Kimi-K2-Thinking",
			},
		},
		{
			// num_hidden_layers 80, num_attention_heads 64, num_key_value_heads 8,
			// head_dim 128.
			Geometry{Kind: GQA, Layers: 80, AttentionHeads: 64, KVHeads: 8, HeadValues: 128},
			[]string{
				"meta-llama/Llama-3.3-70B-Instruct",
				"meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct",
			},
		},
		{
			// num_hidden_layers 64, num_attention_heads 64, num_key_value_heads 8,
			// head_dim 128.
			Geometry{Kind: GQA, Layers: 64, AttentionHeads: 64, KVHeads: 8, HeadValues: 128},
			[]string{"Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"},
		},
		{
			// num_hidden_layers 94, num_attention_heads 64, num_key_value_heads 4,
			// head_dim 128, num_experts 128.
			Geometry{Kind: GQA, Layers: 94, AttentionHeads: 64, KVHeads: 4, HeadValues: 128, MoE: true},
			[]string{
				"Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B-FP8",
				"Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
				"Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8",
			},
		},
	}
}
