package kvlayout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// buildGroups builds the groups of a model and of its draft layers from a config.
type buildGroups func(p *configParser) (groups, drafts []LayerGroup, err error)

// builders says how the fields of a model_type are read. A type is here only where the
// code of the engines has been read: models and KV cache specs of vLLM 0.33.0, defaults
// of Transformers 5.24.
var builders = sync.OnceValue(func() map[string]buildGroups {
	all := map[string]buildGroups{}
	for _, f := range []struct {
		build buildGroups
		types []string
	}{
		{(*configParser).mlaGroups, []string{"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite"}},
		{(*configParser).headGroups, []string{
			"llama", "mistral", "mixtral", "granite", "granitemoe", "olmo2", "phi3",
			"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "mimo",
			"qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "ernie4_5", "ernie4_5_moe", "exaone4",
			"glm4", "glm4_moe", "glm4v_moe_text", "minimax_m2", "gpt_oss", "gemma2", "gemma3_text", "llama4_text",
		}},
		{(*configParser).gemma4Groups, []string{"gemma4_text"}},
		{(*configParser).minimaxGroups, []string{"minimax_m3", "minimax_m3_text", "minimax_m3_vl"}},
		{(*configParser).kimiGroups, []string{"kimi_linear"}},
		{(*configParser).gatedDeltaGroups, []string{"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"}},
		{(*configParser).mambaGroups, []string{"nemotron_h", "granitemoehybrid"}},
	} {
		for _, t := range f.types {
			all[t] = f.build
		}
	}
	return all
})

// familyOf says how the fields of a model_type are read; nil for one that is not
// known.
func familyOf(modelType string) buildGroups { return builders()[modelType] }

// typeOf is the model_type of the language model of an architecture, where their names
// say the same: LlamaForCausalLM is llama, Gemma3ForConditionalGeneration gemma3_text.
// It is "" for one that is not known.
func typeOf(architecture string) string {
	name, causal := strings.CutSuffix(architecture, "ForCausalLM")
	if !causal {
		name = strings.TrimSuffix(architecture, "ForConditionalGeneration")
	}
	if name == "" || name == architecture {
		return ""
	}
	plain := func(t string) string { return strings.ReplaceAll(t, "_", "") }
	name = plain(strings.ToLower(name))
	for _, t := range sortedKeys(builders()) {
		if plain(t) == name || plain(strings.TrimSuffix(t, "_text")) == name {
			return t
		}
	}
	for _, t := range []string{"deepseek_v4", "deepseek_v41", "gemma3n", "mimo_v2_flash"} {
		if plain(t) == name {
			return t
		}
	}
	return ""
}

// nearType says in a clause which known model_type is spelled like an unknown one.
func nearType(modelType string) string {
	best := Nearest(modelType, sortedKeys(builders()), 3)
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}

// beyondModel says why a Model cannot say what a model_type caches; "" for one
// that is not known either.
func beyondModel(modelType string) string {
	switch modelType {
	case "deepseek_v4", "deepseek_v41", "deepseek_ref":
		return "its layers cache compressed tokens beside a window (compress_ratios), which has no geometry here"
	case "glm5_next", "glm5_next_text":
		return "its indexer caches pooled keys (index_kpool), which have no geometry here"
	case "gemma3n", "gemma3n_text":
		return "some of its layers use the cache of others"
	case "mimo_v2_flash":
		return "its windowed layers have other heads than its full ones, which have no geometry here"
	}
	return ""
}

func sortedKeys[V any](fields map[string]V) []string {
	return slices.Sorted(maps.Keys(fields))
}
