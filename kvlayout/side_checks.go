package kvlayout

import (
	"fmt"
	"slices"
)

// maxDegree is more than any engine has of anything that a degree counts. It keeps
// what a stranger's handshake says from costing seconds.
const maxDegree = 1 << 16

func degrees(v *view, role Role) []finding {
	l := v.layout(role)
	var fs []finding
	for _, d := range []struct {
		name  string
		value int
	}{{"tp", l.TP}, {"pp", l.PP}, {"dp", l.DP}, {"dpLocal", l.DPLocal}, {"dcp", l.DCP}, {"interleave", l.Interleave}} {
		if d.name == "dpLocal" && v.side(role).Layout.DPLocal == 0 {
			continue // It is dp's, which has been looked at.
		}
		if d.value < 1 || d.value > maxDegree {
			field := layoutField(role, d.name)
			fd := finding{
				field: field, message: fmt.Sprintf("%s %s is %d", role, d.name, d.value),
				fix: fmt.Sprintf("set %s to a number from 1 to %d", field, maxDegree),
			}
			if d.name == "pp" { // which is no field of a pool
				fd.fix = fmt.Sprintf("remove --pipeline-parallel-size on %s", role)
			}
			fs = append(fs, fd)
		}
	}
	if len(fs) > 0 {
		return fs
	}
	if l.DP%l.DPLocal != 0 {
		field := layoutField(role, "dpLocal")
		fs = append(fs, finding{
			field: field, message: fmt.Sprintf("%s dpLocal %d does not divide dp %d", role, l.DPLocal, l.DP),
			ways: []way{{set(field, largest(l.DPLocal, func(n int) bool { return l.DP%n == 0 }))}},
		})
	}
	if v.Engine == SGLang && l.TP%l.DP != 0 {
		field, dp := layoutField(role, "dp"), largest(l.DP, func(n int) bool { return l.TP%n == 0 })
		w := way{set(field, dp)}
		if v.side(role).Layout.DPLocal != 0 {
			w = append(w, set(layoutField(role, "dpLocal"), largest(min(l.DPLocal, dp), func(n int) bool { return dp%n == 0 })))
		}
		fs = append(fs, finding{
			field: field, message: fmt.Sprintf("%s dp %d does not divide tp %d", role, l.DP, l.TP),
			reason: "SGLang's DP attention cuts the TP group into dp equal groups", ways: []way{w},
		})
	}
	return fs
}

func modelGeometry(v *view, role Role) []finding {
	l := v.layout(role)
	if v.heads.known || (l.TP == 1 && l.DCP == 1) {
		return nil
	}
	model := v.Geometry.Model
	if model == "" {
		model = "the model"
	}
	return []finding{{
		field: "model.geometry", message: fmt.Sprintf("the KV geometry of %s is not known", model),
		fix: "set model.geometry from the model's config.json (kind, layers, attentionHeads, kvHeads, headValues)",
	}}
}

func headsTP(v *view, role Role) []finding {
	tp, heads := v.attentionTP(role), v.heads.query
	if !v.heads.known || heads < 1 || heads%tp == 0 {
		return nil
	}
	return []finding{{
		field:   tpField(role),
		message: fmt.Sprintf("%s tp %d does not divide %d attention heads", role, tp, heads),
		ways:    v.tpWays(role, v.tpFor(role, v.largestTP(tp))),
	}}
}

func kvHeadsTP(v *view, role Role) []finding {
	tp := v.attentionTP(role)
	at := slices.IndexFunc(v.heads.kv, func(n int) bool { return n%tp != 0 && tp%n != 0 })
	if !v.headSharded() || at < 0 {
		return nil
	}
	return []finding{{
		field:   tpField(role),
		message: fmt.Sprintf("%s tp %d and %d KV heads do not divide each other", role, tp, v.heads.kv[at]),
		ways:    v.tpWays(role, v.tpFor(role, v.largestTP(tp))),
	}}
}

// tpFits says whether the model's heads can be split over tp ranks.
func (v *view) tpFits(tp int) bool {
	return v.fitted == nil || v.fitted.FitsTP(tp)
}

// mostTP bounds the search for a tp that fits and is at most n: no model is split over
// more ranks than it has attention heads.
func (v *view) mostTP(n int) int {
	if v.fitted == nil || v.fitted.AttentionHeads < 1 {
		return min(n, maxDegree)
	}
	return min(n, v.fitted.AttentionHeads, maxDegree)
}

// largestTP is the largest tp up to most that fits; 1 if none does.
func (v *view) largestTP(most int) int { return largest(v.mostTP(most), v.tpFits) }

func dcpTP(v *view, role Role) []finding {
	l := v.layout(role)
	field := layoutField(role, "dcp")
	if pcp := v.side(role).PCP; pcp > 1 && v.vllmRules() {
		if l.DCP == 1 || l.DCP == pcp || l.DCP == l.TP*pcp {
			return nil
		}
		return []finding{{
			field: field, message: fmt.Sprintf("%s dcp %d with prefill context parallelism of %d and tp %d", role, l.DCP, pcp, l.TP),
			reason: "with prefill context parallelism, vLLM takes no dcp but 1, the same degree, or all of its ranks",
			ways:   v.dcpWays(role, pcp),
		}}
	}
	if l.TP%l.DCP == 0 {
		return nil
	}
	return []finding{{
		field:   field,
		message: fmt.Sprintf("%s dcp %d does not divide tp %d", role, l.DCP, l.TP),
		ways:    v.dcpWays(role, largest(min(l.DCP, l.TP), func(n int) bool { return l.TP%n == 0 })),
	}}
}

func dcpGQA(v *view, role Role) []finding {
	l := v.layout(role)
	if !v.vllmRules() || !v.headSharded() || v.heads.latent || l.DCP == 1 {
		return nil
	}
	kv, query := slices.Max(v.heads.kv), v.heads.query
	fits := func(dcp int) bool { return l.TP%dcp == 0 && dealsCopies(l.TP, dcp, kv, query) }
	if fits(l.DCP) {
		return nil
	}
	field := layoutField(role, "dcp")
	return []finding{{
		field: field,
		message: fmt.Sprintf("%s dcp %d with tp %d on %d KV heads and %d attention heads",
			role, l.DCP, l.TP, kv, query),
		ways: v.dcpWays(role, largest(l.DCP, fits)),
	}}
}

func interleaveBlock(v *view, role Role) []finding {
	l, b := v.layout(role), v.blockTokens(role)
	if !v.vllmRules() || l.DCP == 1 || b < 1 || b%l.Interleave == 0 {
		return nil
	}
	field := layoutField(role, "interleave")
	fd := finding{
		field:   field,
		message: fmt.Sprintf("%s interleave %d does not divide the block of %d tokens", role, l.Interleave, b),
	}
	n, other := largest(min(l.Interleave, b), func(n int) bool { return b%n == 0 }), layoutField(role.other(), "interleave")
	fd.ways = []way{{set(field, n)}, {set(field, n), set(other, n)}, {set(field, 1), set(other, 1)}}
	if v.states() && v.headSharded() {
		fd.severity = Warn // how the attention backend rounds a raised block is not known
	}
	return []finding{fd}
}

func interleaveUnused(v *view, role Role) []finding {
	l := v.layout(role)
	if l.Interleave == 1 || l.DCP > 1 {
		return nil
	}
	field := layoutField(role, "interleave")
	return []finding{{
		field:   field,
		message: fmt.Sprintf("%s interleave %d without DCP", role, l.Interleave),
		fix:     fmt.Sprintf("remove %s, or set %s", field, layoutField(role, "dcp")),
	}}
}

func (v *view) dense() bool { return v.vllmRules() && v.heads.known && !v.heads.moe }

func dpDense(v *view, role Role) []finding {
	l := v.layout(role)
	if !v.dense() || l.DP == 1 {
		return nil
	}
	field := layoutField(role, "dp")
	return []finding{{
		field:   field,
		message: fmt.Sprintf("%s dp %d on a model without experts", role, l.DP),
		fix:     fmt.Sprintf("set %s to 1 and multiply %s.replicas by %d", field, role, l.DP),
	}}
}

func dpDensePorts(v *view, role Role) []finding {
	l := v.layout(role)
	local := v.podRanks(role)
	if !v.dense() || !v.vllmConnector() || local == 1 {
		return nil
	}
	field := layoutField(role, "dp")
	return []finding{{
		field:   field,
		message: fmt.Sprintf("%s has %d data-parallel ranks in a pod, on a model without experts", role, local),
		ways:    []way{{useAgent}},
		fix:     fmt.Sprintf(", or set %s to 1 and multiply %s.replicas by %d", field, role, l.DP),
	}}
}

func portsDPTP(v *view, role Role) []finding {
	l := v.layout(role)
	local := v.podRanks(role)
	if !v.vllmConnector() || local == 1 || l.TP == 1 {
		return nil
	}
	field := layoutField(role, "dpLocal")
	return []finding{{
		field:   field,
		message: fmt.Sprintf("%s has %d data-parallel ranks of tp %d in one pod", role, local, l.TP),
		ways:    []way{{useAgent}, {set(field, 1)}},
	}}
}

func gpusPerPod(v *view, role Role) []finding {
	l, node := v.layout(role), v.side(role).DevicesPerNode
	rank, local := l.TP*l.PP*v.contextRanks(role), l.DPLocal
	if v.Engine == SGLang {
		local = 1 // Its DP ranks share the GPUs of the TP group.
	}
	if node < 1 {
		return v.widerThanNodes(role, rank)
	}
	gpus, n := rank*local, node
	if gpus <= n || (gpus%n == 0 && (n%rank == 0 || rank%n == 0)) {
		return nil
	}
	f := finding{message: fmt.Sprintf("a %s pod needs %d GPUs, and a node has %d", role, gpus, node)}
	if rank <= n {
		f.field = layoutField(role, "dpLocal")
		f.ways = []way{{set(f.field, largest(l.DPLocal, func(k int) bool {
			return l.DP%k == 0 && rank*k <= n
		}))}}
		return []finding{f}
	}
	if l.PP*v.contextRanks(role) > node {
		f.field = layoutField(role, "pp")
		f.fix = fmt.Sprintf("lower --pipeline-parallel-size on %s to %d", role, max(node/l.TP/v.contextRanks(role), 1))
		return []finding{f}
	}
	f.field = tpField(role)
	f.ways, f.fix = v.tpWays(role, v.tpOnNode(role, node)), ", or set gpu.devicesPerNode to what the nodes have"
	return []finding{f}
}

// mostOfNode is the number of AMD GPUs that nodes have, but where they are partitioned.
const mostOfNode = 8

// widerThanNodes is on a rank's GPUs where nobody says what nodes have.
func (v *view) widerThanNodes(role Role, gpus int) []finding {
	if gpus <= mostOfNode || v.side(role).Nodes > 1 || v.Engine == Simulator {
		return nil
	}
	fd := finding{
		field: tpField(role), severity: Warn,
		message: fmt.Sprintf("%s takes %d GPUs of one node, as it says no other", role, gpus),
		reason:  "nodes have 8 AMD GPUs, unless they are partitioned, and the engine stops at start where they are fewer",
		fix:     "say the nodes with --nnodes",
	}
	if tp := v.tpOnNode(role, mostOfNode); gpus/v.layout(role).TP*tp <= mostOfNode {
		fd.ways, fd.fix = v.tpWays(role, tp), ", or say the nodes with --nnodes"
	}
	return []finding{fd}
}

// contextRanks is vLLM's prefill context parallel degree, which adds GPUs.
func (v *view) contextRanks(role Role) int {
	if v.Engine == SGLang {
		return 1
	}
	return min(max(v.side(role).PCP, 1), maxDegree)
}

// podRanks is the number of data-parallel ranks that really share a pod: dpLocal,
// unless that needs more GPUs than a node has and is cut at whole nodes.
func (v *view) podRanks(role Role) int {
	l, node := v.layout(role), v.side(role).DevicesPerNode
	if node < 1 {
		return l.DPLocal
	}
	return min(l.DPLocal, max(node/(l.TP*l.PP*v.contextRanks(role)), 1))
}

// tpOnNode is the largest tp that keeps a data-parallel rank on one node.
func (v *view) tpOnNode(role Role, node int) int {
	l := v.layout(role)
	if v.Engine == SGLang {
		return l.DP * v.largestTP(node/l.PP/l.DP)
	}
	return v.largestTP(min(l.TP, node/l.PP/v.contextRanks(role)))
}
