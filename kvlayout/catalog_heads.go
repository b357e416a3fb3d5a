package kvlayout

// denseFamilies are models without experts whose every layer caches a key and a
// value per KV head: grouped(num_hidden_layers, num_key_value_heads, head_dim), the
// head dimension hidden_size / num_attention_heads where head_dim is left out.
func denseFamilies() []family {
	llama := func(heads int) Model {
		return Model{Architecture: "LlamaForCausalLM", AttentionHeads: heads, MaxLength: 131072}
	}
	qwen3 := func(heads int) Model {
		return Model{Architecture: "Qwen3ForCausalLM", AttentionHeads: heads, MaxLength: 40960}
	}
	llama3 := func(heads int) Model {
		return Model{Architecture: "LlamaForCausalLM", AttentionHeads: heads, MaxLength: 8192}
	}
	return append(qwen25Families(), []family{
		// meta-llama/Meta-Llama-3-8B as LitGPT configures it from that file.
		checkpoints(llama3(32), grouped(32, 8, 128), nil, "meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B-Instruct"),
		// meta-llama/Meta-Llama-3-70B as LitGPT configures it from that file.
		checkpoints(llama3(64), grouped(80, 8, 128), nil, "meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-70B-Instruct"),
		// meta-llama/Meta-Llama-3.1-8B, which was the name of Llama-3.1-8B; the distilled
		// one as LitGPT configures it.
		checkpoints(llama(32), grouped(32, 8, 128), nil, "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct",
			"meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
		// meta-llama/Llama-3.3-70B-Instruct, meta-llama/Meta-Llama-3.1-70B; the distilled
		// one as LitGPT configures it.
		checkpoints(llama(64), grouped(80, 8, 128), nil,
			"meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct",
			"meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"),
		// meta-llama/Meta-Llama-3.1-405B.
		checkpoints(llama(128), grouped(126, 8, 128), nil,
			"meta-llama/Llama-3.1-405B", "meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Llama-3.1-405B-Instruct-FP8",
			"meta-llama/Meta-Llama-3.1-405B", "meta-llama/Meta-Llama-3.1-405B-Instruct"),
		// Qwen/Qwen3-0.6B, Qwen/Qwen3-1.7B.
		checkpoints(qwen3(16), grouped(28, 8, 128), nil, "Qwen/Qwen3-0.6B", "Qwen/Qwen3-1.7B"),
		// Qwen/Qwen3-4B as LitGPT configures it from that file; Qwen/Qwen3-8B.
		checkpoints(qwen3(32), grouped(36, 8, 128), nil, "Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-4B", "Qwen/Qwen3-4B-FP8"),
		// Qwen/Qwen3-14B as LitGPT configures it from that file.
		checkpoints(qwen3(40), grouped(40, 8, 128), nil, "Qwen/Qwen3-14B", "Qwen/Qwen3-14B-FP8"),
		// Qwen/Qwen3-32B, Qwen/Qwen3-32B-FP8.
		checkpoints(qwen3(64), grouped(64, 8, 128), nil, "Qwen/Qwen3-32B", "Qwen/Qwen3-32B-FP8"),
		// mistralai/Mistral-Large-Instruct-2407 as LitGPT configures it from that file.
		checkpoints(
			Model{Architecture: "MistralForCausalLM", AttentionHeads: 96, MaxLength: 131072}, grouped(88, 8, 128), nil,
			"mistralai/Mistral-Large-Instruct-2407"),
		// microsoft/phi-4 as LitGPT configures it from that file.
		checkpoints(
			Model{Architecture: "Phi3ForCausalLM", AttentionHeads: 40, MaxLength: 16384}, grouped(40, 10, 128), nil,
			"microsoft/phi-4"),
	}...)
}

// qwen25Families are Qwen2.5, as LitGPT configures it from those files. Of the longest
// sequence it has the base models' alone: the instruction-tuned ones' files say
// 32,768, as Qwen's model cards tell, which describe how to raise it.
func qwen25Families() []family {
	qwen25 := func(heads, length int) Model {
		return Model{Architecture: "Qwen2ForCausalLM", AttentionHeads: heads, MaxLength: length}
	}
	const base, short = 131072, 32768
	return []family{
		checkpoints(qwen25(14, short), grouped(24, 2, 64), nil, "Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B-Instruct"),
		checkpoints(qwen25(16, short), grouped(36, 2, 128), nil, "Qwen/Qwen2.5-3B", "Qwen/Qwen2.5-3B-Instruct"),
		checkpoints(qwen25(28, base), grouped(28, 4, 128), nil, "Qwen/Qwen2.5-7B"),
		checkpoints(qwen25(28, short), grouped(28, 4, 128), nil,
			"Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-Coder-7B", "Qwen/Qwen2.5-Coder-7B-Instruct"),
		checkpoints(qwen25(40, base), grouped(48, 8, 128), nil, "Qwen/Qwen2.5-14B"),
		checkpoints(qwen25(40, short), grouped(48, 8, 128), nil,
			"Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-Coder-14B", "Qwen/Qwen2.5-Coder-14B-Instruct"),
		checkpoints(qwen25(40, base), grouped(64, 8, 128), nil, "Qwen/Qwen2.5-32B"),
		checkpoints(qwen25(40, short), grouped(64, 8, 128), nil,
			"Qwen/Qwen2.5-32B-Instruct", "Qwen/Qwen2.5-Coder-32B", "Qwen/Qwen2.5-Coder-32B-Instruct"),
		checkpoints(qwen25(64, base), grouped(80, 8, 128), nil, "Qwen/Qwen2.5-72B"),
		checkpoints(qwen25(64, short), grouped(80, 8, 128), nil, "Qwen/Qwen2.5-72B-Instruct"),
	}
}

// expertFamilies are the same with experts: num_experts, num_local_experts or
// n_routed_experts.
func expertFamilies() []family {
	qwen3 := func(heads, experts, length int) Model {
		return Model{Architecture: "Qwen3MoeForCausalLM", AttentionHeads: heads, Experts: experts, MaxLength: length}
	}
	glm := func(experts, length int) Model {
		return Model{Architecture: "Glm4MoeForCausalLM", AttentionHeads: 96, Experts: experts, MaxLength: length}
	}
	minimax := func(length int) Model {
		return Model{Architecture: "MiniMaxM2ForCausalLM", AttentionHeads: 48, Experts: 256, MaxLength: length}
	}
	mixtral := func(heads, length int) Model {
		return Model{Architecture: "MixtralForCausalLM", AttentionHeads: heads, Experts: 8, MaxLength: length}
	}
	return []family{
		// Qwen/Qwen3-30B-A3B, Qwen/Qwen3-30B-A3B-FP8.
		checkpoints(qwen3(32, 128, 40960), grouped(48, 4, 128), nil, "Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B-FP8"),
		// Qwen/Qwen3-235B-A22B, Qwen/Qwen3-235B-A22B-FP8.
		checkpoints(qwen3(64, 128, 40960), grouped(94, 4, 128), nil, "Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B-FP8"),
		// The same numbers but a longer context.
		checkpoints(qwen3(64, 128, 262144), grouped(94, 4, 128), nil,
			"Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
			"Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen/Qwen3-235B-A22B-Thinking-2507-FP8"),
		// Qwen/Qwen3-Coder-480B-A35B-Instruct.
		checkpoints(qwen3(96, 160, 262144), grouped(62, 8, 128), nil,
			"Qwen/Qwen3-Coder-480B-A35B-Instruct", "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"),
		// Qwen/Qwen3-VL-235B-A22B-Instruct, text_config.
		checkpoints(
			Model{Architecture: "Qwen3VLMoeForConditionalGeneration", AttentionHeads: 64, Experts: 128, MaxLength: 262144},
			grouped(94, 4, 128), nil,
			"Qwen/Qwen3-VL-235B-A22B-Instruct", "Qwen/Qwen3-VL-235B-A22B-Thinking"),
		// zai-org/GLM-4.5: 3 dense and 89 MoE layers and num_nextn_predict_layers 1.
		checkpoints(glm(160, 131072), grouped(92, 8, 128), grouped(1, 8, 128), "zai-org/GLM-4.5", "zai-org/GLM-4.5-FP8"),
		// zai-org/GLM-4.7-FP8; GLM-4.6 is the same. num_nextn_predict_layers 1, as the
		// weights' model.layers.92 has it.
		checkpoints(glm(160, 202752), grouped(92, 8, 128), grouped(1, 8, 128),
			"zai-org/GLM-4.6", "zai-org/GLM-4.6-FP8", "zai-org/GLM-4.7", "zai-org/GLM-4.7-FP8"),
		// zai-org/GLM-4.5-Air: the defaults of Transformers' Glm4MoeConfig.
		checkpoints(glm(128, 131072), grouped(46, 8, 128), grouped(1, 8, 128), "zai-org/GLM-4.5-Air", "zai-org/GLM-4.5-Air-FP8"),
		// MiniMaxAI/MiniMax-M2 and -M2.5: num_mtp_modules 3 of mtp_transformer_layers 1.
		checkpoints(minimax(196608), grouped(62, 8, 128), grouped(3, 8, 128),
			"MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.1", "MiniMaxAI/MiniMax-M2.5"),
		// MiniMaxAI/MiniMax-M2.7.
		checkpoints(minimax(204800), grouped(62, 8, 128), grouped(3, 8, 128), "MiniMaxAI/MiniMax-M2.7"),
		// mistralai/Mixtral-8x7B-v0.1.
		checkpoints(mixtral(32, 32768), grouped(32, 8, 128), nil, "mistralai/Mixtral-8x7B-v0.1", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
		// mistralai/Mixtral-8x22B-v0.1.
		checkpoints(mixtral(48, 65536), grouped(56, 8, 128), nil, "mistralai/Mixtral-8x22B-v0.1", "mistralai/Mixtral-8x22B-Instruct-v0.1"),
	}
}

// windowFamilies have layers that keep a window or a chunk beside full ones.
func windowFamilies() []family {
	interleaved := func(kind LayerKind, local, full int, heads, dim, window int) []LayerGroup {
		return []LayerGroup{
			{Kind: kind, Layers: local, Attention: headSharded(heads, dim, window)},
			{Kind: FullAttention, Layers: full, Attention: headSharded(heads, dim, 0)},
		}
	}
	return []family{
		// openai/gpt-oss-20b: layer_types alternate, sliding_window 128.
		checkpoints(
			Model{Architecture: "GptOssForCausalLM", AttentionHeads: 64, Experts: 32, MaxLength: 131072},
			interleaved(SlidingWindow, 12, 12, 8, 64, 128), nil, "openai/gpt-oss-20b"),
		// openai/gpt-oss-120b.
		checkpoints(
			Model{Architecture: "GptOssForCausalLM", AttentionHeads: 64, Experts: 128, MaxLength: 131072},
			interleaved(SlidingWindow, 18, 18, 8, 64, 128), nil, "openai/gpt-oss-120b"),
		// google/gemma-3-12b-it, text_config: every sixth layer is full,
		// sliding_window 1024. The context length is left out there and is that of
		// Transformers' Gemma3TextConfig.
		checkpoints(
			Model{Architecture: "Gemma3ForConditionalGeneration", AttentionHeads: 16, MaxLength: gemma3Length},
			interleaved(SlidingWindow, 40, 8, 8, 256, 1024), nil, "google/gemma-3-12b-it", "google/gemma-3-12b-pt"),
		// google/gemma-3-27b-it, text_config.
		checkpoints(
			Model{Architecture: "Gemma3ForConditionalGeneration", AttentionHeads: 32, MaxLength: gemma3Length},
			interleaved(SlidingWindow, 52, 10, 16, 128, 1024), nil, "google/gemma-3-27b-it", "google/gemma-3-27b-pt"),
		// google/gemma-4-26B-A4B, text_config: every sixth layer is full, with
		// num_global_key_value_heads 2 of global_head_dim 512.
		checkpoints(
			Model{Architecture: "Gemma4ForConditionalGeneration", AttentionHeads: 16, Experts: 128, MaxLength: 262144},
			append([]LayerGroup{{Kind: SlidingWindow, Layers: 25, Attention: headSharded(8, 256, 1024)}}, grouped(5, 2, 512)...), nil,
			"google/gemma-4-26B-A4B", "google/gemma-4-26B-A4B-it"),
		// google/gemma-4-31B-it by nvidia/Gemma-4-31B-IT-NVFP4, a quantisation of it.
		checkpoints(
			Model{Architecture: "Gemma4ForConditionalGeneration", AttentionHeads: 32, MaxLength: 262144},
			append([]LayerGroup{{Kind: SlidingWindow, Layers: 50, Attention: headSharded(16, 256, 1024)}}, grouped(10, 4, 512)...), nil,
			"google/gemma-4-31B-it"),
		// meta-llama/Llama-4-Scout-17B-16E-Instruct, text_config: attention_chunk_size
		// 8192, every fourth layer is full (Transformers' no_rope_layer_interval).
		checkpoints(
			Model{Architecture: "Llama4ForConditionalGeneration", AttentionHeads: 40, Experts: 16, MaxLength: 10485760},
			interleaved(ChunkedLocal, 36, 12, 8, 128, 8192), nil,
			"meta-llama/Llama-4-Scout-17B-16E", "meta-llama/Llama-4-Scout-17B-16E-Instruct"),
		// meta-llama/Llama-4-Maverick-17B-128E-Instruct, text_config.
		checkpoints(
			Model{Architecture: "Llama4ForConditionalGeneration", AttentionHeads: 40, Experts: 128, MaxLength: 1048576},
			interleaved(ChunkedLocal, 36, 12, 8, 128, 8192), nil,
			"meta-llama/Llama-4-Maverick-17B-128E-Instruct", "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8"),
	}
}
