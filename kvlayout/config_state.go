package kvlayout

import "strings"

// kimiGroups: latent attention in full_attn_layers, KDA in kda_layers, both
// counted from 1. vLLM keeps KDA's matrices in single precision.
func (p *configParser) kimiGroups() (groups, drafts []LayerGroup, err error) {
	linear := p.LinearAttn
	err = p.need(map[string]number{
		"num_hidden_layers": p.Layers, "num_attention_heads": p.Heads,
		"kv_lora_rank": p.KVLoraRank, "qk_rope_head_dim": p.QKRopeHeadDim,
		"linear_attn_config.head_dim": linear.HeadDim, "linear_attn_config.num_heads": linear.Heads,
		"linear_attn_config.short_conv_kernel_size": linear.Conv,
	})
	if err != nil {
		return nil, nil, err
	}
	full, kda := len(linear.Full.values), len(linear.KDALayers.values)
	if full < 1 || full+kda != p.Layers.value {
		return nil, nil, p.refuse([]string{"linear_attn_config.full_attn_layers", "linear_attn_config.kda_layers"},
			"full_attn_layers and kda_layers name %d of its %d layers", full+kda, p.Layers.value)
	}
	attention := LayerGroup{Kind: FullAttention, Layers: full, Attention: p.latent()}
	if kda < 1 {
		return []LayerGroup{attention}, p.latentGroups(p.NextN.or(0), 0), nil
	}
	width := linear.Heads.value * linear.HeadDim.value
	state := LayerGroup{Kind: Recurrent, Layers: kda, State: State{
		Kind: KDA, ConvRows: linear.Conv.value - 1, ConvParts: []int{width, width, width},
		Heads: linear.Heads.value, Rows: linear.HeadDim.value, Columns: linear.HeadDim.value, ValueBytes: 4,
	}}
	groups = []LayerGroup{state, attention}
	if linear.Full.values[0] == 1 {
		groups = []LayerGroup{attention, state}
	}
	return groups, p.latentGroups(p.NextN.or(0), 0), nil
}

// gatedDeltaGroups: head-sharded attention in every full_attention_interval-th
// layer or as layer_types says, a gated delta net in the others (Qwen3-Next,
// Qwen3.5).
func (p *configParser) gatedDeltaGroups() (groups, drafts []LayerGroup, err error) {
	attention, err := p.heads()
	if err != nil {
		return nil, nil, err
	}
	err = p.need(map[string]number{
		"linear_conv_kernel_dim": p.LinearConvKernel, "linear_key_head_dim": p.LinearKeyDim, "linear_value_head_dim": p.LinearValueDim,
		"linear_num_key_heads": p.LinearKeyHeads, "linear_num_value_heads": p.LinearValueHeads,
	})
	if err != nil {
		return nil, nil, err
	}
	kinds, err := p.layerKinds()
	if err != nil {
		return nil, nil, err
	}
	keys := p.LinearKeyHeads.value * p.LinearKeyDim.value
	state := State{
		Kind: GatedDeltaNet, ConvRows: p.LinearConvKernel.value - 1,
		ConvParts: []int{keys, keys, p.LinearValueHeads.value * p.LinearValueDim.value},
		Heads:     p.LinearValueHeads.value, Rows: p.LinearValueDim.value, Columns: p.LinearKeyDim.value,
		ValueBytes: valueBytes(p.MambaSSMType, elementBytes),
	}
	for _, kind := range kinds {
		switch kind {
		case FullAttention:
			groups = addLayers(groups, LayerGroup{Kind: kind, Layers: 1, Attention: attention})
		case Recurrent:
			groups = addLayers(groups, LayerGroup{Kind: kind, Layers: 1, State: state})
		case SlidingWindow, ChunkedLocal, Indexer:
			return nil, nil, p.refuse([]string{"layer_types"}, "layer_types has a kind of layer that its architecture does not")
		}
	}
	return groups, p.draftsLike(attention), nil
}

// mambaGroups: layers as hybrid_override_pattern spells them (M Mamba2, * attention,
// - and E without a cache), or as layers_block_type or layer_types lists them.
func (p *configParser) mambaGroups() (groups, drafts []LayerGroup, err error) {
	pattern, err := p.blockPattern()
	if err != nil {
		return nil, nil, err
	}
	p.Layers = number{value: len(pattern), given: true}
	attention, err := p.heads()
	if err != nil {
		return nil, nil, err
	}
	state, err := p.mambaState()
	if err != nil {
		return nil, nil, err
	}
	for _, c := range pattern {
		switch c {
		case 'M':
			groups = addLayers(groups, LayerGroup{Kind: Recurrent, Layers: 1, State: state})
		case '*':
			groups = addLayers(groups, LayerGroup{Kind: FullAttention, Layers: 1, Attention: attention})
		}
	}
	if n := p.NextN.or(0) * strings.Count(p.MTPPattern, "*"); n > 0 {
		drafts = []LayerGroup{{Kind: FullAttention, Layers: n, Attention: attention}}
	}
	return groups, drafts, nil
}

// mambaState reads the Mamba2 state in Nemotron-H's spelling or in Granite's.
// Nemotron-H keeps its matrices in single precision unless mamba_ssm_cache_dtype
// says otherwise, Granite in the model's own type.
func (p *configParser) mambaState() (State, error) {
	heads, dim, size, groups, conv, def := p.MambaHeads, p.MambaHeadDim, p.SSMStateSize, p.MambaGroups, p.MambaConv, 4
	names := [...]string{"mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"}
	if p.ModelType == "granitemoehybrid" {
		heads, dim, size, groups, conv, def = p.GraniteHeads, p.GraniteHeadDim, p.GraniteState, p.GraniteGroups, p.GraniteConv, elementBytes
		names = [...]string{"mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv"}
	}
	err := p.need(map[string]number{names[0]: heads, names[1]: dim, names[2]: size, names[3]: groups, names[4]: conv})
	if err != nil {
		return State{}, err
	}
	group := groups.value * size.value
	return State{
		Kind: Mamba2, ConvRows: conv.value - 1, ConvParts: []int{heads.value * dim.value, group, group}, Groups: groups.value,
		Heads: heads.value, Rows: dim.value, Columns: size.value, ValueBytes: valueBytes(p.MambaCacheType, def),
	}, nil
}

// blockPattern is the layers' kinds, a letter each.
func (p *configParser) blockPattern() (string, error) {
	if p.HybridPattern != "" {
		if strings.Trim(p.HybridPattern, "M*-E") != "" || len(p.HybridPattern) > maxListed {
			return "", p.refuse([]string{"hybrid_override_pattern"}, "hybrid_override_pattern has letters other than M, *, - and E")
		}
		return p.HybridPattern, nil
	}
	listed, field := p.LayersBlockType.values, "layers_block_type"
	if len(listed) == 0 {
		listed, field = p.LayerTypes.values, "layer_types"
	}
	if len(listed) == 0 {
		return "", p.refuse([]string{field}, "it does not say which of its layers are Mamba")
	}
	var pattern strings.Builder
	for _, name := range listed {
		letter, ok := map[string]byte{"mamba": 'M', "attention": '*', "mlp": '-', "moe": 'E'}[name]
		if !ok {
			return "", p.refuse([]string{field}, "%s names the kind %q", field, name)
		}
		pattern.WriteByte(letter)
	}
	return pattern.String(), nil
}

// valueBytes is the size of the type that a config names for its state, def if it
// names none.
func valueBytes(name string, def int) int {
	switch strings.TrimPrefix(strings.ToLower(name), "torch.") {
	case "float32", "fp32", "float":
		return 4
	case "bfloat16", "float16", "bf16", "fp16", "half":
		return 2
	}
	return def
}
