package kvlayout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// bound finishes a finding about a feature of the role's engine: none where the
// release has it, a refusal where it is known to lack it, and else a warning.
func (v *view) bound(role Role, f Feature, fd finding) []finding {
	engine := cmp.Or(v.Engine, VLLM)
	release := v.version(role)
	switch Supports(release, f) {
	case Has:
		return nil
	case Lacks:
		fd.message += fmt.Sprintf(" on %s %s", engine, release)
	case Unknown:
		fd.severity = Warn
		fd.message += fmt.Sprintf(" on %s of version %s, not known to take it", engine, quoted(release))
	}
	return []finding{fd}
}

// vllm says that the engine is vLLM itself, not the simulator.
func (v *view) vllm() bool { return v.Engine == VLLM || v.Engine == "" }

// allRanks is the number of ranks of an instance, over which vLLM spreads experts.
func (v *view) allRanks(role Role) int {
	l := v.layout(role)
	return l.TP * l.DP * max(v.side(role).PCP, 1)
}

func epMoE(v *view, role Role) []finding {
	ep := v.side(role).EP
	if !v.heads.known || v.heads.moe || ep == 0 || ep == 1 {
		return nil
	}
	flag := "--enable-expert-parallel"
	if v.Engine == SGLang {
		flag = "--ep-size"
	}
	fd := finding{
		field: string(role) + ".args", message: fmt.Sprintf("%s has expert parallelism on a model without experts", role),
		fix: fmt.Sprintf("remove %s on %s", flag, role),
	}
	if !v.vllm() {
		fd.severity, fd.reason = Warn, "there are no experts to spread, so it does nothing"
		return []finding{fd}
	}
	return v.bound(role, featureDenseEP, fd)
}

func epSize(v *view, role Role) []finding {
	ep, l := v.side(role).EP, v.layout(role)
	if ep == 0 || ep == 1 || (ep == -1 && v.vllmRules()) {
		return nil
	}
	field := string(role) + ".args"
	if v.Engine == SGLang {
		if ep > 0 && l.TP%ep == 0 {
			return nil
		}
		return []finding{{
			field: field, message: fmt.Sprintf("%s ep %d does not divide tp %d", role, ep, l.TP),
			fix: fmt.Sprintf("give --ep-size %d on %s", largest(min(max(ep, 1), l.TP), func(n int) bool { return l.TP%n == 0 }), role),
		}}
	}
	if all := v.allRanks(role); ep != all {
		return []finding{{
			field: field, message: fmt.Sprintf("%s ep %d of %d ranks", role, ep, all),
			fix: fmt.Sprintf("give --enable-expert-parallel on %s, or remove what says the degree", role),
		}}
	}
	return nil
}

func allToAll(v *view, role Role) []finding {
	if !v.vllm() || v.side(role).AllToAll != "mori" {
		return nil
	}
	use := "mori_high_throughput"
	if role == Decode {
		use = "mori_low_latency"
	}
	return v.bound(role, featurePlainMori, finding{
		field: string(role) + ".args", message: fmt.Sprintf("%s uses the all-to-all backend mori", role),
		fix: "set --all2all-backend to " + use,
	})
}

func interleaveSpeculation(v *view, role Role) []finding {
	l, s := v.layout(role), v.side(role)
	if !v.vllm() || l.DCP == 1 || l.Interleave == 1 || s.Speculation == "" {
		return nil
	}
	field := layoutField(role, "interleave")
	fd := finding{
		field: field, message: fmt.Sprintf("%s interleave %d with dcp %d and speculative decoding (%s)", role, l.Interleave, l.DCP, s.Speculation),
		ways: []way{{set(field, 1)}, {set(field, 1), set(layoutField(role.other(), "interleave"), 1)}},
		fix:  ", or remove speculative decoding",
	}
	if s.Attention != "" && joins(s.Attention) == Unknown {
		fd.severity = Warn
	}
	return v.bound(role, featureDCPSpeculation, fd)
}

// joins says whether an attention backend of vLLM for AMD GPUs returns the softmax
// sums that join the shares of a DCP group; of others than vLLM's own nothing is known.
func joins(backend string) Support {
	switch strings.ToUpper(backend) {
	case "ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA", "TRITON_MLA":
		return Has
	case "ROCM_AITER_MLA_SPARSE", "ROCM_AITER_FA", "ROCM_AITER_UNIFIED_ATTN", "ROCM_ATTN", "ROCM_SEGMENTED_ATTN", "ROCM_OCTAVE",
		"TRITON_ATTN", "FLEX_ATTENTION":
		return Lacks
	}
	return Unknown
}

func dcpBackend(v *view, role Role) []finding {
	l, s := v.layout(role), v.side(role)
	if !v.vllm() || l.DCP == 1 || (v.dealt() && v.headSharded()) { // the last is for dcp-mla
		return nil
	}
	field := layoutField(role, "dcp")
	fd := finding{field: field, ways: v.dcpWays(role, 1)}
	if v.layout(role.other()).DCP > 1 {
		fd.ways[0], fd.ways[1] = fd.ways[1], fd.ways[0]
	}
	if s.Attention != "" && joins(s.Attention) == Unknown {
		fd.severity = Warn
	}
	feature := featureDCPBackends
	switch {
	case v.windowed() && !s.NoHybrid:
		feature, fd.severity = featureDCPWindows, ""
		fd.message = fmt.Sprintf("%s dcp %d on a model with sliding windows", role, l.DCP)
	case v.indexed():
		feature = featureDCPSparse
		fd.message = fmt.Sprintf("%s dcp %d on a model with sparse MLA", role, l.DCP)
	case v.headSharded() && !v.heads.latent:
		feature = featureDCPHeads
		fd.message = fmt.Sprintf("%s dcp %d on a model without MLA", role, l.DCP)
	case s.Attention != "" && joins(s.Attention) != Has:
		fd.message = fmt.Sprintf("%s dcp %d with attention backend %s", role, l.DCP, s.Attention)
		fd.fix = ", or use attention backend ROCM_AITER_MLA"
	default:
		return nil
	}
	return v.bound(role, feature, fd)
}

func ppMoRIIO(v *view, role Role) []finding {
	l, pcp := v.layout(role), max(v.side(role).PCP, 1)
	if !v.vllmRules() || (l.PP == 1 && pcp == 1) {
		return nil
	}
	fd := finding{
		field: layoutField(role, "pp"), message: fmt.Sprintf("%s has %d pipeline stages", role, l.PP),
		fix: fmt.Sprintf("remove --pipeline-parallel-size on %s", role),
	}
	if l.PP == 1 {
		fd.field = string(role) + ".args"
		fd.message = fmt.Sprintf("%s has prefill context parallelism of %d", role, pcp)
		fd.fix = fmt.Sprintf("remove --prefill-context-parallel-size on %s", role)
	}
	if v.mover != MoverEngine {
		fd.reason = "the transfer agent plans by tp, dp and DCP rank: it knows of no stage that holds some layers, nor of prompts dealt to prefill ranks"
		return []finding{fd}
	}
	return v.bound(role, featureStages, fd)
}

// tpNodes goes by what is said of hosts alone: a pool's pods are cut by whoever makes
// them.
func tpNodes(v *view, role Role) []finding {
	l, s := v.layout(role), v.side(role)
	if !v.vllmRules() || s.Nodes < 2 {
		return nil
	}
	holds := "what one node holds"
	if s.DevicesPerNode > 0 {
		holds += fmt.Sprintf(" (%d)", v.tpOnNode(role, s.DevicesPerNode))
	}
	return []finding{{
		field: tpField(role), message: fmt.Sprintf("a TP group of %d ranks of %s is spread over %d nodes", l.TP, role, s.Nodes),
		fix: fmt.Sprintf("lower %s to %s, and use %s.replicas for more", tpField(role), holds, role),
	}}
}

func attentionConnector(v *view, role Role) []finding {
	if !v.vllm() || !strings.EqualFold(v.side(role).Attention, "ROCM_ATTN") {
		return nil
	}
	return v.bound(role, featureRocmAttention, finding{
		field: string(role) + ".args", message: fmt.Sprintf("%s uses attention backend ROCM_ATTN", role),
		fix: "use another attention backend, such as ROCM_AITER_UNIFIED_ATTN or TRITON_ATTN",
	})
}

func kernelBlock(v *view, role Role) []finding {
	block := v.blockTokens(role)
	if !v.vllm() || v.mover != MoverEngine || !strings.EqualFold(v.side(role).Attention, "ROCM_AITER_FA") || block < 1 || block == 16 || block == 32 {
		return nil
	}
	field := string(role) + ".blockSize"
	fd := finding{
		field: field, message: fmt.Sprintf("%s has blocks of %d tokens, and ROCM_AITER_FA of 16 or 32", role, block),
		ways: []way{{set("prefill.blockSize", 32), set("decode.blockSize", 32)}},
	}
	if v.states() { // whose blocks are larger than any that fits
		fd.field, fd.fix, fd.ways = string(role)+".args", "use another attention backend", nil
		fd.message += ", to hold the recurrent state of a rank"
	}
	return v.bound(role, featureKernelBlocks, fd)
}

// convLayout: the agent copies whole states between equal tp and orders, and parts of
// those by dimension alone.
func convLayout(v *view, role Role) []finding {
	layout := v.side(role).ConvLayout
	if !v.vllm() || !v.states() || layout == "" || layout == "DS" {
		return nil
	}
	fd := finding{
		field: string(role) + ".env", message: fmt.Sprintf("%s stores the convolution states of %s in the order %s", role, v.Model.Name, layout),
		fix: "set VLLM_SSM_CONV_STATE_LAYOUT to DS on both sides",
	}
	if v.mover == MoverEngine {
		return []finding{fd}
	}
	other := cmp.Or(v.side(role.other()).ConvLayout, layout)
	if _, _, unequal := v.unequalTP(); !unequal && other == layout {
		return nil
	}
	fd.reason = "a state is copied as bytes, and between unequal tp in parts, which lie apart in this order"
	return []finding{fd}
}

func blockMamba(v *view, role Role) []finding {
	s := v.side(role)
	block := v.blockTokens(role)
	if !v.vllm() || !s.MambaAlign || !v.states() || s.BatchTokens < 1 || block <= s.BatchTokens {
		return nil
	}
	return []finding{{
		field: string(role) + ".args", message: fmt.Sprintf("%s has blocks of %d tokens and steps of %d", role, block, s.BatchTokens),
		fix: fmt.Sprintf("set --max-num-batched-tokens to at least %d", block),
	}}
}

func hybridShape(v *view, role Role) []finding {
	s := v.side(role)
	if !v.vllmConnector() || v.Model == nil {
		return nil
	}
	m := *v.Model
	fd := finding{field: "transfer.mover", ways: []way{{useAgent}}}
	switch states := m.States(); {
	case len(states) > 1:
		fd.message = fmt.Sprintf("a model with %d kinds of recurrent state", len(states))
	case len(states) == 1 && m.AttentionGroups() == 0:
		fd.message = "a model with recurrent state and no attention"
	case len(states) == 1 && v.Mode == Read && m.AttentionGroups() > 1:
		fd.message = fmt.Sprintf("a model with recurrent state and %d kinds of attention, in Read mode", m.AttentionGroups())
		fd.ways = append(fd.ways, way{useWrite})
	case len(states) == 1 && s.Speculation != "" && s.Speculation != "dspark":
		fd.message = fmt.Sprintf("%s has recurrent state and speculative decoding (%s)", role, s.Speculation)
		fd.field, fd.fix, fd.ways = string(role)+".args", "remove speculative decoding, or use dspark", nil
	default:
		return nil
	}
	return v.bound(role, featureHybridShapes, fd)
}

// hybridOff says that all layers of the side keep every token, in one block list. With
// chunks, vLLM turns its hybrid manager off beside drafts that read hidden states
// (SpeculativeConfig.use_eagle of 0.33.0).
func (v *view) hybridOff(role Role) bool {
	s := v.side(role)
	if s.NoHybrid || !v.vllm() || v.Model == nil || !v.Model.has(ChunkedLocal) {
		return s.NoHybrid
	}
	return s.OwnDrafts || slices.Contains([]string{"eagle", "eagle3", "mtp", "dflash", "dspark"}, s.Speculation)
}

func chunkedAttention(v *view, role Role) []finding {
	if !v.vllmConnector() || v.Model == nil || !v.Model.has(ChunkedLocal) || v.hybridOff(role) {
		return nil
	}
	return v.bound(role, featureChunks, finding{
		field:   string(role) + ".args",
		message: fmt.Sprintf("%s has layers with chunks of %d tokens", role, v.Model.Windows()[0]),
		fix:     "add --disable-hybrid-kv-cache-manager, or set VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE to 0",
	})
}

func slidingWindowWrite(v *view, role Role) []finding {
	s := v.side(role)
	if !v.vllmConnector() || v.Mode != Write || v.Model == nil || !v.Model.has(SlidingWindow) || s.NoHybrid {
		return nil
	}
	fix := "add --disable-hybrid-kv-cache-manager"
	if !v.NoRead {
		fix += ", or set transfer.mode to Read"
	}
	return v.bound(role, featureWriteWindows, finding{
		field:   string(role) + ".args",
		message: fmt.Sprintf("%s has layers with windows of %d tokens, in Write mode", role, v.Model.Windows()[0]),
		fix:     fix,
	})
}
