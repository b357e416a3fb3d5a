package kvlayout

import "sync"

// Feature is something that an engine can do from some release on.
type Feature string

// The features that rules depend on: first those of vLLM's MoRIIO connector and of
// vLLM on ROCm, then those of SGLang with its mori backend.
const (
	featureReadDP           Feature = "reads between tp and dp"
	featureWriteTP          Feature = "writes between unequal tp"
	featureWriteState       Feature = "writes of recurrent state"
	featureWriteWindows     Feature = "writes of sliding windows"
	featureChunks           Feature = "block lists for chunks"
	featureDCPRelayout      Feature = "writes from no dcp to dcp"
	featureStages           Feature = "pipeline stages and prefill context parallelism beside the connector"
	featureHybridShapes     Feature = "hybrid models of any shape"
	featureOneSidedDrafts   Feature = "draft layers on the side that moves bytes alone"
	featureOwnBlocks        Feature = "block sizes that are said on one side alone"
	featureMambaCheckpoints Feature = "states of Mamba2 from the middle of a step"
	featureXGMIWait         Feature = "xGMI completion before the transfer timeout"
	featureKernelBlocks     Feature = "blocks of several kernel blocks"
	featureDCPHeads         Feature = "dcp without MLA on ROCm"
	featureDCPSparse        Feature = "dcp with sparse MLA on ROCm"
	featureDCPWindows       Feature = "dcp with sliding windows"
	featureDCPBackends      Feature = "dcp with other attention than dense MLA on ROCm"
	featureDCPSpeculation   Feature = "speculation with an interleave above 1 on ROCm"
	featureDenseEP          Feature = "expert parallelism without experts"
	featureRocmAttention    Feature = "a KV connector with ROCM_ATTN"
	featurePlainMori        Feature = "an all-to-all backend mori"
	featureSGLangDCP        Feature = "dcp on decode with mori"
	featureSGLangSparseDCP  Feature = "dcp with sparse attention"
	featureSGLangHeadCopies Feature = "copies of KV heads on decode alone"
	featureSGLangDCPHeads   Feature = "dcp on decode without MLA"
	featureSGLangDecodeCP   Feature = "context parallelism on decode"
	featureSGLangWindowTP   Feature = "windows between unequal tp"
	featureSGLangIndexTP    Feature = "head-sharded indexers between unequal tp or with stages"
)

// Features on which others depend too: who pairs instances, and who reads command lines.
const (
	// FeatureWriteFailed: vLLM's connector counts the writers of a transfer, and may say
	// that one failed, so that releases with it and without don't understand each other.
	FeatureWriteFailed Feature = "write_failed and the number of writers"
	// FeatureReadModeEnv: VLLM_MORIIO_CONNECTOR_READ_MODE decides the mode of MoRIIO, and
	// read_mode in the extra configuration of its connector does not.
	FeatureReadModeEnv Feature = "read mode from the environment"
	// FeatureDecodeCacheDCP: decode with DCP may keep a radix or a hierarchical cache.
	FeatureDecodeCacheDCP Feature = "decode caches with dcp"
	// FeatureAttentionDPSize: --attn-dp-size, in place of --dp-size with
	// --enable-dp-attention.
	FeatureAttentionDPSize Feature = "--attn-dp-size"
)

// Support is what is known of a release.
type Support int

// The answers of Supports. Unknown is also that of a release that nobody looked at.
const (
	Unknown Support = iota
	Lacks
	Has
)

// Fact bounds a feature by releases of its engine, as read in released packages
// (vLLM 0.22.0, 0.23.0, 0.26.0, 0.27.0, 0.29.0, 0.32.0 and 0.33.0, SGLang 0.5.20 to 0.5.23; the
// newest on 2026-11-29).
type Fact struct {
	Feature Feature `json:"feature"`
	Engine  Engine  `json:"engine"`
	// Since is the first release that was seen to have it, "" where none is known.
	Since string `json:"since,omitempty"`
	// Without is the newest release known to lack it, and From the oldest: of those
	// before From nothing is known, unless Lost says that they had it. An empty From
	// is all up to Without. Of releases between Without and Since nothing is known.
	Without string `json:"without,omitempty"`
	From    string `json:"from,omitempty"`
	Lost    bool   `json:"lost,omitempty"`
	Source  string `json:"source"`
}

// Facts is the table of version-bound facts.
func Facts() []Fact {
	lacks := func(f Feature, e Engine, from, without, source string) Fact {
		return Fact{Feature: f, Engine: e, From: from, Without: without, Source: source}
	}
	since := func(f Feature, e Engine, without, first, source string) Fact {
		return Fact{Feature: f, Engine: e, Since: first, Without: without, Source: source}
	}
	const v33, s23 = "0.33.0", "0.5.23"
	return []Fact{
		since(featureReadDP, VLLM, "0.26.0", "0.27.0", "_resolve_read_source in moriio_connector.py of 0.27.0, not of 0.26.0"),
		since(featureWriteTP, VLLM, "0.32.0", v33, "moriio_tp_mapping.py and kv_head_layouts in the package of 0.33.0, not of 0.32.0"),
		since(featureWriteState, VLLM, "0.32.0", v33, "mamba_state_layouts in moriio_common.py of 0.33.0, not of 0.32.0"),
		since(FeatureWriteFailed, VLLM, "0.32.0", v33, "write_failed and num_writers in moriio_engine.py of 0.33.0, not of 0.32.0"),
		since(featureMambaCheckpoints, VLLM, "0.29.0", "0.32.0", "get_kv_cache_spec in mamba_mixer2.py of 0.32.0 and 0.33.0, which 0.29.0 does not have"),
		lacks(featureWriteWindows, VLLM, v33, v33, "NotImplementedError in the constructor of MoRIIOConnectorScheduler of 0.33.0"),
		lacks(featureChunks, VLLM, v33, v33, "NotImplementedError in the constructor of MoRIIOConnectorScheduler of 0.33.0, and envs.py, whose default keeps the hybrid manager on"),
		lacks(featureDCPRelayout, VLLM, "", v33, "vllm-project/vllm#64722, nothing of which is in the package of 0.33.0"),
		lacks(featureStages, VLLM, "", v33, "get_port_offset in moriio_common.py of 0.33.0 knows dp and tp only"),
		lacks(featureHybridShapes, VLLM, v33, v33, "MoRIIOConnectorScheduler, _validate_mamba_specs and _validate_hybrid_speculation of 0.33.0"),
		{
			Feature: featureXGMIWait, Engine: VLLM, From: v33, Without: v33, Lost: true,
			Source: "one wait_all with the whole transfer_timeout in moriio_engine.py of 0.33.0, 0.32.0 polled; vllm-project/vllm#64330 is not in it",
		},
		lacks(featurePlainMori, VLLM, "0.26.0", v33, "All2AllBackend in config/parallel.py of 0.26.0, 0.29.0 and 0.33.0 has mori_high_throughput and mori_low_latency, and no mori"),
		{
			Feature: FeatureReadModeEnv, Engine: VLLM, From: "0.23.0", Without: v33, Lost: true,
			Source: "moriio_common.py asks envs.py in 0.22.0, and the extra configuration alone from 0.23.0 on",
		},
		lacks(featureOneSidedDrafts, VLLM, v33, v33, "_get_built_session in moriio_connector.py of 0.33.0"),
		lacks(featureOwnBlocks, VLLM, v33, v33, "DEFAULT_BLOCK_SIZE in config/cache.py and get_preferred_block_size of the ROCm backends of 0.33.0"),
		lacks(featureKernelBlocks, VLLM, v33, v33, "get_layer_transfer_geometry in moriio_layout.py of 0.33.0, block sizes of rocm_aiter_fa.py"),
		lacks(featureDCPHeads, VLLM, v33, v33, "can_return_lse_for_decode of the ROCm backends of 0.33.0"),
		lacks(featureDCPSparse, VLLM, v33, v33, "can_return_lse_for_decode of the ROCm backends of 0.33.0"),
		lacks(featureDCPWindows, VLLM, v33, v33, "SlidingWindowSpec in kv_cache_interface.py of 0.33.0"),
		lacks(featureDCPBackends, VLLM, v33, v33, "check_attention_cp_compatibility in cp_utils.py of 0.33.0"),
		lacks(featureDCPSpeculation, VLLM, v33, v33, "check_attention_cp_compatibility in cp_utils.py, supports_mtp_with_cp_non_trivial_interleave_size of the ROCm backends of 0.33.0"),
		lacks(featureDenseEP, VLLM, v33, v33, "_verify_with_expert_parallelism in config/model.py of 0.33.0"),
		lacks(featureRocmAttention, VLLM, v33, v33, "supports_kv_connector in rocm_attn.py of 0.33.0"),
		since(featureSGLangDCP, SGLang, "0.5.21", "0.5.22", "pd_disaggregation_hook.py takes mori with --dcp-size in 0.5.22, and refuses it in 0.5.21"),
		lacks(featureSGLangSparseDCP, SGLang, "0.5.22", s23, "_dsa_dcp_overrides in arg_groups/model_overrides/deepseek_v2.py of 0.5.22 and 0.5.23"),
		{
			Feature: featureSGLangHeadCopies, Engine: SGLang, From: "0.5.20", Without: "0.5.20", Since: "0.5.21",
			Source: "_build_tp_slice_config in disaggregation/mori/conn.py of 0.5.20 and 0.5.21, sgl-project/sglang#39660",
		},
		lacks(featureSGLangDCPHeads, SGLang, s23, s23, "try_ensure_parallel_info in disaggregation/common/conn.py of 0.5.23"),
		lacks(featureSGLangDecodeCP, SGLang, s23, s23, "_resolve_rank_mapping in disaggregation/common/conn.py of 0.5.23"),
		lacks(featureSGLangWindowTP, SGLang, s23, s23, "_send_swa_dsa_state in disaggregation/mori/conn.py of 0.5.23"),
		since(FeatureDecodeCacheDCP, SGLang, "0.5.20", "0.5.21", "pd_disaggregation_hook.py refuses both caches with --dcp-size in 0.5.20, and neither in 0.5.21"),
		since(FeatureAttentionDPSize, SGLang, "0.5.21", "0.5.22", "fields/parallel.py of 0.5.22; 0.5.21 has no such argument"),
		lacks(featureSGLangIndexTP, SGLang, s23, s23, "_send_swa_dsa_state in disaggregation/mori/conn.py of 0.5.23 (minimax_index_k)"),
	}
}

// factOf finds the fact of a feature.
func factOf(f Feature) (Fact, bool) {
	fact, ok := factTable()[f]
	return fact, ok
}

var factTable = sync.OnceValue(func() map[Feature]Fact {
	table := map[Feature]Fact{}
	for _, fact := range Facts() {
		table[fact.Feature] = fact
	}
	return table
})

// Supports says whether a release of the feature's engine has it. Unknown are a
// version that cannot be read, a pre-release of the first release that has it, and
// releases that nobody looked at.
func Supports(version string, f Feature) Support {
	r, ok := ParseRelease(version)
	fact, known := factOf(f)
	if !ok || !known {
		return Unknown
	}
	if since, ok := ParseRelease(fact.Since); ok {
		switch c := r.Compare(since); {
		case c > 0 || c == 0 && !r.Pre:
			return Has
		case c == 0:
			return Unknown
		}
	}
	if from, ok := ParseRelease(fact.From); ok && r.Compare(from) < 0 {
		if fact.Lost {
			return Has
		}
		return Unknown
	}
	if without, ok := ParseRelease(fact.Without); ok && r.Compare(without) <= 0 {
		return Lacks
	}
	return Unknown
}
