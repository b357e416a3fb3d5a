package kvlayout

import "strings"

// mlaGroups: one latent of kv_lora_rank + qk_rope_head_dim values per token, and an
// indexer where index_head_dim is given.
func (p *configParser) mlaGroups() (groups, drafts []LayerGroup, err error) {
	needed := map[string]number{
		"num_hidden_layers": p.Layers, "num_attention_heads": p.Heads,
		"kv_lora_rank": p.KVLoraRank, "qk_rope_head_dim": p.QKRopeHeadDim,
	}
	if p.ModelType == "deepseek_v32" || p.ModelType == "glm_moe_dsa" {
		needed["index_head_dim"] = p.IndexHeadDim
	}
	if err := p.need(needed); err != nil {
		return nil, nil, err
	}
	groups = p.latentGroups(p.Layers.value, p.indexers())
	drafts = p.latentGroups(p.NextN.or(0), p.NextN.or(0))
	return groups, drafts, nil
}

func (p *configParser) latentGroups(layers, indexers int) []LayerGroup {
	if layers < 1 {
		return nil
	}
	groups := []LayerGroup{{Kind: FullAttention, Layers: layers, Attention: p.latent()}}
	if dim := p.IndexHeadDim.or(0); dim > 0 && indexers > 0 {
		groups = append(groups, LayerGroup{Kind: Indexer, Layers: indexers, Attention: Attention{
			Kind: MLA, KVHeads: 1, Key: dim, RowBytes: dim + dim/indexerScaleBlock*indexerScaleBytes,
		}})
	}
	return groups
}

func (p *configParser) latent() Attention {
	return Attention{Kind: MLA, KVHeads: 1, Key: p.KVLoraRank.or(0) + p.QKRopeHeadDim.or(0)}
}

// The keys of DeepSeek's indexer are 8-bit floats with a 4-byte scale per 128 of
// them, whatever the type of the cache is: 132 bytes of 128 keys (vLLM's
// DeepseekV32IndexerCache, SGLang's DSATokenToKVPool).
const (
	indexerScaleBlock = 128
	indexerScaleBytes = 4
)

// indexers counts the layers that build an indexer of their own. Others take the
// choice of an earlier layer: those that index_topk_pattern marks S, or all but
// every index_topk_freq-th one after index_skip_topk_offset.
func (p *configParser) indexers() int {
	layers := min(p.Layers.or(0), maxListed)
	n := 0
	for i := range layers {
		skips := max(i-p.IndexSkipOffset.or(2)+1, 0)%max(p.IndexTopkFreq.or(1), 1) != 0
		if p.IndexPattern != "" {
			skips = i < len(p.IndexPattern) && p.IndexPattern[i] == 'S'
		}
		if !skips {
			n++
		}
	}
	return n
}

// headGroups: a key and a value per KV head and token, in layers that keep all
// tokens, a window or a chunk.
func (p *configParser) headGroups() (groups, drafts []LayerGroup, err error) {
	attention, err := p.heads()
	if err != nil {
		return nil, nil, err
	}
	groups, err = p.windowed(attention, attention)
	return groups, p.draftsLike(attention), err
}

// gemma4Groups: the full layers have heads of their own. Their key is their value,
// and is cached twice all the same.
func (p *configParser) gemma4Groups() (groups, drafts []LayerGroup, err error) {
	local, err := p.heads()
	if err != nil {
		return nil, nil, err
	}
	if !p.KeyIsValue.set || len(p.LayerTypes.values) == 0 {
		return nil, nil, p.refuse([]string{"attention_k_eq_v", "layer_types"}, "it does not say which of its layers share key and value")
	}
	if err := p.need(map[string]number{"global_head_dim": p.GlobalHeadDim, "num_global_key_value_heads": p.GlobalKVHeads}); err != nil {
		return nil, nil, err
	}
	groups, err = p.windowed(headSharded(p.GlobalKVHeads.value, p.GlobalHeadDim.value, 0), local)
	return groups, nil, err
}

// windowed deals the layers to full attention and to windows of a shape each.
func (p *configParser) windowed(full, local Attention) (groups []LayerGroup, err error) {
	kinds, err := p.layerKinds()
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		g := LayerGroup{Kind: kind, Layers: 1, Attention: local}
		switch kind {
		case FullAttention:
			g.Attention = full
		case SlidingWindow:
			if err := p.need(map[string]number{"sliding_window": p.SlidingWindow}); err != nil {
				return nil, err
			}
			g.Attention.Window = p.SlidingWindow.value
		case ChunkedLocal:
			if err := p.need(map[string]number{"attention_chunk_size": p.ChunkSize}); err != nil {
				return nil, err
			}
			g.Attention.Window = p.ChunkSize.value
		case Indexer, Recurrent:
			return nil, p.refuse([]string{"layer_types"}, "layer_types has a kind of layer that its architecture does not")
		}
		groups = addLayers(groups, g)
	}
	return groups, nil
}

// draftsLike are the draft layers, full attention of the model's own shape. The
// next-token layers are counted in three spellings.
func (p *configParser) draftsLike(a Attention) []LayerGroup {
	layers := max(p.NextN.or(0), p.MTPModules.or(0)*max(p.MTPDepth.or(1), 1), p.MTPLayers.or(0))
	if layers < 1 {
		return nil
	}
	return []LayerGroup{{Kind: FullAttention, Layers: layers, Attention: a}}
}

// heads is the shape of a head-sharded token. Families whose own default for
// head_dim is not hidden_size / num_attention_heads have to give it; Gemma 3
// leaves its defaults out.
func (p *configParser) heads() (Attention, error) {
	needed := map[string]number{"num_hidden_layers": p.Layers}
	if p.ModelType == "gemma3_text" {
		for _, d := range []struct {
			field *number
			value int
		}{{&p.Heads, 8}, {&p.KVHeads, 4}, {&p.HeadDim, 256}} {
			*d.field = number{value: d.field.or(d.value), given: true}
		}
	}
	needed["num_attention_heads"] = p.Heads
	switch p.ModelType {
	case "llama", "mistral", "mixtral", "granite", "granitemoe", "granitemoehybrid", "olmo2", "phi3", "ernie4_5", "ernie4_5_moe",
		"exaone4", "mimo", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text":
		if p.headDim() < 1 && p.Hidden.or(0) < 1 {
			needed["head_dim"], needed["hidden_size"] = p.HeadDim, p.Hidden
		}
	case "nemotron_h":
		if p.HeadDim.or(0) < 1 {
			needed["attention_head_dim"] = p.AttentionHeadDim
		}
	default:
		needed["head_dim"] = p.HeadDim
	}
	if err := p.need(needed); err != nil {
		return Attention{}, err
	}
	dim := p.headDim()
	if dim < 1 {
		return Attention{}, p.refuse([]string{"head_dim"}, "it lacks head_dim, and %d heads do not divide a hidden size of %d",
			p.Heads.value, p.Hidden.value)
	}
	heads := p.KVHeads.or(p.Heads.value)
	if heads < 1 || p.Heads.value%heads != 0 {
		return Attention{}, p.refuse([]string{"num_key_value_heads"}, "its %d KV heads do not divide %d attention heads", heads, p.Heads.value)
	}
	return Attention{Kind: GQA, KVHeads: heads, Key: dim, Value: dim}, nil
}

// addLayers adds g to the group of the same shape, or behind the last.
func addLayers(groups []LayerGroup, g LayerGroup) []LayerGroup {
	for i := range groups {
		if groups[i].Kind == g.Kind && groups[i].Attention == g.Attention && groups[i].State.Kind == g.State.Kind {
			groups[i].Layers += g.Layers
			return groups
		}
	}
	return append(groups, g)
}

// minimaxGroups: MiniMax-M3 is head-sharded, and its sparse layers, all draft layers
// among them, have an indexer of one key per token in bf16 that every rank holds
// whole.
func (p *configParser) minimaxGroups() (groups, drafts []LayerGroup, err error) {
	attention, err := p.heads()
	if err != nil {
		return nil, nil, err
	}
	groups = []LayerGroup{{Kind: FullAttention, Layers: p.Layers.value, Attention: attention}}
	if p.SparseAttn.Use.set {
		if err := p.need(map[string]number{"sparse_attention_config.sparse_index_dim": p.SparseAttn.IndexDim}); err != nil {
			return nil, nil, err
		}
		sparse := 0
		for _, f := range p.SparseAttn.Frequency.values {
			if f != 0 {
				sparse++
			}
		}
		if sparse < 1 || len(p.SparseAttn.Frequency.values) != p.Layers.value {
			return nil, nil, p.refuse([]string{"sparse_attention_config.sparse_attention_freq"},
				"sparse_attention_freq does not mark its %d layers", p.Layers.value)
		}
		dim := p.SparseAttn.IndexDim.value
		indexer := Attention{Kind: MLA, KVHeads: 1, Key: dim, RowBytes: dim * elementBytes}
		groups = append(groups, LayerGroup{Kind: Indexer, Layers: sparse, Attention: indexer})
		if n := p.MTPModules.or(0); n > 0 {
			drafts = []LayerGroup{{Kind: FullAttention, Layers: n, Attention: attention}, {Kind: Indexer, Layers: n, Attention: indexer}}
		}
	}
	return groups, drafts, nil
}

// layerKinds says what each layer keeps: as layer_types lists it, or by the rule
// of the family where the config leaves the list out.
func (p *configParser) layerKinds() ([]LayerKind, error) {
	layers := p.Layers.value
	if layers > maxListed {
		return nil, p.refuse([]string{"num_hidden_layers"}, "it has %d layers", layers)
	}
	if p.LayerTypes.bad || (len(p.LayerTypes.values) > 0 && len(p.LayerTypes.values) != layers) {
		return nil, p.refuse([]string{"layer_types"}, "layer_types does not list its %d layers", layers)
	}
	if p.ModelType == "exaone4" && p.SlidingWindow.or(0) > 0 && len(p.LayerTypes.values) == 0 {
		return nil, p.refuse([]string{"layer_types"}, "it has a sliding_window and does not list the layers that have it")
	}
	kinds := make([]LayerKind, layers)
	for i := range kinds {
		kinds[i] = p.ruleKind(i)
		if len(p.LayerTypes.values) > 0 {
			kind, ok := namedKind(p.LayerTypes.values[i])
			if !ok {
				return nil, p.refuse([]string{"layer_types"}, "layer_types names the kind %q", p.LayerTypes.values[i])
			}
			kinds[i] = kind
		}
	}
	for _, full := range p.AttnTypeList.values {
		if full != 1 {
			return nil, p.refuse([]string{"attn_type_list"}, "attn_type_list has layers of type %d, not attention", full)
		}
	}
	return kinds, nil
}

func namedKind(name string) (LayerKind, bool) {
	switch strings.ToLower(name) {
	case "full_attention", "attention":
		return FullAttention, true
	case "sliding_attention":
		return SlidingWindow, true
	case "chunked_attention":
		return ChunkedLocal, true
	case "linear_attention":
		return Recurrent, true
	}
	return "", false
}

// ruleKind is what layer i keeps by the rule of its family. Where a plain family
// gives a sliding_window, it is that of every layer; Qwen's counts only from
// max_window_layers on, and only with use_sliding_window.
func (p *configParser) ruleKind(i int) LayerKind {
	windowed := p.SlidingWindow.or(0) > 0
	switch p.ModelType {
	case "llama4_text":
		full := (i+1)%max(p.NoRopeInterval.or(4), 1) == 0
		if i < len(p.NoRopeLayers.values) {
			full = p.NoRopeLayers.values[i] == 0
		}
		if full {
			return FullAttention
		}
		return ChunkedLocal
	case "gemma3_text":
		windowed = (i+1)%max(p.SlidingWindowPattern.or(6), 1) != 0
	case "gemma2", "gpt_oss":
		windowed = i%2 == 0
	case "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text":
		if (i+1)%max(p.FullInterval.or(4), 1) != 0 {
			return Recurrent
		}
		windowed = false
	case "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "mimo",
		"qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text":
		windowed = windowed && p.UseSlidingWindow.set && i >= p.MaxWindowLayers.or(0)
	}
	if windowed {
		return SlidingWindow
	}
	return FullAttention
}
