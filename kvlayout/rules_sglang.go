package kvlayout

// sglangSideRules are those of SGLang on one instance.
func sglangSideRules() []rule {
	return []rule{
		side("sglang-decode-cp", Refuse, "decode has no context parallelism of attention",
			"every decode rank takes whole sequences, and the engine asserts it at the first request", sglangDecodeCP, "degrees").
			of(featureSGLangDecodeCP),
		side("sglang-cp-dcp", Refuse, "DCP and context parallelism of attention don't go together",
			"both split the same ranks", sglangCPDCP, "degrees", "sglang-decode-cp"),
		side("sglang-dcp-backend", Refuse, "DCP on decode needs an SGLang that has it with mori",
			"SGLang before 0.5.22 does not start with it", sglangDCPBackend, "degrees", "dcp-tp").of(featureSGLangDCP),
		side("sglang-sparse-dcp", Refuse, "sparse attention comes without DCP",
			"SGLang stops at start where an instance of a prefill and decode pair deals the tokens of a sparse indexer", sglangSparseDCP,
			"degrees", "dcp-tp", "sglang-dcp-backend").of(featureSGLangSparseDCP),
		side("sglang-dcp-heads", Refuse, "dcp divides the attention heads",
			"heads are gathered over a DCP group and dealt out again; SGLang asserts it at the first decode step", sglangDCPHeads,
			"degrees", "heads-tp", "dcp-tp"),
	}
}

// sglangPairRules are those of SGLang's mori backend on a pair.
func sglangPairRules() []rule {
	return []rule{
		both("pp-pair", Refuse, "decode has as many pipeline stages as prefill, or one",
			"a decode stage takes its layers from one prefill stage, or one decode stage from all; the engine asserts it at the first request",
			ppPair, "degrees"),
		both("sglang-prefill-cp", Refuse, "where decode has DCP, prefill has no context parallelism of attention",
			"tokens are dealt from ranks that hold whole sequences", sglangPrefillCP, "degrees"),
		both("sglang-dcp-mla", Refuse, "DCP on decode needs MLA",
			"mori knows DCP shares of a latent only, so decode fails each request", sglangDCPMLA, "degrees", "dcp-mla", "sglang-dcp-backend").
			of(featureSGLangDCPHeads),
		both("sglang-window-tp", Refuse, "head-sharded models with sliding windows have equal attention tp",
			"mori cannot cut heads out of the cache of a window, so each transfer fails and clients wait", sglangWindowTP, "degrees", "tp-multiple").
			of(featureSGLangWindowTP),
		both("sglang-index-tp", Refuse, "head-sharded models with an indexer have equal attention tp, and no stages",
			"mori pairs the index caches by position and copies them whole", sglangIndexTP, "degrees", "tp-multiple", "pp-pair").
			of(featureSGLangIndexTP),
		both("sglang-state-tp", Warn, "recurrent state has equal attention tp",
			"mori cuts states by dimension, and fails where a part is held whole by every rank", sglangStateTP, "degrees", "tp-multiple"),
		both("sglang-head-copies", Refuse, "decode ranks that copy KV heads take them from a prefill that does, or from an SGLang that counts the copies",
			"before SGLang 0.5.21 mori counts decode ranks as heads, so that copies get another head and answer wrongly", sglangHeadCopies,
			"degrees", "heads-tp", "kv-heads-tp", "tp-multiple", "sglang-window-tp", "sglang-index-tp").of(featureSGLangHeadCopies),
		both("sglang-heads-tp", Warn, "head-sharded models have equal attention tp",
			"heads are cut out of each token, one piece per token, layer, key and value", sglangHeadsTP,
			"degrees", "tp-multiple", "sglang-window-tp", "sglang-index-tp", "sglang-head-copies").costs(),
		both("sglang-speculation", Warn, "both sides speculate, or neither",
			"draft layers add caches that the other side does not have; older releases paired them by position and decoded from wrong ones",
			sglangSpeculation),
	}
}
