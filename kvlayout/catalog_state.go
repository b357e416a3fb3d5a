package kvlayout

// stateFamilies keep a recurrent state in most layers. Groups stand in the order in
// which their first layer comes.
func stateFamilies() []family {
	return append(kimiFamilies(), append(qwenFamilies(), nemotronFamilies()...)...)
}

// kimiFamilies: linear_attn_config names num_heads, head_dim 128 and
// short_conv_kernel_size 4 of the KDA layers.
func kimiFamilies() []family {
	kda := func(layers, heads int) LayerGroup {
		width := heads * 128
		return LayerGroup{Kind: Recurrent, Layers: layers, State: State{
			Kind: KDA, ConvRows: 3, ConvParts: []int{width, width, width}, Heads: heads, Rows: 128, Columns: 128, ValueBytes: 4,
		}}
	}
	return []family{
		// moonshotai/Kimi-Linear-48B-A3B-Instruct: full_attn_layers 4, 8, ..., 24, 27
		// of 27; its context length is model_max_length.
		checkpoints(
			Model{Architecture: "KimiLinearForCausalLM", AttentionHeads: 32, Experts: 256, MaxLength: 1048576},
			append([]LayerGroup{kda(20, 32)}, latents(7)...), nil,
			"moonshotai/Kimi-Linear-48B-A3B-Instruct", "moonshotai/Kimi-Linear-48B-A3B-Base"),
		// moonshotai/Kimi-K3, text_config: 24 of 93 layers in full_attn_layers.
		checkpoints(
			Model{Architecture: "KimiK3ForConditionalGeneration", AttentionHeads: 96, Experts: 896, MaxLength: 1048576},
			append([]LayerGroup{kda(69, 96)}, latents(24)...), nil,
			"moonshotai/Kimi-K3"),
	}
}

// qwenFamilies: full_attention_interval 4, linear_num_key_heads 16 and
// linear_num_value_heads of 128 values, linear_conv_kernel_dim 4; mamba_ssm_dtype
// float32 from 3.5 on.
func qwenFamilies() []family {
	net := func(layers, valueHeads, valueBytes int) []LayerGroup {
		return []LayerGroup{{Kind: Recurrent, Layers: layers, State: State{
			Kind: GatedDeltaNet, ConvRows: 3, ConvParts: []int{16 * 128, 16 * 128, valueHeads * 128},
			Heads: valueHeads, Rows: 128, Columns: 128, ValueBytes: valueBytes,
		}}}
	}
	qwen35 := func(heads, experts int) Model {
		m := Model{Architecture: "Qwen3_5MoeForConditionalGeneration", AttentionHeads: heads, Experts: experts, MaxLength: 262144}
		if experts == 0 {
			m.Architecture = "Qwen3_5ForConditionalGeneration"
		}
		return m
	}
	return []family{
		// Qwen/Qwen3-Next-80B-A3B-Thinking.
		checkpoints(
			Model{Architecture: "Qwen3NextForCausalLM", AttentionHeads: 16, Experts: 512, MaxLength: 262144},
			append(net(36, 32, 2), grouped(12, 2, 256)...), nil,
			"Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-Next-80B-A3B-Thinking"),
		// Qwen/Qwen3.5-27B, text_config: mtp_num_hidden_layers 1.
		checkpoints(qwen35(24, 0), append(net(48, 48, 4), grouped(16, 4, 256)...), grouped(1, 4, 256), "Qwen/Qwen3.5-27B"),
		// Qwen/Qwen3.5-35B-A3B, text_config.
		checkpoints(qwen35(16, 256), append(net(30, 32, 4), grouped(10, 2, 256)...), grouped(1, 2, 256), "Qwen/Qwen3.5-35B-A3B"),
		// Qwen/Qwen3.5-122B-A10B, text_config.
		checkpoints(qwen35(32, 256), append(net(36, 64, 4), grouped(12, 2, 256)...), grouped(1, 2, 256), "Qwen/Qwen3.5-122B-A10B"),
		// Qwen/Qwen3.5-397B-A17B, text_config.
		checkpoints(qwen35(32, 512), append(net(45, 64, 4), grouped(15, 2, 256)...), grouped(1, 2, 256),
			"Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen3.5-397B-A17B-FP8"),
	}
}

// nemotronFamilies: hybrid_override_pattern or layers_block_type name the layers;
// conv_kernel 4, n_groups 8, mamba_head_dim 64.
func nemotronFamilies() []family {
	mamba := func(layers, heads, size int) []LayerGroup {
		return []LayerGroup{{Kind: Recurrent, Layers: layers, State: State{
			Kind: Mamba2, ConvRows: 3, ConvParts: []int{heads * 64, 8 * size, 8 * size}, Groups: 8,
			Heads: heads, Rows: 64, Columns: size, ValueBytes: 4,
		}}}
	}
	nemotron := func(heads, experts, length int) Model {
		return Model{Architecture: "NemotronHForCausalLM", AttentionHeads: heads, Experts: experts, MaxLength: length}
	}
	return []family{
		// nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16.
		checkpoints(nemotron(32, 128, 262144), append(mamba(23, 64, 128), grouped(6, 2, 128)...), nil,
			"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
		// nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8: mtp_hybrid_override_pattern *E,
		// num_nextn_predict_layers 1; its cache is of 8-bit floats.
		checkpoints(nemotron(32, 512, 262144), append(mamba(40, 128, 128), grouped(8, 2, 128)...), grouped(1, 2, 128),
			"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8"),
		// nvidia/Nemotron-H-56B-Base-8K.
		checkpoints(nemotron(64, 0, 8192), append(mamba(54, 256, 256), grouped(10, 8, 128)...), nil,
			"nvidia/Nemotron-H-56B-Base-8K"),
	}
}
