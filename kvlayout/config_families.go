package kvlayout

import (
	"maps"
	"slices"
)

// buildGroups builds the groups of a model and of its draft layers from a config.
type buildGroups func(p *configParser) (groups, drafts []LayerGroup, err error)

// familyOf says how the fields of a model_type are read; nil for one that is not
// known. A type is here only where the code of the engines has been read: models
// and KV cache specs of vLLM 0.33.0, defaults of Transformers 5.24.
func familyOf(modelType string) buildGroups {
	switch modelType {
	case "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite":
		return (*configParser).mlaGroups
	case "llama", "mistral", "mixtral", "granite", "granitemoe", "olmo2", "phi3",
		"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "mimo",
		"qwen3", "qwen3_moe", "qwen3_vl_text", "qwen3_vl_moe_text", "ernie4_5", "ernie4_5_moe", "exaone4",
		"glm4", "glm4_moe", "glm4v_moe_text", "minimax_m2", "gpt_oss", "gemma2", "gemma3_text", "llama4_text":
		return (*configParser).headGroups
	case "gemma4_text":
		return (*configParser).gemma4Groups
	case "minimax_m3", "minimax_m3_text", "minimax_m3_vl":
		return (*configParser).minimaxGroups
	case "kimi_linear":
		return (*configParser).kimiGroups
	case "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text":
		return (*configParser).gatedDeltaGroups
	case "nemotron_h", "granitemoehybrid":
		return (*configParser).mambaGroups
	}
	return nil
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

func sortedKeys(fields map[string]number) []string {
	return slices.Sorted(maps.Keys(fields))
}
