package kvlayout

import (
	"strings"
	"testing"
)

// What is told to set of the smallest fault of a rule: two ways at most, the better first,
// and what else helps.
func TestFixesOfSmallestFaults(t *testing.T) {
	fixes := map[string]string{
		"heads-tp":               "set prefill.layout.tp to 2",
		"kv-heads-tp":            "set prefill.layout.tp to 2",
		"dcp-tp":                 "set decode.layout.dcp to 2",
		"dcp-gqa":                "set prefill.layout.dcp to 1 and decode.layout.dcp to 1",
		"interleave-block":       "set decode.layout.interleave to 32",
		"dp-dense-ports":         "set transfer.mover to Agent, or set decode.layout.dp to 1 and multiply decode.replicas by 2",
		"ports-dp-tp":            "set transfer.mover to Agent, or decode.layout.dpLocal to 1",
		"gpus-per-pod":           "set decode.layout.dpLocal to 1",
		"tp-multiple":            "set decode.layout.tp to 16, or prefill.layout.tp to 24",
		"tp-heads":               "set transfer.mover to Agent, or decode.layout.tp to 4",
		"tp-write":               "set transfer.mover to Agent, or decode.layout.tp to 4, or use an engine.image of vLLM 0.33.0",
		"dcp-mix":                "set prefill.layout.dcp to 1, or decode.layout.dcp to 4",
		"dcp-interleave":         "set prefill.layout.interleave to 64, or decode.layout.interleave to 1",
		"dcp-tp-pair":            "set transfer.mover to Agent, or decode.layout.tp to 8",
		"dcp-mla":                "set decode.layout.dcp to 1",
		"dcp-read":               "set transfer.mode to Write, or decode.layout.dcp to 1",
		"dcp-version":            "set transfer.mover to Agent, or decode.layout.dcp to 1",
		"block-size":             "set decode.blockSize to 64, or prefill.blockSize to 16",
		"read-dp-hosts":          "set transfer.mode to Write, or use replicas of one pod (prefill.layout.dp no more than a pod holds)",
		"interleave-speculation": "set decode.layout.interleave to 1, or remove speculative decoding",
		"dcp-backend":            "set decode.layout.dcp to 1, or use attention backend ROCM_AITER_MLA",
		"kernel-block":           "set prefill.blockSize to 32 and decode.blockSize to 32",
		"interleave-indexer":     "set decode.layout.interleave to 64",
		"interleave-pieces":      "set decode.layout.interleave to 64, a block",
		"recurrent-tp":           "set decode.layout.tp to 8, or prefill.layout.tp to 4",
		"read-groups":            "expect decode to start anew after a failed read",
		"sglang-dcp-backend":     "set decode.layout.dcp to 1, or use an engine.image of SGLang 0.5.22 or later",
		"sglang-sparse-dcp":      "set decode.layout.dcp to 1",
		"sglang-dcp-heads":       "set decode.layout.dcp to 4",
		"sglang-prefill-cp":      "set decode.layout.dcp to 1, or remove --attn-cp-size on prefill",
		"sglang-dcp-mla":         "set decode.layout.dcp to 1 and prefill.layout.dcp to 1",
		"sglang-window-tp":       "set decode.layout.tp to 4, or prefill.layout.tp to 8",
		"sglang-index-tp":        "set decode.layout.tp to 4, or prefill.layout.tp to 2",
		"sglang-state-tp":        "set decode.layout.tp to 8, or prefill.layout.tp to 4",
		"sglang-head-copies":     "set decode.layout.tp to 2, or prefill.layout.tp to 8, or use an engine.image of SGLang 0.5.21 or later",
		"sglang-heads-tp":        "set decode.layout.tp to 4, or prefill.layout.tp to 8",
		"capacity-inflight":      "set decode.replicas to 288 and decode.layout.dcp to 8, or raise decode.replicas to 2304",
	}
	for _, f := range smallestFaults() {
		told := firstOf(f.breaks, Compatible(f.on(plainPair())))
		if told.ways != nil {
			t.Errorf("%s has ways beside its fix", f.breaks)
		}
		if want, ok := fixes[f.breaks]; ok && told.Fix != want {
			t.Errorf("%s: %q, want %q", f.breaks, told.Fix, want)
		} else if !ok && told.Set != "" {
			t.Errorf("%s: the fix %q is not in the table", f.breaks, told.Fix)
		}
	}
}

func firstOf(id string, problems []Problem) Problem {
	for _, p := range problems {
		if p.Rule == id {
			return p
		}
	}
	return Problem{}
}

// How ways are chosen where the first is none: it is refused, has been taken, or is not
// the operator's.
func TestFixesChoose(t *testing.T) {
	for name, c := range map[string]struct {
		pair           Pair
		rule, fix, set string
	}{
		"no agent to move": {
			with(func(p *Pair) { p.NoAgent, p.Decode.Layout.DCP = true, 8 }),
			"dcp-version", "set decode.layout.dcp to 1", "decode.layout.dcp=1",
		},
		"no agent, one way left": {
			with(func(p *Pair) { p.NoAgent, p.Decode.Layout = true, Layout{TP: 4, DP: 2} }),
			"ports-dp-tp", "set decode.layout.dpLocal to 1", "decode.layout.dpLocal=1",
		},
		"no agent, no way left": {
			on(llama, func(p *Pair) { p.NoAgent, p.Decode.Layout = true, Layout{TP: 4, DP: 2} }),
			"dp-dense-ports", "set decode.layout.dp to 1 and multiply decode.replicas by 2", "",
		},
		"a tp that its dcp does not divide": {
			with(func(p *Pair) {
				p.Mover, p.Decode.Layout, p.Decode.DevicesPerNode = MoverAgent, Layout{TP: 12, DCP: 12}, 12
			}),
			"heads-tp", "set decode.layout.tp to 8 and decode.layout.dcp to 1", "decode.layout.tp=8,decode.layout.dcp=1",
		},
		"an interleave that is there": {
			with(func(p *Pair) {
				p.Prefill.Layout, p.Decode.Layout = Layout{TP: 8, DCP: 4, Interleave: 16}, Layout{TP: 8, DCP: 2, Interleave: 16}
			}),
			"dcp-mix", "set prefill.layout.dcp to 2, or decode.layout.dcp to 4", "prefill.layout.dcp=2",
		},
		"SGLang's tp, over its dp ranks": {
			with(func(p *Pair) {
				m, _ := LookupModel("zai-org/GLM-4.7-Flash")
				p.Engine, p.Version, p.Model = SGLang, "0.5.23", &m
				p.Prefill.Layout, p.Decode.Layout = Layout{TP: 6, DP: 2}, Layout{TP: 4, DP: 2}
			}),
			"heads-tp", "set prefill.layout.tp to 4", "prefill.layout.tp=4",
		},
		"SGLang's equal tp, over dp ranks of one side": {
			on(llama, func(p *Pair) {
				p.Engine, p.Version, p.Decode.DevicesPerNode = SGLang, "0.5.20", 16
				p.Prefill.Layout, p.Decode.Layout = Layout{TP: 8, DP: 4}, Layout{TP: 16}
			}),
			"sglang-head-copies", "set decode.layout.tp to 2, or prefill.layout.tp to 64, or use an engine.image of SGLang 0.5.21 or later", "decode.layout.tp=2",
		},
		"a tp that the other side's does not fit": {
			with(func(p *Pair) {
				p.Geometry.AttentionHeads, p.Prefill.Layout.TP, p.Decode.Layout.TP = 120, 7, 4
			}),
			"heads-tp", "set prefill.layout.tp to 6 and decode.layout.tp to 6, or prefill.layout.tp to 4", "prefill.layout.tp=6,decode.layout.tp=6",
		},
		"the same over SGLang's dp ranks": {
			with(func(p *Pair) {
				p.Engine, p.Version, p.Geometry.AttentionHeads, p.Prefill.DevicesPerNode = SGLang, "0.5.23", 120, 16
				p.Prefill.Layout, p.Decode.Layout = Layout{TP: 14, DP: 2}, Layout{TP: 4}
			}),
			"heads-tp", "set prefill.layout.tp to 12 and decode.layout.tp to 6, or prefill.layout.tp to 8", "prefill.layout.tp=12,decode.layout.tp=6",
		},
		"a tp of none below": {
			with(func(p *Pair) { p.Geometry.AttentionHeads, p.Prefill.Layout.TP, p.Decode.Layout.TP = 5, 2, 1 }),
			"heads-tp", "set prefill.layout.tp to 1", "prefill.layout.tp=1",
		},
		"beside a refusal that stays": {
			with(func(p *Pair) { p.Prefill.Layout.TP, p.Decode.BlockSize = 3, 16 }),
			"heads-tp", "set prefill.layout.tp to 2", "prefill.layout.tp=2",
		},
		"beside a refusal of the same rule": {
			with(func(p *Pair) { p.Prefill.Layout.TP, p.Decode.Layout.TP = 3, 3 }),
			"heads-tp", "set prefill.layout.tp to 2", "prefill.layout.tp=2",
		},
	} {
		if got := firstOf(c.rule, Compatible(c.pair)); got.Fix != c.fix || got.Set != c.set {
			t.Errorf("%s: %q (%s), want %q (%s)", name, got.Fix, got.Set, c.fix, c.set)
		}
	}
}

// A change of what a pair does not have is none.
func TestChangesApply(t *testing.T) {
	for text, want := range map[string]bool{
		"decode.layout.tp=4": true, "prefill.blockSize=32": true, "model.maxLength=4096": true, "transfer.mode=Read": true,
		"decode.layout.tp=four": false, "decode.layout.width=4": false, "model.maxLength=long": false, "gpu.devicesPerNode=8": false,
	} {
		p := plainPair()
		field, value, _ := strings.Cut(text, "=")
		if got := (Change{field, value}).apply(&p); got != want || (p != plainPair()) != want {
			t.Errorf("%s: %v, and the pair is another: %v", text, got, p != plainPair())
		}
	}
}
