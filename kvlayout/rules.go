package kvlayout

import (
	"slices"
	"sync"
)

// Scope says what a rule looks at.
type Scope string

// SideScope: one role alone. PairScope: both.
const (
	SideScope Scope = "Side"
	PairScope Scope = "Pair"
)

// RuleInfo documents a rule.
type RuleInfo struct {
	ID       string   `json:"id"`
	Scope    Scope    `json:"scope"`
	Severity Severity `json:"severity"` // the strongest that it reports
	// Description says in one line what has to hold.
	Description string `json:"description"`
	// Reason is the reason that its problems give.
	Reason string `json:"reason"`
	// Features are what the rule asks of the engine's release, with their bounds in
	// Facts; none where it holds for every release.
	Features []Feature `json:"features,omitempty"`
}

// Rules is the catalog, in the order in which the rules are checked: those on one
// side first.
func Rules() []RuleInfo {
	rs := rules()
	infos := make([]RuleInfo, 0, len(rs))
	for _, r := range rs {
		infos = append(infos, r.RuleInfo)
	}
	return infos
}

// rule is a catalog entry and its check; side is set for SideScope, pair for
// PairScope.
type rule struct {
	RuleInfo
	side func(v *view, role Role) []finding
	pair func(v *view) []finding
	// after names rules whose refusal makes this one pointless: what it would say
	// follows from them, or its fix would not help.
	after []string
	// cost marks a rule whose warnings tell what a layout costs: they don't decide
	// who moves the bytes.
	cost bool
}

// finding is what a check adds to its rule: a Problem, but for the parts that the
// catalog knows. Empty severity and reason are the rule's.
type finding struct {
	field, message, fix string
	severity            Severity
	reason              string
	// ways are changes that fix it, the best first; fix then says what else does, as
	// a clause that goes on behind them.
	ways []way
}

func (r rule) problem(f finding) Problem {
	p := Problem{Rule: r.ID, Severity: r.Severity, Field: f.field, Message: f.message, Reason: r.Reason, Fix: f.fix}
	if f.severity != "" {
		p.Severity = f.severity
	}
	if f.reason != "" {
		p.Reason = f.reason
	}
	if len(f.ways) > 0 {
		p.ways = &f.ways
	}
	return p
}

// rules is the catalog with its checks. It is not to be written to.
var rules = sync.OnceValue(func() []rule {
	return slices.Concat(sideRules(), vllmSideRules(), sglangSideRules(), tpRules(), dcpRules(), memoryRules(),
		vllmPairRules(), sglangPairRules(), capacityRules())
})

func side(id string, s Severity, description, reason string, check func(*view, Role) []finding, after ...string) rule {
	info := RuleInfo{ID: id, Scope: SideScope, Severity: s, Description: description, Reason: reason}
	return rule{RuleInfo: info, side: check, after: after}
}

func both(id string, s Severity, description, reason string, check func(*view) []finding, after ...string) rule {
	info := RuleInfo{ID: id, Scope: PairScope, Severity: s, Description: description, Reason: reason}
	return rule{RuleInfo: info, pair: check, after: after}
}

// of names the features that the rule asks for.
func (r rule) of(features ...Feature) rule {
	r.Features = features
	return r
}

// costs says that its warnings don't decide the mover.
func (r rule) costs() rule {
	r.cost = true
	return r
}

func sideRules() []rule {
	return []rule{
		side("degrees", Refuse, "every degree is a number of ranks or tokens that can be, and dpLocal divides dp",
			"an engine has a whole number of ranks, and each of its pods equally many", degrees),
		side("model-geometry", Warn, "the KV geometry of the model is known",
			"rules on heads and on MLA cannot be checked without it", modelGeometry, "degrees"),
		side("heads-tp", Refuse, "tp divides the attention heads",
			"every rank computes the same number of attention heads, and the engine stops at start", headsTP, "degrees"),
		side("kv-heads-tp", Refuse, "the KV heads divide, or are divided by, tp",
			"KV heads are either split evenly over the ranks or each copied to equally many", kvHeadsTP, "degrees", "heads-tp"),
		side("dcp-tp", Refuse, "dcp divides tp",
			"DCP cuts the TP group into equal groups and adds no GPU", dcpTP, "degrees"),
		side("dcp-gqa", Refuse, "without MLA, dcp fits into the copies of a KV head",
			"vLLM splits a head's tokens only among ranks that hold a copy of it: tp has to exceed the KV heads, "+
				"dcp may not exceed tp / KV heads and has to divide the attention heads per KV head",
			dcpGQA, "degrees", "heads-tp", "kv-heads-tp", "dcp-tp"),
		side("interleave-block", Refuse, "with DCP, the interleave divides the block",
			"a group of interleaved tokens has to fit into one block; vLLM finds out only after loading the model",
			interleaveBlock, "degrees"),
		side("interleave-unused", Warn, "an interleave comes with DCP",
			"without DCP no tokens are dealt, so it does nothing", interleaveUnused, "degrees"),
		side("dp-dense-ports", Refuse, "with vLLM's own connector, a model without experts has one dp rank per pod",
			"vLLM makes every such rank rank 0, all of them bind the same ports, and the engine hangs at start",
			dpDensePorts, "degrees"),
		side("dp-dense", Warn, "models without experts take replicas, not dp",
			"the data-parallel ranks of a model without experts share nothing, so replicas do the same and fail separately",
			dpDense, "degrees", "dp-dense-ports"),
		side("ports-dp-tp", Refuse, "with vLLM's own connector, dpLocal or tp is 1",
			"the connector binds port base + dp rank + tp rank, which two ranks of a pod then share, and the engine hangs at start",
			portsDPTP, "degrees", "dp-dense-ports"),
		side("gpus-per-pod", Refuse, "the GPUs of a pod fit on a node, or fill whole nodes",
			"a pod runs on one node, and a replica of several pods is cut at whole nodes and whole data-parallel ranks",
			gpusPerPod, "degrees"),
	}
}

func tpRules() []rule {
	return []rule{
		both("tp-multiple", Refuse, "one tp is a multiple of the other",
			"a rank takes its share from a whole number of ranks of the other side",
			tpMultiple, "degrees", "heads-tp", "kv-heads-tp"),
		both("tp-heads", Refuse, "in Read mode with vLLM's own connector, ranks of both sides hold equally many KV heads",
			"the connector reads whole blocks and cannot pick heads out of them",
			tpHeads, "degrees", "heads-tp", "kv-heads-tp", "tp-multiple"),
		both("tp-write", Refuse, "in Write mode with vLLM's own connector, unequal tp needs 0.33.0",
			"before vLLM 0.33.0 the writers of unequal tp all write to decode rank 0, without an error",
			tpWrite, "degrees", "heads-tp", "kv-heads-tp", "tp-multiple").of(featureWriteTP),
	}
}

func dcpRules() []rule {
	return []rule{
		both("dcp-mix", Refuse, "prefill has no DCP, or as much as decode",
			"tokens can be dealt from a prefill without DCP or copied between equal degrees, nothing else",
			dcpMix, "degrees"),
		both("dcp-interleave", Refuse, "equal DCP has equal interleave",
			"equal DCP degrees are copied rank to rank, so tokens dealt differently would end in wrong slots without an error",
			dcpInterleave, "degrees"),
		both("dcp-tp-pair", Refuse, "with the engine's own connector, equal DCP has equal tp",
			"the connector pairs ranks by tp alone, so a decode rank would get the tokens of another DCP rank",
			dcpTPPair, "degrees", "tp-multiple"),
		both("dcp-mla", Refuse, "DCP on decode alone needs MLA",
			"a prefill without DCP can deal tokens only of MLA's latent, which every rank holds whole",
			dcpMLA, "degrees"),
		both("dcp-read", Refuse, "DCP on decode alone needs Write mode",
			"tokens are dealt to the decode ranks by the writing side; reading takes whole blocks",
			dcpRead, "degrees", "dcp-mla"),
		both("dcp-version", Refuse, "with vLLM's own connector, DCP on decode alone needs an engine that has it",
			"no vLLM up to 0.33.0 deals tokens to DCP ranks: long prompts hang decode and short ones land on wrong ranks without an error",
			dcpVersion, "degrees", "dcp-mla", "dcp-read").of(featureDCPRelayout),
	}
}

func memoryRules() []rule {
	return []rule{
		both("block-size", Refuse, "both sides have the same block size",
			"blocks are paired by their index, so tokens would end in wrong slots",
			blockSize).of(featureOwnBlocks),
		both("kv-format", Refuse, "both sides store a model's cache in one form",
			"forms of one type differ in length, and hold the scales elsewhere or not at all", kvFormat),
		both("kv-type", Refuse, "both sides have the same KV cache type",
			"the cache is copied as bytes, which the other side would read as other numbers",
			kvType),
		both("read-dp-hosts", Refuse, "in Read mode, prefill has its data-parallel ranks in one pod",
			"a reader knows one address per prefill replica; it would dial the ranks of the other pods there, and wait for ever",
			readDPHosts, "degrees"),
	}
}
