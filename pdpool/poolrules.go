package pdpool

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
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

// oldestEngine is the oldest vLLM whose connector the rules were checked against.
const oldestEngine = "0.29.0"

// checkVersion warns of a version that says nothing.
func checkVersion(pool *v1alpha1.PDPool, r *Resolved) []kvlayout.Problem {
	warn := func(message, fix string) []kvlayout.Problem {
		return []kvlayout.Problem{{Rule: "engine-version", Severity: kvlayout.Warn, Field: "engine.version", Message: message, Reason: reasonVersion, Fix: fix}}
	}
	if r.Engine == kvlayout.VLLM && r.Version != oldestEngine && kvlayout.Older(r.Version, oldestEngine) == r.Version && r.Version != "" {
		return warn(fmt.Sprintf("vLLM %s is older than %s, and what its connector can do is not known", r.Version, oldestEngine), "use an image of vLLM 0.33.0")
	}
	given := pool.Spec.Engine.Version
	if given == "" {
		return nil
	}
	if r.Engine == kvlayout.Simulator {
		return warn(fmt.Sprintf("version %q has no effect: the Simulator is of the operator's own version", given), "remove engine.version")
	}
	if _, ok := kvlayout.ParseRelease(given); !ok {
		return warn(fmt.Sprintf("version %q is no version, so that it is unknown", given), "write it as in 0.33.0, or remove it to have it read from the image's tag")
	}
	return nil
}

// checkMover holds what this version can't run yet.
func checkMover(pool *v1alpha1.PDPool, r *Resolved) []kvlayout.Problem {
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
		at, fix := withEngineMover(r)
		if pool.Spec.Transfer.Mover == v1alpha1.MoverAgent {
			at = "transfer.mover"
		}
		missing(at, "vLLM can't be run with mover Agent ("+r.MoverReason+")",
			"it takes a connector plugin in the engine's image, which this version does not have", fix)
	case r.Engine == kvlayout.Simulator && pool.Spec.Transfer.Mover == v1alpha1.MoverEngine:
		missing("transfer.mover", "the Simulator can't be run with mover Engine", "it has no connector of its own", "set transfer.mover to Agent or Auto")
	}
	return append(out, checkBackend(r)...)
}

// withEngineMover is where and what to change so that the engine's own connector
// serves the pair: what the first rule against it says.
func withEngineMover(r *Resolved) (field, fix string) {
	pair := r.Pair()
	pair.Mover = kvlayout.MoverAgent
	withAgent := kvlayout.Compatible(pair)
	pair.Mover = kvlayout.MoverEngine
	for _, p := range kvlayout.Compatible(pair) {
		same := func(o kvlayout.Problem) bool { return o.Rule == p.Rule && o.Field == p.Field }
		if p.Severity == kvlayout.Refuse && !slices.ContainsFunc(withAgent, same) {
			return causeOf(p), withoutAgent(p).Fix + " (rule " + p.Rule + "), or engine.type to Simulator to try the layout"
		}
	}
	return "transfer.mover", "set transfer.mover to Engine"
}

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

// checkMemory holds that a rank's memory for KV cache has room for a block.
func checkMemory(r *Resolved) []kvlayout.Problem {
	var out []kvlayout.Problem
	for _, s := range []*Side{&r.Prefill, &r.Decode} {
		block := int64(s.BlockSize) * kvlayout.TokenBytes(r.Geometry, s.KVType, s.Layout)
		if r.KVMemory > 0 && r.HasGeometry && r.KVMemory < block && len(out) == 0 {
			out = append(out, refuse("kv-memory", "engine.kvCacheMemory",
				fmt.Sprintf("engine.kvCacheMemory is %d bytes, and one block of %d tokens takes %d bytes on a rank of %s", r.KVMemory, s.BlockSize, block, s.Role),
				reasonMemory, fmt.Sprintf("set engine.kvCacheMemory to several times %d", block)))
		}
	}
	return out
}

// guessed says whether a problem is with a block size that nobody set and that is
// not known before the model is: then that alone is told.
func (r *Resolved) guessed(spec *v1alpha1.PDPoolSpec, p kvlayout.Problem) bool {
	return r.Engine == kvlayout.Simulator && !r.HasGeometry && p.Rule == "interleave-block" &&
		spec.Engine.BlockSize == 0 && spec.Prefill.BlockSize == 0 && spec.Decode.BlockSize == 0
}

// agentFixes are the ways in which kvlayout advises the agent as mover, and what
// is left of the sentence without.
var agentFixes = strings.NewReplacer(
	"set transfer.mover to Agent, use ", "use ",
	"set transfer.mover to Agent, or ", "set ",
	", or set transfer.mover to Agent", "",
	", or transfer.mover to Agent", "",
)

// withoutAgent takes the agent out of what a problem of a vLLM pool advises, as
// this version can't run it there.
func withoutAgent(p kvlayout.Problem) kvlayout.Problem {
	p.Fix = agentFixes.Replace(p.Fix)
	if p.Fix == "set transfer.mover to Agent" {
		p.Fix = "set decode.layout.dcp to 1"
	}
	return p
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

// checkArgs holds that a user's arguments and variables are the user's to set.
func checkArgs(spec *v1alpha1.PDPoolSpec) []kvlayout.Problem {
	out := ownedIn("engine.args", "engine.env", spec.Engine.Args, spec.Engine.Env, "")
	for _, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		rs := roleSpec(spec, role)
		out = append(out, ownedIn(string(role)+".args", string(role)+".env", rs.Args, rs.Env, role)...)
		if rs.Template == nil {
			continue
		}
		path, args, env := engineAt(rs.Template.Raw)
		path = string(role) + ".template." + path
		out = append(out, ownedIn(path+".args", path+".env", args, env, role)...)
	}
	return out
}

func ownedIn(argsPath, envPath string, args []string, env []corev1.EnvVar, role kvlayout.Role) []kvlayout.Problem {
	names := make([]string, 0, len(env))
	for _, e := range env {
		names = append(names, e.Name)
	}
	var out []kvlayout.Problem
	for _, o := range engine.Owned(args, names) {
		path, what := argsPath, "the flag"
		if o.Env {
			path, what = envPath, "the variable"
		}
		message := fmt.Sprintf("%s %s is the operator's", what, o.Spelled)
		if strings.TrimLeft(o.Spelled, "-") != o.Name {
			message = fmt.Sprintf("%s %s (%s) is the operator's", what, o.Spelled, o.Name)
		}
		out = append(out, refuse("args-owned", fmt.Sprintf("%s[%d]", path, o.Index), message, reasonArgs, o.Fix(role)))
	}
	return out
}
