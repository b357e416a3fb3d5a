package engine

// sglangDialect is SGLang's spelling: plain argparse, names with dashes. Names,
// aliases and arities are those of the released package 0.5.23; enable-dp-attention
// and disable-cuda-graph are deprecated there and still read.
var sglangDialect = dialect{flags: sglangFlags, env: sglangEnv, released: sglangReleased}

var (
	attentionDP   = role("layout.dp")
	sglangRank    = never("the operator places the pods of a replica; layout.dp and layout.tp say how many ranks there are")
	sglangRouting = never("the router chooses data parallel ranks by the bootstrap room")
)

var sglangFlags = []known{
	{name: "model-path", aliases: []string{"model"}, owner: spec("model.name")},
	{name: "served-model-name", owner: spec("model.servedName")},
	{name: "config", owner: never("flags inside a file can't be checked: put them into args")},
	{name: "host", owner: never("the agent and the probes reach the engine on all addresses of the pod")},
	{name: "port", whole: true, owner: ports},
	{name: "context-length", owner: spec("model.maxLength")},

	{name: "tp-size", aliases: []string{"tensor-parallel-size"}, whole: true, owner: role("layout.tp")},
	{name: "pp-size", aliases: []string{"pipeline-parallel-size"}, whole: true, owner: role("layout.pp")},
	{name: "dcp-size", aliases: []string{"decode-context-parallel-size"}, whole: true, owner: role("layout.dcp")},
	{name: "dp-size", aliases: []string{"data-parallel-size"}, whole: true, owner: attentionDP},
	{name: "attn-dp-size", aliases: []string{"attention-data-parallel-size"}, whole: true, owner: attentionDP},
	{name: "enable-dp-attention", takes: mark, owner: attentionDP},
	{name: "load-balance-method", owner: sglangRouting},
	{name: "nnodes", whole: true, owner: sglangRank},
	{name: "node-rank", whole: true, owner: sglangRank},
	{name: "dist-init-addr", aliases: []string{"nccl-init-addr"}, owner: ports},
	{name: "nccl-port", whole: true, owner: ports},

	{name: "page-size", whole: true, owner: spec("engine.blockSize")},
	{name: "kv-cache-dtype", owner: spec("engine.kvCacheType")},
	{name: "disaggregation-mode", owner: kvTransfer},
	{name: "disaggregation-transfer-backend", owner: kvTransfer},
	{name: "disaggregation-bootstrap-port", whole: true, owner: ports},
	{name: "enable-pd-role-switch", takes: mark, owner: never("the role of a pod is that of the spec")},

	// Not the operator's, listed for their arity or because they bear on the KV cache.
	{name: "disaggregation-ib-device"},
	{name: "disaggregation-decode-enable-radix-cache", takes: mark},
	{name: "disaggregation-decode-enable-offload-kvcache", takes: mark},
	{name: "disaggregation-decode-extra-slots", whole: true},
	{name: "disaggregation-decode-polling-interval", whole: true},
	{name: "num-reserved-decode-tokens", whole: true},
	{name: "ep-size", aliases: []string{"expert-parallel-size", "ep"}, whole: true},
	{name: "ep-dispatch-algorithm"},
	{name: "ep-num-redundant-experts", whole: true},
	{name: "moe-dp-size", aliases: []string{"moe-data-parallel-size"}, whole: true},
	{name: "moe-dense-tp-size", whole: true},
	{name: "moe-a2a-backend"},
	{name: "moe-runner-backend"},
	{name: "attn-cp-size", aliases: []string{"attention-context-parallel-size"}, whole: true},
	{name: "enable-prefill-cp", takes: mark},
	{name: "cp-strategy"},
	{name: "dcp-comm-backend"},
	{name: "dcp-replicate-q-proj", takes: toggle},
	{name: "enable-dp-lm-head", takes: mark},
	{name: "mem-fraction-static"},
	{name: "max-total-tokens"},
	{name: "max-running-requests", whole: true},
	{name: "chunked-prefill-size", whole: true},
	{name: "max-prefill-tokens", whole: true},
	{name: "swa-full-tokens-ratio"},
	{name: "disable-hybrid-swa-memory", takes: mark},
	{name: "mamba-full-memory-ratio"},
	{name: "max-mamba-cache-size", whole: true},
	{name: "attention-backend"},
	{name: "prefill-attention-backend"},
	{name: "decode-attention-backend"},
	{name: "speculative-algorithm"},
	{name: "speculative-draft-model-path", aliases: []string{"speculative-draft-model"}},
	{name: "speculative-num-steps", whole: true},
	{name: "speculative-eagle-topk", whole: true},
	{name: "speculative-num-draft-tokens", whole: true},
	{name: "speculative-draft-kv-cache-dtype"},
	{name: "enable-hierarchical-cache", aliases: []string{"enable-hicache"}, takes: mark},
	{name: "hicache-ratio"},
	{name: "hicache-size", whole: true},
	{name: "hicache-storage-backend"},
	{name: "disable-radix-cache", takes: mark},
	{name: "enable-unified-memory", takes: mark},
	{name: "enable-hisparse", takes: mark},
	{name: "enable-kv-cache-sharding", takes: mark},
	{name: "enable-dsa-cache-layer-split", takes: mark},
	{name: "disable-cuda-graph", takes: mark},
	{name: "disable-overlap-schedule", takes: mark},
	{name: "trust-remote-code", takes: mark},
	{name: "skip-server-warmup", takes: mark},
	{name: "enable-metrics", takes: mark},
	{name: "dtype"},
	{name: "quantization"},
	{name: "revision"},
	{name: "load-format"},
	{name: "tokenizer-path"},
	{name: "tool-call-parser"},
	{name: "reasoning-parser"},
	{name: "random-seed", whole: true},
	{name: "log-level"},
}

var sglangEnv = map[string]owner{
	"SGLANG_HOST_IP":     never("the operator sets the pod's IP"),
	"HOST_IP":            never("the operator sets the pod's IP"),
	"MORI_NODE_ID":       never("the operator sets it to the node; a constant would make MoRI take xGMI between nodes"),
	"SGLANG_RUST_SERVER": never("it moves the bootstrap server to the port of the API"),
}
