package kvlayout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// unequalTP says whether the attention of the two sides is split over unequally
// many ranks.
func (v *view) unequalTP() (prefill, decode int, unequal bool) {
	prefill, decode = v.attentionTP(Prefill), v.attentionTP(Decode)
	return prefill, decode, prefill != decode
}

func tpMultiple(v *view) []finding {
	p, d, unequal := v.unequalTP()
	if !unequal || max(p, d)%min(p, d) == 0 || (v.mover != MoverEngine && !v.headSharded() && !v.states()) {
		return nil
	}
	fit := largest(v.mostTP(d), func(tp int) bool { return (p%tp == 0 || tp%p == 0) && v.tpFits(tp) })
	ways := append(v.tpWays(Decode, v.tpFor(Decode, fit)), v.equalTP()...)
	if v.vllmConnector() && v.heads.known && !v.headSharded() && !v.states() {
		ways = append(ways, way{useAgent})
	}
	return []finding{{
		field:   tpField(Decode),
		message: fmt.Sprintf("prefill tp %d and decode tp %d, neither a multiple of the other", p, d),
		ways:    ways,
	}}
}

func tpHeads(v *view) []finding {
	p, d, unequal := v.unequalTP()
	if !unequal || !v.vllmConnector() || v.Mode != Read || !v.headSharded() {
		return nil
	}
	heads := slices.Max(v.heads.kv)
	perP, perD := ceilDiv(heads, p), ceilDiv(heads, d)
	if perP == perD {
		return nil
	}
	return []finding{{
		field:   "transfer.mover",
		message: fmt.Sprintf("%d KV heads per prefill rank (tp %d) and %d per decode rank (tp %d) in Read mode", perP, p, perD, d),
		ways:    append([]way{{useAgent}}, v.equalTP()...),
	}}
}

func tpWrite(v *view) []finding {
	p, d, unequal := v.unequalTP()
	if !unequal || !v.vllmConnector() || v.Mode != Write {
		return nil
	}
	message := fmt.Sprintf("prefill tp %d and decode tp %d in Write mode on vLLM", p, d)
	release := v.version(Prefill)
	switch Supports(release, featureWriteTP) {
	case Has:
		return nil
	case Lacks:
		return []finding{{
			field: "transfer.mover", message: message + " " + release,
			ways: append([]way{{useAgent}}, v.equalTP()...), fix: ", or use an engine.image of vLLM 0.33.0",
		}}
	case Unknown:
	}
	fix := "set engine.version to the release in the image"
	if !v.NoAgent {
		fix += ", or transfer.mover to Agent"
	}
	return []finding{{field: "engine.version", severity: Warn, message: message + " of unknown version " + quoted(release), fix: fix}}
}

func dcpMix(v *view) []finding {
	p, d := v.prefill.DCP, v.decode.DCP
	if p == 1 || p == d {
		return nil
	}
	return []finding{{
		field:   layoutField(Prefill, "dcp"),
		message: fmt.Sprintf("prefill dcp %d and decode dcp %d", p, d),
		ways: []way{
			{set("prefill.layout.dcp", 1)},
			{set("prefill.layout.dcp", d), set("prefill.layout.interleave", v.decode.Interleave)},
			{set("decode.layout.dcp", p), set("decode.layout.interleave", v.prefill.Interleave)},
			{set("prefill.layout.dcp", 1), set("decode.layout.dcp", 1)},
		},
	}}
}

func dcpInterleave(v *view) []finding {
	p, d := v.prefill, v.decode
	if p.DCP == 1 || p.DCP != d.DCP || p.Interleave == d.Interleave {
		return nil
	}
	return []finding{{
		field:   layoutField(Prefill, "interleave"),
		message: fmt.Sprintf("dcp %d on both sides, prefill interleave %d and decode interleave %d", p.DCP, p.Interleave, d.Interleave),
		ways:    []way{{set("prefill.layout.interleave", d.Interleave)}, {set("decode.layout.interleave", p.Interleave)}},
	}}
}

func dcpTPPair(v *view) []finding {
	p, d, unequal := v.unequalTP()
	if !unequal || v.mover != MoverEngine || v.prefill.DCP == 1 || v.prefill.DCP != v.decode.DCP {
		return nil
	}
	f := finding{
		field:   tpField(Decode),
		message: fmt.Sprintf("dcp %d on both sides, prefill tp %d and decode tp %d", v.prefill.DCP, p, d),
		ways:    v.equalTP(),
	}
	if v.vllmConnector() {
		f.field = "transfer.mover"
		f.ways = append([]way{{useAgent}}, f.ways...)
	}
	return []finding{f}
}

// dealt says that decode alone has DCP, so that tokens have to be dealt.
func (v *view) dealt() bool { return v.prefill.DCP == 1 && v.decode.DCP > 1 }

func dcpMLA(v *view) []finding {
	if !v.dealt() {
		return nil
	}
	if v.Decode.OwnDrafts && v.Model != nil && v.Model.AllMLA(false) && !v.Model.AllMLA(true) {
		return []finding{{
			field: "decode.args", message: fmt.Sprintf("prefill without DCP and decode dcp %d with draft layers that are not MLA", v.decode.DCP),
			fix: "remove speculative decoding on decode, or set decode.layout.dcp to 1",
		}}
	}
	if !v.headSharded() {
		return nil
	}
	return []finding{{
		field: layoutField(Decode, "dcp"),
		message: fmt.Sprintf("prefill without DCP and decode dcp %d, on a model of %d KV heads (%s)",
			v.decode.DCP, slices.Max(v.heads.kv), GQA),
		ways: []way{{set("decode.layout.dcp", 1)}},
	}}
}

func dcpRead(v *view) []finding {
	if !v.dealt() || v.Mode != Read {
		return nil
	}
	return []finding{{
		field:   "transfer.mode",
		message: fmt.Sprintf("prefill without DCP and decode dcp %d in Read mode", v.decode.DCP),
		ways:    []way{{useWrite}, {set("decode.layout.dcp", 1)}},
	}}
}

func dcpVersion(v *view) []finding {
	if !v.dealt() || !v.vllmConnector() {
		return nil
	}
	message := fmt.Sprintf("prefill without DCP and decode dcp %d", v.decode.DCP)
	ways := []way{{useAgent}, {set("decode.layout.dcp", 1)}}
	release := v.version(Prefill)
	if Supports(release, featureDCPRelayout) == Lacks {
		return []finding{{field: "transfer.mover", message: message + " on vLLM " + release, ways: ways}}
	}
	return []finding{{
		field: "transfer.mover", severity: Warn,
		message: message + " on vLLM of version " + quoted(release) + ", not known to have it", ways: ways,
	}}
}

func blockSize(v *view) []finding {
	p, d := v.blockTokens(Prefill), v.blockTokens(Decode)
	if !v.states() && (p < 1) != (d < 1) {
		return v.blockOfOne()
	}
	if p < 1 || d < 1 || p == d {
		return nil
	}
	if p != v.Prefill.BlockSize || d != v.Decode.BlockSize {
		return []finding{raisedBlocks(p, d)}
	}
	return []finding{{
		field:   "decode.blockSize",
		message: fmt.Sprintf("prefill blocks of %d tokens and decode blocks of %d", p, d),
		ways:    []way{{set("decode.blockSize", p)}, {set("prefill.blockSize", d)}},
	}}
}

// blockOfOne is on a block size that one side says: the other one takes its engine's.
func (v *view) blockOfOne() []finding {
	said, unsaid := Prefill, Decode
	if v.Prefill.BlockSize < 1 {
		said, unsaid = Decode, Prefill
	}
	block, own, known := v.side(said).BlockSize, 1, false
	switch {
	case v.vllm():
		own, known = ownBlock(v.side(unsaid).Attention)
	case v.Engine != SGLang:
		return nil
	}
	if block == own {
		return nil
	}
	fd := finding{
		field:    string(unsaid) + ".blockSize",
		message:  fmt.Sprintf("%s has blocks of %d tokens, and %s the engine's own size, which may be %d", said, block, unsaid, own),
		severity: Warn,
		ways:     []way{{set(string(unsaid)+".blockSize", block)}},
	}
	if !known {
		return []finding{fd}
	}
	fd.severity, fd.message = "", fmt.Sprintf("%s has blocks of %d tokens, and %s the engine's own size of %d", said, block, unsaid, own)
	return v.bound(unsaid, featureOwnBlocks, fd)
}

// ownBlock is the block size that vLLM 0.33.0 takes by itself with an attention backend,
// and whether it is known which that is (get_preferred_block_size).
func ownBlock(attention string) (tokens int, known bool) {
	switch attention = strings.ToUpper(attention); {
	case attention == "ROCM_AITER_UNIFIED_ATTN":
		return 64, true
	case joins(attention) != Unknown:
		return 16, true
	}
	return 16, false
}

// widestKernel is more tokens than any attention backend rounds a block up to.
const widestKernel = 256

// raisedBlocks is on models with recurrent state, whose blocks the engine makes as
// large as the state of a rank. What is said of the sizes is exact but for the
// rounding to the attention backend's own blocks.
func raisedBlocks(p, d int) finding {
	f := finding{
		field:   "decode.blockSize",
		message: fmt.Sprintf("the engine makes prefill blocks of %d tokens and decode blocks of %d, to hold the recurrent state of a rank", p, d),
	}
	block := ceilDiv(max(p, d), widestKernel) * widestKernel
	f.ways = []way{{set("prefill.blockSize", block), set("decode.blockSize", block)}}
	if max(p, d)-min(p, d) <= widestKernel {
		f.severity = Warn
	}
	return f
}

// kvType takes vLLM's Auto for what the checkpoint or the model's type says, and where
// neither is known for any type of the same size. SGLang compares the names.
func kvType(v *view) []finding {
	p, d := v.elementType(Prefill), v.elementType(Decode)
	if p == d {
		return nil
	}
	if v.vllmRules() && (p == Auto || d == Auto) && p.Bytes() == d.Bytes() {
		return nil
	}
	fd := finding{
		field:   "decode.kvCacheType",
		message: fmt.Sprintf("prefill KV cache type %s and decode %s", p, d),
		fix:     fmt.Sprintf("set decode.kvCacheType to %s", p),
	}
	switch {
	case v.Prefill.KVType == v.Decode.KVType:
		fd.field, fd.fix = "decode.args", "give one --dtype on both sides"
	case p == FP8E5M2 || d == FP8E5M2: // of which a pool has no name
		fd.fix = "give one --kv-cache-dtype on both sides"
	}
	return []finding{fd}
}

// elementType is the type of a side's cache, Auto where what decides it is not known.
func (v *view) elementType(role Role) KVType {
	s := v.side(role)
	if s.KVType != Auto || !v.vllmRules() {
		return s.KVType
	}
	m, _ := v.model()
	return cmp.Or(m.Checkpoint, s.ModelType, Auto)
}

func readDPHosts(v *view) []finding {
	l, local := v.prefill, v.podRanks(Prefill)
	if !v.vllmRules() || v.Mode != Read || l.DP == local {
		return nil
	}
	return []finding{{
		field:   "transfer.mode",
		message: fmt.Sprintf("prefill dp %d over pods of %d data-parallel ranks in Read mode", l.DP, local),
		ways:    []way{{useWrite}},
		fix:     ", or use replicas of one pod (prefill.layout.dp no more than a pod holds)",
	}}
}

func quoted(version string) string {
	if version == "" {
		return "(none given)"
	}
	return fmt.Sprintf("%q", version)
}
