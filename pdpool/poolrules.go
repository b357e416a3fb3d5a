package pdpool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// Rules is the catalog: the layout rules of kvlayout, and after them those on the
// rest of a pool.
func Rules() []kvlayout.RuleInfo {
	rule := func(id string, scope kvlayout.Scope, s kvlayout.Severity, description, reason string) kvlayout.RuleInfo {
		return kvlayout.RuleInfo{ID: id, Scope: scope, Severity: s, Description: description, Reason: reason}
	}
	return append(kvlayout.Rules(),
		rule("pool-name", kvlayout.PairScope, kvlayout.Refuse, "the pool's name is a short DNS label", reasonName),
		rule("ports-overlap", kvlayout.SideScope, kvlayout.Refuse, "with the engine's own connector, the ranks of a pod fit into its ports", reasonPorts),
		rule("mover-unavailable", kvlayout.PairScope, kvlayout.Refuse, "engine, mode, mover and backend are ones that this version can run", reasonMover),
		rule("backend-host", kvlayout.PairScope, kvlayout.Refuse, "with a backend within a host, a prefill and a decode instance fit on one", reasonHost),
		rule("args-owned", kvlayout.SideScope, kvlayout.Refuse, "arguments and environment hold nothing that fields of the pool stand for", reasonArgs),
		rule("args-words", kvlayout.SideScope, kvlayout.Refuse, "each element of the arguments is one word", reasonWords),
		rule("args-env-dead", kvlayout.SideScope, kvlayout.Warn, "environment variables do what they seem to", reasonEnv),
		rule("gpu-partition", kvlayout.PairScope, kvlayout.Warn, "gpu.resourceName and gpu.partition name one kind of device", reasonPartition),
		rule("template-owned", kvlayout.SideScope, kvlayout.Refuse, "a template holds only known fields that the operator leaves to the user", reasonTemplate),
		rule("gpus-resources", kvlayout.SideScope, kvlayout.Refuse, "GPUs come from the layout", reasonGPUs),
		rule("kv-memory", kvlayout.SideScope, kvlayout.Refuse, "engine.kvCacheMemory has room for a block of each role", reasonMemory),
		rule("engine-version", kvlayout.PairScope, kvlayout.Warn, "engine.version is a version, and the engine has one", reasonVersion),
		rule("fixed-field", kvlayout.PairScope, kvlayout.Refuse, "model.name and engine.type stay while replicas exist",
			"clients and instances rely on them"),
		rule("generation-change", kvlayout.PairScope, kvlayout.Warn, "old and new instances may pair",
			"else a whole new set of instances comes up beside the old one"),
	)
}

const (
	reasonName      = "the names of pods, which have at most 63 characters, begin with it"
	reasonPorts     = "each rank binds its own port behind a base, and a pod has a block of them"
	reasonMover     = "this version has no way to run it"
	reasonVersion   = "what an engine can do is told by its version"
	reasonHost      = "the bytes never leave the host, so both instances have to be on it"
	reasonArgs      = "the operator renders it, and of a repeated flag the last one would win in silence"
	reasonWords     = "no shell splits an element of args, so that the engine gets it as one word and stops"
	reasonEnv       = "a variable that is not looked at, or means something else, changes nothing or the wrong thing without an error"
	reasonPartition = "AMD's device plugin names the resource after the partitioning, and its labeller the label, so that no node has both"
	reasonTemplate  = "the operator has to rely on it"
	reasonMerge     = "a template adds and replaces; what it would remove is what the operator relies on"
	reasonMemory    = "an engine without a block can hold no prompt and does not start"
	reasonGPUs      = "a container gets exactly as many devices as its layout has ranks"
)

var poolName = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)

func checkName(pool *v1alpha1.PDPool) []kvlayout.Problem {
	name := pool.Name
	if name == "" && pool.GenerateName != "" {
		name = pool.GenerateName + "xxxxx" // what the server appends
	}
	switch {
	case len(name) > MaxNameLength:
		return []kvlayout.Problem{refuse("pool-name", "metadata.name",
			fmt.Sprintf("the name %q has %d characters, allowed are %d", name, len(name), MaxNameLength), reasonName, "choose a shorter name")}
	case !poolName.MatchString(name):
		return []kvlayout.Problem{refuse("pool-name", "metadata.name",
			fmt.Sprintf("the name %q does not match %s", name, poolName), reasonName,
			"begin with a letter, and use lower-case letters, digits and inner dashes only")}
	}
	return nil
}

// checkSplit holds that each pod fits the parts of this version: a tensor parallel
// group lies in one pod, and the ranks of a stock engine have the ports of a block.
func checkSplit(r *Resolved) []kvlayout.Problem {
	var out []kvlayout.Problem
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		l := r.Side(role).Layout
		f := string(role) + ".layout.tp"
		if l.TP > r.DevicesPerNode {
			out = append(out, refuse("gpus-per-pod", f,
				fmt.Sprintf("a tensor parallel group of %s needs %d GPUs, and a node has %d", role, l.TP, r.DevicesPerNode),
				"all ranks of a tensor parallel group are in one pod, and a pod runs on one node",
				fmt.Sprintf("set %s to at most %d, or gpu.devicesPerNode to what the nodes have", f, r.DevicesPerNode)))
		}
		if n := l.TP + l.DPLocal - 1; r.Mover == kvlayout.MoverEngine && n > ranksPerPod {
			out = append(out, refuse("ports-overlap", f,
				fmt.Sprintf("the ranks of a %s pod bind %d ports behind each base, and %d are between the bases", role, n, ranksPerPod),
				reasonPorts, fmt.Sprintf("set %s or %s.layout.dpLocal lower, so that tp + dpLocal is at most %d", f, role, ranksPerPod+1)))
		}
	}
	return out
}

// oldest are the oldest releases whose connectors the rules were checked against, and
// newest the ones to use.
var (
	oldest = map[kvlayout.Engine]string{kvlayout.VLLM: "0.29.0", kvlayout.SGLang: "0.5.20"}
	newest = map[kvlayout.Engine]string{kvlayout.VLLM: "0.33.0", kvlayout.SGLang: "0.5.23"}
)

// checkVersion warns of a version that says nothing.
func checkVersion(pool *v1alpha1.PDPool, r *Resolved) []kvlayout.Problem {
	warn := func(message, fix string) []kvlayout.Problem {
		return []kvlayout.Problem{{Rule: "engine-version", Severity: kvlayout.Warn, Field: "engine.version", Message: message, Reason: reasonVersion, Fix: fix}}
	}
	if least := oldest[r.Engine]; least != "" && r.Version != "" && r.Version != least && kvlayout.Older(r.Version, least) == r.Version {
		return warn(fmt.Sprintf("%s %s is older than %s, and what its connector can do is not known", r.Engine, r.Version, least),
			fmt.Sprintf("use an image of %s %s", r.Engine, newest[r.Engine]))
	}
	given := pool.Spec.Engine.Version
	if given == "" {
		return nil
	}
	if r.Engine == kvlayout.Simulator {
		return warn(fmt.Sprintf("version %q has no effect: the Simulator is of the operator's own version", given), "remove engine.version")
	}
	if _, ok := kvlayout.ParseRelease(given); !ok {
		return warn(fmt.Sprintf("version %q is no version, so that it is unknown", given), fmt.Sprintf("write it as in %s, or remove it to have it read from the image's tag", newest[r.Engine]))
	}
	return nil
}

// checkMover holds what this version can't run yet.
func checkMover(pool *v1alpha1.PDPool, r *Resolved, hidden bool) []kvlayout.Problem {
	var out []kvlayout.Problem
	missing := func(field, message, reason, fix string) {
		out = append(out, refuse("mover-unavailable", field, message, reason, fix))
	}
	if r.Engine == kvlayout.SGLang {
		missing("engine.type", "engine SGLang can't be run", reasonMover, "set engine.type to vLLM or Simulator")
		return out
	}
	if r.Engine == kvlayout.Simulator && !r.HasGeometry {
		out = append(out, refuse("model-geometry", "model.geometry", fmt.Sprintf("the KV geometry of %s is not known", r.Model),
			"the Simulator has no model to read it from", "set model.geometry"))
	}
	if r.Mode == kvlayout.Read {
		missing("transfer.mode", "transfer mode Read can't be run", reasonMover, "set transfer.mode to Write")
	}
	switch {
	case r.Engine == kvlayout.VLLM && r.Mover == kvlayout.MoverAgent:
		for i, w := range waysToEngine(r) {
			if i > 0 && !hidden {
				break
			}
			if pool.Spec.Transfer.Mover == v1alpha1.MoverAgent {
				w.field = "transfer.mover"
			}
			missing(w.field, "vLLM can't be run with mover Agent ("+r.MoverReason+")",
				"it takes a connector plugin in the engine's image, which this version does not have", w.fix)
		}
	case r.Engine == kvlayout.Simulator && pool.Spec.Transfer.Mover == v1alpha1.MoverEngine:
		missing("transfer.mover", "the Simulator can't be run with mover Engine", "it has no connector of its own", "set transfer.mover to Agent or Auto")
	}
	return append(out, checkBackend(r)...)
}

// judged is the pair as the rules judge it: with no fix that this version can't run.
func (r *Resolved) judged() kvlayout.Pair {
	pair := r.Pair()
	pair.NoAgent, pair.NoRead = r.Engine == kvlayout.VLLM, true
	return pair
}

// runnable is a problem with a fix, where the rules know none but what can't be run.
func runnable(p kvlayout.Problem) kvlayout.Problem {
	if p.Fix == "" {
		p.Fix = "take another model or layout: this version has no other way to move its cache"
	}
	return p
}

// waysToEngine are where and what to change so that the engine's own connector serves
// the pair, a change for each rule against it; the first is to be told.
func waysToEngine(r *Resolved) []way {
	pair := r.judged()
	pair.Mover = kvlayout.MoverAgent
	withAgent := kvlayout.Alone(pair)
	pair.Mover = kvlayout.MoverEngine
	var out []way
	for _, p := range slices.Concat(kvlayout.Compatible(pair), kvlayout.Alone(pair)) {
		same := func(o kvlayout.Problem) bool { return o.Rule == p.Rule && o.Field == p.Field }
		if p.Severity == kvlayout.Refuse && !slices.ContainsFunc(withAgent, same) {
			out = append(out, way{causeOf(p), runnable(p).Fix + " (rule " + p.Rule + "), or engine.type to Simulator to try the layout"})
		}
	}
	if out == nil {
		return []way{{"transfer.mover", "set transfer.mover to Engine"}}
	}
	return out
}

// way is what to change of which field.
type way struct{ field, fix string }

// causeOf is the field that a rule against the engine's connector is about. Such rules
// point at the mover, which elsewhere is the way out.
func causeOf(p kvlayout.Problem) string {
	switch {
	case p.Field != "transfer.mover":
	case strings.HasPrefix(p.Rule, "dcp-"):
		return "decode.layout.dcp"
	case strings.HasPrefix(p.Rule, "tp-"):
		return "decode.layout.tp"
	}
	return p.Field
}

// guessed says whether a problem is with a block size that nobody set and that is
// not known before the model is: then that alone is told.
func (r *Resolved) guessed(spec *v1alpha1.PDPoolSpec, p kvlayout.Problem) bool {
	return r.Engine == kvlayout.Simulator && !r.HasGeometry && p.Rule == "interleave-block" &&
		spec.Engine.BlockSize == 0 && spec.Prefill.BlockSize == 0 && spec.Decode.BlockSize == 0
}

func checkBackend(r *Resolved) []kvlayout.Problem {
	var out []kvlayout.Problem
	wrong := func(message, fix string) {
		out = append(out, refuse("mover-unavailable", "transfer.backend", message, "each mover has its own ways for the bytes", fix))
	}
	agents := r.Backend == agentconfig.TCP || r.Backend == agentconfig.SharedMemory
	switch {
	case r.Mover == kvlayout.MoverAgent && !agents:
		wrong(fmt.Sprintf("backend %s can't be run with mover Agent", r.Backend), "set transfer.backend to TCP or SharedMemory")
	case r.Mover == kvlayout.MoverEngine && agents:
		wrong(fmt.Sprintf("backend %s can't be run with mover Engine", r.Backend), "set transfer.backend to RDMA or XGMI")
	}
	if r.oneHost() && r.Prefill.Replicas == r.Decode.Replicas && r.Prefill.Replicas > 1 {
		out = append(out, refuse("mover-unavailable", "transfer.backend",
			fmt.Sprintf("backend %s can't be run with %d replicas of each role", r.Backend, r.Prefill.Replicas),
			"this version puts all instances of such a pool on one host", "set prefill.replicas and decode.replicas to 1"))
	}
	return out
}

// checkHost holds that a cell, one prefill and one decode instance, fits on a host.
func checkHost(r *Resolved) []kvlayout.Problem {
	if !r.oneHost() {
		return nil
	}
	var out []kvlayout.Problem
	if p, d := r.Prefill.Replicas, r.Decode.Replicas; p != d {
		out = append(out, refuse("backend-host", "decode.replicas",
			fmt.Sprintf("backend %s has %d prefill and %d decode replicas", r.Backend, p, d), reasonHost+", one of each",
			fmt.Sprintf("set decode.replicas to %d", p)))
	}
	need := r.Prefill.Pods*r.Prefill.GPUs + r.Decode.Pods*r.Decode.GPUs
	if need > r.DevicesPerNode {
		out = append(out, refuse("backend-host", "transfer.backend",
			fmt.Sprintf("a prefill and a decode instance need %d GPUs, and a node has %d", need, r.DevicesPerNode), reasonHost,
			"set transfer.backend to Auto, or lower tp and dp"))
	}
	return out
}
