package kvlayout

// vllmSideRules are vLLM's rules on one instance that need more than its degrees.
func vllmSideRules() []rule {
	return []rule{
		side("ep-moe", Refuse, "expert parallelism comes with experts",
			"vLLM stops at start when it is asked to spread experts of a model without any", epMoE, "degrees").
			of(featureDenseEP),
		side("ep-size", Refuse, "the degree of expert parallelism is one that the engine has",
			"vLLM spreads experts over all ranks of tp and dp or not at all; SGLang cuts the TP group into equal parts",
			epSize, "degrees", "ep-moe"),
		side("all-to-all", Refuse, "the all-to-all backend of expert parallelism is one that vLLM has",
			"the backend mori became two, one for long steps and one for short ones, and vLLM stops at start on the old name", allToAll).
			of(featurePlainMori),
		side("interleave-speculation", Refuse, "with DCP and speculative decoding, the interleave is 1",
			"no attention backend of vLLM for AMD GPUs verifies draft tokens in groups of more than one", interleaveSpeculation,
			"degrees", "dcp-tp", "interleave-block").of(featureDCPSpeculation),
		side("dcp-backend", Refuse, "DCP comes with an attention backend that has it",
			"each rank attends to its share of the tokens, which takes a backend that returns the softmax sums to join them; "+
				"on AMD GPUs those are ROCM_AITER_MLA, ROCM_AITER_TRITON_MLA and TRITON_MLA, for dense MLA",
			dcpBackend, "degrees", "dcp-tp", "dcp-gqa").
			of(featureDCPHeads, featureDCPSparse, featureDCPWindows, featureDCPBackends),
		side("pp-moriio", Refuse, "an instance of vLLM has no pipeline stages and no prefill context parallelism",
			"the connector counts its ports by dp and tp rank only, so stages of a pod bind the same port and the engine hangs at start, "+
				"and a peer knows no address of the others",
			ppMoRIIO, "degrees").of(featureStages),
		side("tp-nodes", Refuse, "a TP group lies on one node",
			"a peer dials all ranks of a group at one address, so those on other nodes are never reached", tpNodes, "degrees", "gpus-per-pod"),
		side("attention-connector", Refuse, "the attention backend takes KV connectors",
			"ROCM_ATTN keeps keys and values apart, and vLLM stops at start when a connector is asked for with it", attentionConnector).
			of(featureRocmAttention),
		side("kernel-block", Refuse, "with vLLM's own connector, a block is one block of the attention backend",
			"ROCM_AITER_FA works on blocks of 16 or 32 tokens; larger ones are several of its own, whose shape the connector refuses at start",
			kernelBlock).of(featureKernelBlocks),
		side("conv-layout", Refuse, "with vLLM's own connector, and between unequal tp, convolution states are stored by dimension",
			"ranks take parts of each projection, which lie apart in any other order; the engine stops at start", convLayout),
		side("block-mamba", Warn, "with states kept at the ends of blocks, a step holds a block",
			"a prefill step that ends before the end of a block leaves no state to go on from", blockMamba, "degrees"),
		side("hybrid-shape", Refuse, "with vLLM's own connector, recurrent state comes in a company that it knows",
			"it moves one kind of state beside attention, beside one kind of attention in Read mode, and with no draft layers but DSpark's; "+
				"the engine stops at start",
			hybridShape, "degrees").of(featureHybridShapes),
		side("chunked-attention", Refuse, "with vLLM's own connector, no layers have block lists for chunks",
			"the connector knows full attention, windows and recurrent states; the engine stops at start", chunkedAttention).of(featureChunks),
		side("sliding-window-write", Refuse, "with vLLM's own connector in Write mode, no layers have block lists for windows",
			"the connector writes the whole prompt and cannot tell which blocks a window has left; the engine stops at start",
			slidingWindowWrite).of(featureWriteWindows),
	}
}

// vllmPairRules are vLLM's rules on a pair that need more than degrees.
func vllmPairRules() []rule {
	return []rule{
		both("interleave-indexer", Refuse, "where tokens are dealt, a model with an indexer has an interleave of a block",
			"an indexer's block holds keys, then scales, so it is moved whole", interleaveIndexer,
			"degrees", "dcp-mla", "dcp-read", "interleave-block"),
		both("interleave-pieces", Warn, "where tokens are dealt over RDMA, pieces are large",
			"each group of interleaved tokens is a write of its own, and a network card does some millions of them a second "+
				"(about 7 GB/s at 1 KiB)",
			interleavePieces, "degrees", "dcp-mla", "dcp-read", "dcp-version", "interleave-block").costs(),
		both("model-same", Refuse, "both sides serve the same model",
			"a cache is of use to the model that made it", modelSame),
		both("attention-pair", Warn, "both sides use the same attention backend",
			"backends may order or scale a cache of one type differently, and no handshake compares that", attentionPair),
		both("read-dp", Refuse, "in Read mode with vLLM's own connector, data parallelism needs 0.27.0",
			"before vLLM 0.27.0 decode reads from prefill's rank 0 whatever rank has the cache, and its ranks wait for each other's handshakes",
			readDP, "degrees").of(featureReadDP),
		both("hybrid-write", Refuse, "in Write mode with vLLM's own connector, recurrent state needs 0.33.0",
			"before vLLM 0.33.0 the connector writes attention layers only", hybridWrite, "degrees").of(featureWriteState),
		both("recurrent-tp", Refuse, "in Read mode with vLLM's own connector, recurrent state needs equal tp",
			"the connector reads whole states and cannot cut a rank's share out of them", recurrentTP, "degrees", "tp-multiple"),
		both("draft-layers", Refuse, "with vLLM's own connector, both sides cache draft layers, or neither",
			"the side that moves the bytes asks the other one for each of its layers by name, and the request hangs on one that is not there",
			draftLayers).of(featureOneSidedDrafts),
		both("read-groups", Warn, "in Read mode with vLLM's own connector, a model has one block list",
			"of a request with several block lists vLLM can't take back the blocks of one failed read, and the decode engine ends",
			readGroups).costs(),
		both("xgmi-wait", Warn, "with vLLM's own connector over XGMI, completion is seen in time",
			"vLLM 0.33.0 waits for a transfer in one piece, which MoRI sleeps out to the transfer timeout (30 s) on this backend; "+
				"MORI_IO_XGMI_SCATTER_GATHER_THRESHOLD=0 on prefill eases it",
			xgmiWait).of(featureXGMIWait).costs(),
		both("mixed-versions", Refuse, "both sides run releases of vLLM that speak the same protocol",
			"an older decode ends a transfer at the first of several writers, and a message of a newer prefill ends its listener",
			mixedVersions, "degrees", "tp-multiple", "tp-write", "hybrid-write").of(FeatureWriteFailed).costs(),
	}
}

// capacityRules never refuse: what is too much for a while may be bearable.
func capacityRules() []rule {
	return []rule{
		side("capacity-length", Warn, "the KV cache holds a sequence of the longest length",
			"vLLM does not start where one sequence of max-model-len does not fit, and SGLang cuts it", capacityLength, "degrees"),
		both("capacity-inflight", Warn, "decode's KV cache holds the load",
			"requests wait for decode's blocks, and prefill gives a transfer up when it has waited 60 s", capacityInflight, "degrees"),
	}
}
