package router

import (
	"fmt"
	"sync"

	"github.com/pdpool/pdpool/kvlayout"
)

// Refusal says why no pair can take a request.
type Refusal struct {
	// Rule is the id of a kvlayout rule, or one of the Rule constants.
	Rule string
	Text string // one sentence
}

func (r *Refusal) Error() string { return r.Rule + ": " + r.Text }

// Why no pair can take a request, besides the rules of kvlayout.
const (
	// RuleNoInstance: no instance of a role is ready.
	RuleNoInstance = "no-instance"
	// RuleNoPair: instances of both roles are ready, none of equal pairing key.
	RuleNoPair = "no-pair"
	// RuleNoModel: no instance serves the model.
	RuleNoModel = "model_not_found"
	// ruleMode: what MoRIIO's mode READ asks of a router is not built.
	ruleMode = "mover-unavailable"
)

// maxVerdicts bounds the cache of verdicts; pools have a handful.
const maxVerdicts = 4096

// verdicts remembers what kvlayout says of a pair of layouts.
type verdicts struct {
	mu    sync.Mutex
	known map[kvlayout.Pair]*Refusal
}

// of returns nil when kvlayout lets the pair be.
func (v *verdicts) of(p kvlayout.Pair) *Refusal {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r, ok := v.known[p]; ok {
		return r
	}
	if v.known == nil || len(v.known) >= maxVerdicts {
		v.known = map[kvlayout.Pair]*Refusal{}
	}
	var refusal *Refusal
	for _, problem := range kvlayout.Compatible(p) {
		if problem.Severity == kvlayout.Refuse {
			refusal = &Refusal{problem.Rule, problem.Message + "; " + problem.Reason + "; " + problem.Fix}
			break
		}
	}
	v.known[p] = refusal
	return refusal
}

// judge returns nil when prefill may write to decode. Refusals are ordered: one
// that comes later in it is closer to a pair.
func (v *verdicts) judge(prefill, decode *Instance) *Refusal {
	switch {
	case prefill.Pairing != decode.Pairing:
		return &Refusal{RuleNoPair, "prefill and decode replicas are ready, but none of them have the same pairing key: they differ in model, engine, block size, KV type or mover"}
	case prefill.Mode != decode.Mode || prefill.Mover != decode.Mover:
		return &Refusal{RuleNoPair, fmt.Sprintf("prefill replicas run %s with mover %s, decode replicas %s with mover %s",
			prefill.Mode, prefill.Mover, decode.Mode, decode.Mover)}
	case prefill.Mode != kvlayout.Write:
		return &Refusal{ruleMode, fmt.Sprintf("the replicas run transfer mode %s, this router dispatches %s only", prefill.Mode, kvlayout.Write)}
	case (prefill.OneHost || decode.OneHost) && !sameNode(prefill, decode):
		return &Refusal{RuleNoPair, "the backend moves bytes within one node only, but no prefill and decode replica are on the same node"}
	case prefill.Pairing == "":
		return nil
	}
	p := kvlayout.Pair{
		Engine: prefill.Engine, Version: prefill.Version, Mover: prefill.Mover, Mode: prefill.Mode,
		Geometry: prefill.KV, HasGeometry: prefill.KV != (kvlayout.Geometry{}),
		Prefill: side(prefill), Decode: side(decode),
	}
	refusal := v.of(p)
	if refusal == nil && decode.Version != prefill.Version {
		// What a pair can do its older side can.
		p.Version = decode.Version
		refusal = v.of(p)
	}
	return refusal
}

func side(i *Instance) kvlayout.Side {
	return kvlayout.Side{Layout: i.Layout, BlockSize: i.Block, KVType: i.KVType}
}

// sameNode says that all pods of both are on one node, which is known.
func sameNode(a, b *Instance) bool {
	node := ""
	for _, pods := range [][]Pod{a.Pods, b.Pods} {
		for i := range pods {
			n := pods[i].Node
			if n == "" || node != "" && n != node {
				return false
			}
			node = n
		}
	}
	return true
}

// nearness orders refusals: the one told is the one that was closest to a pair.
func nearness(r *Refusal) int {
	switch r.Rule {
	case RuleNoInstance:
		return 0
	case RuleNoPair:
		return 1
	case ruleMode:
		return 2
	}
	return 3
}
