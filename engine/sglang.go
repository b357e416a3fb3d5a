package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// Defaults of SGLang, as of 0.5.23.
const (
	sglangPort      = 30000
	sglangBootstrap = 8998
	sglangTransfer  = "mooncake"
	mori            = "mori"
)

// otherBackends are those of SGLang 0.5.23 besides mori.
var otherBackends = []string{"mooncake", "nixl", "ascend", "fake", "mooncake_tcp"}

// sglang reads SGLang's flags and environment.
func (f *facts) sglang() {
	in := &f.in
	in.Ports.HTTP = cmp.Or(f.number("port", 1), sglangPort)
	in.Bootstrap = cmp.Or(f.number("disaggregation-bootstrap-port", 1), sglangBootstrap)
	f.used["host"], f.used["dist-init-addr"] = true, true
	f.sglangLayout()
	in.BlockSize = f.number("page-size", 1)
	f.kvType()
	in.MaxLength = f.length("context-length")
	in.KVTokens = int(f.size("max-total-tokens"))
	in.MemoryFraction = f.fraction("mem-fraction-static")
	in.BatchTokens = max(f.number("chunked-prefill-size", -1), 0)
	in.Sequences = f.number("max-running-requests", 1)
	in.WindowRatio = f.fraction("swa-full-tokens-ratio")
	in.HybridCacheOff = f.on("disable-hybrid-swa-memory")
	in.StateRatio = f.share("mamba-full-memory-ratio")
	in.States = f.number("max-mamba-cache-size", 1)
	in.Speculation = Speculation{
		Method: f.text("speculative-algorithm"),
		Model:  f.text("speculative-draft-model-path"),
		Tokens: f.number("speculative-num-draft-tokens", 1),
	}
	f.disaggregation()
	f.sglangCaches()
	in.KVFormat = f.text("dsv4-attn-backend")
	in.Attention = f.text("attention-backend")
	perRole := map[kvlayout.Role]string{kvlayout.Prefill: "prefill-attention-backend", kvlayout.Decode: "decode-attention-backend"}
	if name := perRole[in.Role]; name != "" {
		in.Attention = cmp.Or(f.text(name), in.Attention)
	}
	f.overrides("json-model-override-args")
	f.config()
	for _, g := range f.flags.List {
		if dashed := strings.ReplaceAll(g.Name, "_", "-"); !g.Known && dashed != g.Name && strings.HasPrefix(g.Spelled, "--") {
			f.stops(g.Index, f.field(dashed), "SGLang takes no underscores in flags: write --%s", brief(dashed))
		}
	}
}

// sglangLayout reads the degrees. Data parallel attention lies inside tp; without
// it, --dp-size starts independent copies.
func (f *facts) sglangLayout() {
	in := &f.in
	l := &in.Layout
	l.TP = f.number("tp-size", 1)
	l.PP = f.number("pp-size", 1)
	l.DCP = f.number("dcp-size", 1)
	l.DP = f.number("attn-dp-size", 1)
	copies := f.number("dp-size", 1)
	if f.on("enable-dp-attention") && l.DP <= 1 {
		l.DP, copies = copies, 0
	}
	if g, ok := f.last("attn-dp-size"); ok && kvlayout.Supports(in.Version, kvlayout.FeatureAttentionDPSize) == kvlayout.Lacks {
		f.stops(g.Index, "layout.dp", "SGLang %s has no --attn-dp-size: write --dp-size %d --enable-dp-attention", in.Version, l.DP)
	}
	in.Copies = copies
	if g, _ := f.flags.Last("dp-size"); copies > 1 {
		f.note(g.Index, "without --enable-dp-attention this starts %d independent copies of the engine: a pool says that as replicas", copies)
	}
	in.PCP = f.number("attn-cp-size", 1)
	in.Experts = f.number("ep-size", 1)
	in.Nodes, in.Node = f.number("nnodes", 1), f.number("node-rank", 0)
	tp := max(l.TP, 1)
	if l.DP > 1 && tp%l.DP != 0 {
		f.stops(-1, "layout.dp", "data parallel attention of degree %d does not divide tp %d", l.DP, tp)
	}
}

// disaggregation reads the role and what moves the bytes. SGLang's prefill always
// writes to decode, and asks MoRI for RDMA; MoRI takes xGMI by itself within a node
// where MORI_DISABLE_AUTO_XGMI begins with 0.
func (f *facts) disaggregation() {
	in := &f.in
	index := -1
	if g, ok := f.flags.Last("disaggregation-mode"); ok {
		index = g.Index
	}
	switch mode := f.text("disaggregation-mode"); mode {
	case "prefill":
		in.Role = kvlayout.Prefill
	case "decode":
		in.Role = kvlayout.Decode
	case "", "null":
		if _, ok := f.flags.Last("disaggregation-mode"); !ok || mode == "null" {
			f.absent("there is no --disaggregation-mode prefill or decode: this instance takes part in no transfer")
		}
		return
	default:
		f.stops(index, "transfer", "the mode %q is neither prefill nor decode", brief(mode))
		return
	}
	in.Connector = cmp.Or(f.text("disaggregation-transfer-backend"), sglangTransfer)
	in.Mode = kvlayout.Write
	if in.Connector != mori {
		at := index
		if g, ok := f.flags.Last("disaggregation-transfer-backend"); ok {
			at = g.Index
		}
		if backends := append([]string{mori}, otherBackends...); !slices.Contains(backends, in.Connector) && !f.unfilled(in.Connector) {
			f.stops(at, "transfer", "SGLang has no transfer backend %s, only %s", brief(in.Connector), strings.Join(backends, ", "))
			return
		}
		f.unread(at, "transfer", "no rules are known for the transfer backend %s, only for %s", brief(in.Connector), mori)
		return
	}
	in.Mover, in.Backend = kvlayout.MoverEngine, RDMA
	if v, ok := in.Variable("MORI_DISABLE_AUTO_XGMI"); ok && strings.HasPrefix(v, "0") {
		in.Backend = XGMI
	}
	f.used["disaggregation-ib-device"] = false
}

// sglangCaches reads the radix cache, which decode has only if it is asked for,
// and the hierarchical cache.
func (f *facts) sglangCaches() {
	in := &f.in
	in.HostCache = f.choice("enable-hierarchical-cache")
	switch {
	case in.Role == kvlayout.Decode:
		in.PrefixCache = choose(f.on("disaggregation-decode-enable-radix-cache"))
		f.used["disable-radix-cache"] = true
	case f.on("disable-radix-cache"):
		in.PrefixCache = Off
	}
	if in.Role != kvlayout.Decode || in.Layout.DCP < 2 {
		return
	}
	if kvlayout.Supports(in.Version, kvlayout.FeatureDecodeCacheDCP) == kvlayout.Lacks && (in.PrefixCache == On || in.HostCache == On) {
		g, _ := f.flags.Last("dcp-size")
		f.stops(g.Index, "", "SGLang %s refuses a radix or hierarchical cache on decode with --dcp-size %d; 0.5.21 is the first to take them", in.Version, in.Layout.DCP)
	}
}
