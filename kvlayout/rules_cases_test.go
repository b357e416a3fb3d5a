package kvlayout

import "math"

func sideCases() []ruleCase {
	return []ruleCase{
		{"the seed", seedPair(), ""},
		{"tp 8 to tp 8", plainPair(), ""},
		{"degrees", with(func(p *Pair) { p.Prefill.Layout.TP, p.Decode.Layout.DCP = -1, -2 }), "degrees@prefill.layout.tp degrees@decode.layout.dcp"},
		{"nothing follows from a bad degree", with(func(p *Pair) { p.Decode.Layout = Layout{TP: 3, DP: -1} }), "degrees@decode.layout.dp"},
		{"dpLocal", with(func(p *Pair) { p.Decode.Layout = Layout{TP: 1, DP: 8, DPLocal: 3} }), "degrees@decode.layout.dpLocal"},
		{"dpLocal over dp", with(func(p *Pair) { p.Decode.Layout = Layout{TP: 1, DP: 2, DPLocal: 4} }), "degrees@decode.layout.dpLocal"},
		{"SGLang's dp lies inside tp", with(func(p *Pair) { p.Engine, p.Decode.Layout.DP = SGLang, 3 }), "degrees@decode.layout.dp"},
		{"unknown model", on("acme/unheard-of", func(*Pair) {}), "model-geometry@model.geometry?"},
		{"unknown model, nothing to decide", on("acme/unheard-of", func(p *Pair) {
			p.Prefill.Layout, p.Decode.Layout = Layout{TP: 1}, Layout{TP: 1}
		}), ""},
		{"heads", with(func(p *Pair) { p.Prefill.Layout.TP = 3 }), "heads-tp@prefill.layout.tp"},
		{"more ranks than heads", on("deepseek-ai/DeepSeek-V2-Lite", func(p *Pair) { p.Decode.Layout.TP, p.Decode.DevicesPerNode = 32, 32 }), "heads-tp@decode.layout.tp"},
		{"KV heads", on(llama, func(p *Pair) {
			p.Geometry.KVHeads, p.Prefill.Layout.TP, p.Decode.Layout.TP = 6, 6, 8
			p.Geometry.AttentionHeads = 48
		}), "kv-heads-tp@decode.layout.tp"},
		{"copied KV heads", on(qwen, func(*Pair) {}), ""},
		{"dcp", with(func(p *Pair) { p.Mover, p.Decode.Layout = MoverAgent, Layout{TP: 8, DCP: 3} }), "dcp-tp@decode.layout.dcp"},
		{"GQA, no copies of heads", on(llama, func(p *Pair) { p.Prefill.Layout.DCP, p.Decode.Layout.DCP = 2, 2 }), "dcp-gqa@prefill.layout.dcp dcp-gqa@decode.layout.dcp"},
		{"GQA, more dcp than copies", on(qwen, func(p *Pair) { p.Prefill.Layout.DCP, p.Decode.Layout.DCP = 4, 4 }), "dcp-gqa@prefill.layout.dcp dcp-gqa@decode.layout.dcp"},
		{"GQA, dcp among the copies", on(qwen, func(p *Pair) { p.Prefill.Layout.DCP, p.Decode.Layout.DCP = 2, 2 }), "dcp-backend@prefill.layout.dcp dcp-backend@decode.layout.dcp"},
		{"GQA, dcp among the copies, simulator", on(qwen, func(p *Pair) { p.Engine, p.Prefill.Layout.DCP, p.Decode.Layout.DCP = Simulator, 2, 2 }), ""},
		{"GQA, heads per KV head", on(llama, func(p *Pair) {
			p.Geometry = Geometry{Kind: GQA, Layers: 1, AttentionHeads: 24, KVHeads: 8, HeadValues: 128}
			p.Prefill.Layout, p.Decode.Layout = Layout{TP: 24, DCP: 2}, Layout{TP: 24, DCP: 2}
			p.Prefill.DevicesPerNode, p.Decode.DevicesPerNode = 24, 24
		}), "dcp-gqa@prefill.layout.dcp dcp-gqa@decode.layout.dcp"},
		{"interleave over the block", with(func(p *Pair) { p.Mover, p.Decode.Layout = MoverAgent, Layout{TP: 8, DCP: 4, Interleave: 128} }), "interleave-block@decode.layout.interleave"},
		{"interleave, block size not known", with(func(p *Pair) {
			p.Mover, p.Decode.Layout, p.Decode.BlockSize = MoverAgent, Layout{TP: 8, DCP: 4, Interleave: 48}, 0
		}), "block-size@decode.blockSize?"},
		{"interleave without dcp", with(func(p *Pair) { p.Decode.Layout.Interleave = 48 }), "interleave-unused@decode.layout.interleave?"},
		{"dp on a dense model", on(llama, func(p *Pair) { p.Mover, p.Decode.Layout = MoverAgent, Layout{TP: 8, DP: 2, DPLocal: 1} }), "dp-dense@decode.layout.dp?"},
		{"dp on a dense model in one pod", on(llama, func(p *Pair) { p.Decode.Layout = Layout{TP: 8, DP: 2}; p.Decode.DevicesPerNode = 16 }), "dp-dense-ports@decode.layout.dp"},
		{"dp and tp in one pod", with(func(p *Pair) { p.Decode.Layout = Layout{TP: 4, DP: 2} }), "ports-dp-tp@decode.layout.dpLocal"},
		{"dp and tp in one pod, agent", with(func(p *Pair) { p.Mover, p.Decode.Layout = MoverAgent, Layout{TP: 4, DP: 2} }), ""},
		{"one dp rank per pod", with(func(p *Pair) { p.Decode.Layout = Layout{TP: 8, DP: 2, DPLocal: 1} }), ""},
		{"GPUs of one rank", with(func(p *Pair) { p.Mover = MoverAgent; p.Prefill.Layout.PP, p.Prefill.DevicesPerNode = 2, 12 }), "gpus-per-pod@prefill.layout.tp pp-moriio@prefill.layout.pp"},
		{"GPUs of several ranks", with(func(p *Pair) { p.Mover, p.Decode.Layout = MoverAgent, Layout{TP: 4, DP: 3} }), "gpus-per-pod@decode.layout.dpLocal"},
		{"whole nodes that cut a rank", with(func(p *Pair) {
			p.Mover, p.Decode.Layout = MoverAgent, Layout{TP: 16, DP: 3}
			p.Decode.DevicesPerNode = 24
		}), "gpus-per-pod@decode.layout.dpLocal"},
		{"stages over a node", with(func(p *Pair) { p.Mover = MoverAgent; p.Prefill.Layout.PP = 9; p.Prefill.DevicesPerNode = 7 }), "gpus-per-pod@prefill.layout.pp pp-moriio@prefill.layout.pp"},
		{"huge numbers", with(func(p *Pair) {
			p.HasGeometry = false
			p.Decode.Layout = Layout{TP: math.MaxInt, PP: math.MaxInt}
		}), "degrees@decode.layout.tp degrees@decode.layout.pp model-geometry@model.geometry?"},
		{"one rank on a node, dpLocal not said", with(func(p *Pair) { p.Decode.Layout = Layout{TP: 8, DP: 2} }), ""},
		{"whole nodes", with(func(p *Pair) { p.Prefill.Layout, p.Decode.Layout = Layout{TP: 16}, Layout{TP: 16} }), ""},
	}
}

func pairCases() []ruleCase {
	tp := func(p *Pair, prefill, decode int) { p.Prefill.Layout.TP, p.Decode.Layout.TP = prefill, decode }
	dcp := func(p *Pair, prefill, decode int) { p.Prefill.Layout.DCP, p.Decode.Layout.DCP = prefill, decode }
	kimi := "moonshotai/Kimi-K2-Instruct"
	return []ruleCase{
		{"no multiple", on(kimi, func(p *Pair) { p.Geometry.AttentionHeads = 48; tp(p, 4, 6) }), "tp-multiple@decode.layout.tp"},
		{"no multiple, latent, agent", on(kimi, func(p *Pair) { p.Geometry.AttentionHeads = 48; p.Mover = MoverAgent; tp(p, 4, 6) }), ""},
		{"no multiple, heads, agent", on(llama, func(p *Pair) {
			p.Geometry.AttentionHeads, p.Geometry.KVHeads, p.Mover = 48, 12, MoverAgent
			tp(p, 4, 6)
		}), "tp-multiple@decode.layout.tp"},
		{"no multiple follows from heads", on(llama, func(p *Pair) { tp(p, 4, 6) }), "heads-tp@decode.layout.tp"},
		{"heads in Read", on(llama, func(p *Pair) { p.Mode = Read; tp(p, 4, 8) }), "tp-heads@transfer.mover"},
		{"heads in Read, copied", on(qwen, func(p *Pair) { p.Mode = Read; tp(p, 4, 8) }), ""},
		{"heads in Read, agent", on(llama, func(p *Pair) { p.Mode, p.Mover = Read, MoverAgent; tp(p, 4, 8) }), ""},
		{"heads in Write", on(llama, func(p *Pair) { tp(p, 4, 8) }), ""},
		{"heads in Write, old version", on(llama, func(p *Pair) { p.Version = "v0.32.0"; tp(p, 4, 8) }), "tp-write@transfer.mover"},
		{"heads in Write, unknown version", on(llama, func(p *Pair) { p.Version = ""; tp(p, 4, 8) }), "tp-write@engine.version?"},
		{"heads in Write, pre-release", on(llama, func(p *Pair) { p.Version = "0.33.0rc1"; tp(p, 4, 8) }), "tp-write@engine.version?"},
		{"heads in Write, old version, Auto", on(llama, func(p *Pair) { p.Version, p.Mover = "0.29", MoverAuto; tp(p, 4, 8) }), ""},
		{"heads in Write, SGLang", on(llama, func(p *Pair) { p.Engine, p.Version = SGLang, "0.5.2"; tp(p, 4, 8) }), "sglang-heads-tp@decode.layout.tp?"},

		{"dcp 2 to 4", with(func(p *Pair) { dcp(p, 2, 4) }), "dcp-mix@prefill.layout.dcp"},
		{"dcp to none", with(func(p *Pair) { dcp(p, 4, 1) }), "dcp-mix@prefill.layout.dcp"},
		{"equal dcp", with(func(p *Pair) { dcp(p, 4, 4) }), ""},
		{"equal dcp in Read", with(func(p *Pair) { p.Mode = Read; dcp(p, 4, 4) }), ""},
		{"equal dcp, other interleave", with(func(p *Pair) { dcp(p, 4, 4); p.Decode.Layout.Interleave = 64 }), "dcp-interleave@prefill.layout.interleave"},
		{"equal dcp, other tp", with(func(p *Pair) { dcp(p, 4, 4); tp(p, 8, 4) }), "dcp-tp-pair@transfer.mover"},
		{"equal dcp, other tp, agent", with(func(p *Pair) { p.Mover = MoverAgent; dcp(p, 4, 4); tp(p, 8, 4) }), ""},
		{"equal dcp, other tp, Auto", with(func(p *Pair) { p.Mover = MoverAuto; dcp(p, 4, 4); tp(p, 8, 4) }), ""},
		{"equal dcp, other tp, SGLang", with(func(p *Pair) { p.Engine, p.Mover = SGLang, MoverAuto; dcp(p, 4, 4); tp(p, 8, 4) }), "dcp-tp-pair@decode.layout.tp"},
		{"dealt GQA", on(qwen, func(p *Pair) { p.Mover = MoverAgent; dcp(p, 1, 2) }), "dcp-mla@decode.layout.dcp"},
		{"dealt, model not known", on("acme/unheard-of", func(p *Pair) { p.Mover = MoverAgent; dcp(p, 1, 2) }), "model-geometry@model.geometry?"},
		{"dealt in Read", with(func(p *Pair) { p.Mode = Read; dcp(p, 1, 8) }), "dcp-read@transfer.mode"},
		{"dealt in Read, agent", with(func(p *Pair) { p.Mode, p.Mover = Read, MoverAgent; dcp(p, 1, 8) }), "dcp-read@transfer.mode"},
		{"dealt by the engine", with(func(p *Pair) { dcp(p, 1, 8) }), "dcp-version@transfer.mover"},
		{"dealt by a later engine", with(func(p *Pair) { p.Version = "0.34.0"; dcp(p, 1, 8) }), "dcp-version@transfer.mover?"},
		{"dealt by an unknown engine", with(func(p *Pair) { p.Version = ""; dcp(p, 1, 8) }), "dcp-version@transfer.mover?"},
		{"dealt by the agent, old engine", with(func(p *Pair) { p.Version, p.Mover = "0.29.0", MoverAgent; dcp(p, 1, 8) }), ""},
		{"dealt by the simulator", with(func(p *Pair) { p.Engine, p.Version = Simulator, ""; dcp(p, 1, 8) }), ""},
		{"dealt by SGLang", with(func(p *Pair) { p.Engine, p.Version, p.Mover = SGLang, "", MoverAuto; dcp(p, 1, 8) }), "sglang-dcp-backend@engine.version?"},

		{"block size", with(func(p *Pair) { p.Decode.BlockSize = 16 }), "block-size@decode.blockSize"},
		{"block size not known", with(func(p *Pair) { p.Prefill.BlockSize, p.Decode.BlockSize = 0, 0 }), ""},
		{"block size of one side not known", with(func(p *Pair) { p.Decode.BlockSize = 0 }), "block-size@decode.blockSize?"},
		{"type", with(func(p *Pair) { p.Decode.KVType = FP8 }), "kv-type@decode.kvCacheType"},
		{"types of one size", with(func(p *Pair) { p.Prefill.KVType, p.Decode.KVType = BF16, FP16 }), "kv-type@decode.kvCacheType"},
		{"the engine's own type", with(func(p *Pair) { p.Prefill.KVType, p.Decode.KVType = BF16, "" }), ""},
		{"the engine's own type, SGLang", with(func(p *Pair) { p.Engine, p.Prefill.KVType = SGLang, BF16 }), "kv-type@decode.kvCacheType"},
		{"prefill ranks on several hosts in Read", with(func(p *Pair) {
			p.Mode, p.Prefill.Layout, p.Decode.Layout = Read, Layout{TP: 1, DP: 16, DPLocal: 8}, Layout{TP: 1}
		}), "read-dp-hosts@transfer.mode"},
		{"as many as fill two nodes, dpLocal not said", with(func(p *Pair) {
			p.Mode, p.Prefill.Layout, p.Decode.Layout = Read, Layout{TP: 1, DP: 16}, Layout{TP: 1}
		}), "read-dp-hosts@transfer.mode"},
		{"decode ranks on several hosts in Read", with(func(p *Pair) {
			p.Mode, p.Prefill.Layout, p.Decode.Layout = Read, Layout{TP: 8}, Layout{TP: 1, DP: 16, DPLocal: 8}
		}), ""},
	}
}

// publicCases are layouts that people have run, or failed to run, in public:
// recipes, issues and pull requests of the engines.
func publicCases() []ruleCase {
	fp8 := func(p *Pair) { p.Prefill.KVType, p.Decode.KVType = FP8, FP8 }
	blocks := func(p *Pair, n int) { p.Prefill.BlockSize, p.Decode.BlockSize = n, n }
	sglang := func(prefill, decode Layout) Pair {
		return with(func(p *Pair) {
			p.Engine, p.Version, p.Mover = SGLang, "0.5.9", MoverAuto
			p.Prefill.Layout, p.Decode.Layout = prefill, decode
		})
	}
	indexless := func(interleave int) Pair {
		return with(func(p *Pair) {
			p.Mover, p.Decode.Layout = MoverAuto, Layout{TP: 8, DCP: 4, Interleave: interleave}
		})
	}
	return []ruleCase{
		{"A01 two-node recipe, R1 tp 8", with(fp8), ""},
		{"A03 R1, block size 1", with(func(p *Pair) { fp8(p); blocks(p, 1) }), ""},
		{"A04 GQA at equal tp", on(llama, fp8), ""},
		{"A04 with dcp on decode only", on(llama, func(p *Pair) { p.Mover, p.Decode.Layout.DCP = MoverAuto, 2 }), "dcp-gqa@decode.layout.dcp dcp-mla@decode.layout.dcp"},
		{"A06 wide EP, V3 dp 16 over two pods", on("deepseek-ai/DeepSeek-V3", func(p *Pair) {
			blocks(p, 16)
			wide := Layout{TP: 1, DP: 16, DPLocal: 8}
			p.Prefill.Layout, p.Decode.Layout = wide, wide
		}), ""},
		{"A07 R1 tp 8 to dp 8, Read", with(func(p *Pair) { fp8(p); p.Mode, p.Decode.Layout = Read, Layout{TP: 1, DP: 8} }), ""},
		{"A08 R1 dp 8 to tp 8, Read", with(func(p *Pair) { p.Mode, p.Prefill.Layout = Read, Layout{TP: 1, DP: 8} }), ""},
		{"A11 Llama tp 4 to tp 8, Read", on(llama, func(p *Pair) {
			p.Mode, p.Prefill.Layout.TP = Read, 4
			blocks(p, 16)
		}), "tp-heads@transfer.mover"},
		{"A11 with Auto", on(llama, func(p *Pair) { p.Mode, p.Mover, p.Prefill.Layout.TP = Read, MoverAuto, 4 }), ""},
		{"A11 at equal tp", on(llama, func(p *Pair) { p.Mode = Read; p.Prefill.Layout.TP, p.Decode.Layout.TP = 4, 4 }), ""},
		{"A20 fp8 and auto", with(func(p *Pair) { p.Prefill.KVType = FP8 }), "kv-type@decode.kvCacheType"},
		{"A24 SGLang tp 4 to tp 8", sglang(Layout{TP: 4}, Layout{TP: 8}), ""},
		{"A24 SGLang tp 8 to tp 8", sglang(Layout{TP: 8}, Layout{TP: 8}), ""},
		{"A24 SGLang tp 4 to DP attention", sglang(Layout{TP: 4}, Layout{TP: 8, DP: 8}), ""},
		{"A24 SGLang tp 8 to tp 16 dp 16 on two nodes", sglang(Layout{TP: 8}, Layout{TP: 16, DP: 16}), ""},
		{"A25 R1 at interleave 64", indexless(64), ""},
		{"A25 R1 at interleave 1", indexless(1), ""},
		{"A25 interleave 128", indexless(128), "interleave-block@decode.layout.interleave"},
	}
}
