package kvlayout

// mlaFamilies are models whose every layer caches one latent. Of a config.json,
// layers are num_hidden_layers, AttentionHeads num_attention_heads, Experts
// n_routed_experts, MaxLength max_position_embeddings (0 where it was not found),
// draft layers num_nextn_predict_layers.
func mlaFamilies() []family {
	return []family{
		// deepseek-ai/DeepSeek-R1, deepseek-ai/DeepSeek-V3; V3.1 by
		// nvidia/DeepSeek-V3.1-NVFP4, a quantisation of it.
		checkpoints(
			Model{Architecture: "DeepseekV3ForCausalLM", AttentionHeads: 128, Experts: 256, MaxLength: 163840}, latents(61), latents(1),
			"deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324",
			"deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-V3.1-Terminus"),
		// deepseek-ai/DeepSeek-V2-Lite, as Primus and MaxText configure it from that
		// file; its longest sequence is 40 x 4,096 (rope_scaling), as conversions of it to
		// GGUF have it (llama.cpp #7519).
		checkpoints(
			Model{Architecture: "DeepseekV2ForCausalLM", AttentionHeads: 16, Experts: 64, MaxLength: 163840}, latents(27), nil,
			"deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite-Chat"),
		// moonshotai/Kimi-K2-Instruct.
		checkpoints(
			Model{Architecture: "DeepseekV3ForCausalLM", AttentionHeads: 64, Experts: 384, MaxLength: 131072}, latents(61), nil,
			"moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2-Base"),
		// moonshotai/Kimi-K2-Thinking.
		checkpoints(
			Model{Architecture: "DeepseekV3ForCausalLM", AttentionHeads: 64, Experts: 384, MaxLength: 262144}, latents(61), nil,
			"moonshotai/Kimi-K2-Thinking", "moonshotai/Kimi-K2-Instruct-0905"),
		// moonshotai/Kimi-K2.5, text_config; K2.6 by nvidia/Kimi-K2.6-NVFP4, a
		// quantisation of it.
		checkpoints(
			Model{Architecture: "KimiK25ForConditionalGeneration", AttentionHeads: 64, Experts: 384, MaxLength: 262144}, latents(61), nil,
			"moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.6"),
		// zai-org/GLM-4.7-Flash: num_nextn_predict_layers 1, model.layers.47 of the
		// weights, with latent attention too.
		checkpoints(
			Model{Architecture: "Glm4MoeLiteForCausalLM", AttentionHeads: 20, Experts: 64, MaxLength: 202752}, latents(47), latents(1),
			"zai-org/GLM-4.7-Flash"),
	}
}

// indexerFamilies have sparse attention: an indexer in the layers that choose
// tokens of their own, and in every draft layer.
func indexerFamilies() []family {
	return []family{
		// deepseek-ai/DeepSeek-V3.2: index_head_dim 128 in every layer. V3.2-Exp by the
		// defaults of Transformers' DeepseekV32Config, which are those of that checkpoint.
		checkpoints(
			Model{Architecture: "DeepseekV32ForCausalLM", AttentionHeads: 128, Experts: 256, MaxLength: 163840},
			indexers(61, latents(61)), indexers(1, latents(1)),
			"deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V3.2-Exp"),
		// zai-org/GLM-5, zai-org/GLM-5-FP8, zai-org/GLM-5.1.
		checkpoints(
			Model{Architecture: "GlmMoeDsaForCausalLM", AttentionHeads: 64, Experts: 256, MaxLength: 202752},
			indexers(78, latents(78)), indexers(1, latents(1)),
			"zai-org/GLM-5", "zai-org/GLM-5-FP8", "zai-org/GLM-5.1", "zai-org/GLM-5.1-FP8"),
		// zai-org/GLM-5.2, zai-org/GLM-5.3: index_topk_freq 4 after
		// index_skip_topk_offset 3, so 21 of 78 layers.
		checkpoints(
			Model{Architecture: "GlmMoeDsaForCausalLM", AttentionHeads: 64, Experts: 256, MaxLength: 1048576},
			indexers(21, latents(78)), indexers(1, latents(1)),
			"zai-org/GLM-5.2", "zai-org/GLM-5.2-FP8", "zai-org/GLM-5.3", "zai-org/GLM-5.3-FP8"),
		// MiniMaxAI/MiniMax-M3, text_config: grouped heads, sparse_index_dim 128 in the 57 layers
		// that sparse_attention_freq marks; num_mtp_modules 7. MXFP8 is its weights' type.
		checkpoints(
			Model{Architecture: "MiniMaxM3SparseForConditionalGeneration", AttentionHeads: 64, Experts: 128, MaxLength: 1048576},
			keyIndexers(57, grouped(60, 4, 128)), keyIndexers(7, grouped(7, 4, 128)),
			"MiniMaxAI/MiniMax-M3", "MiniMaxAI/MiniMax-M3-MXFP8"),
	}
}

// keyIndexers is MiniMax's indexer: a key of 128 values in bf16.
func keyIndexers(layers int, attention []LayerGroup) []LayerGroup {
	return append(attention, LayerGroup{
		Kind: Indexer, Layers: layers, Attention: Attention{Kind: MLA, KVHeads: 1, Key: 128, RowBytes: 2 * 128},
	})
}
