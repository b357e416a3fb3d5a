package engine

import (
	"slices"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// arity says what follows a flag.
type arity int

const (
	one    arity = iota // one value
	toggle              // none; also as --no-name
	mark                // none, and no --no-name
	many                // one or more values
	object              // one JSON value, or one value per dotted key
)

// known is a flag that ParseArgs can tell apart. Whatever is not listed is kept
// with all words up to the next flag.
type known struct {
	name    string
	short   string
	aliases []string // other long names
	takes   arity
	whole   bool // its value is a whole number
	owner   owner
	degree  string // the field of a layout that problems of command lines name and no pool has
}

func (k known) bare() bool { return k.takes == toggle || k.takes == mark }

// dialect is how an engine spells its arguments.
type dialect struct {
	flags []known
	env   map[string]owner
	// flexible: underscores count as dashes and dotted keys reach into JSON, as with
	// vLLM's parser. Without, it is plain argparse.
	flexible bool
	// released are the flags that one release takes.
	released func() releasedFlags
}

var vllmDialect = dialect{flags: knownFlags, env: ownedEnv, flexible: true, released: vllmReleased}

// dialectOf is the dialect of an engine; the Simulator speaks vLLM's.
func dialectOf(kind kvlayout.Engine) *dialect {
	if kind == kvlayout.SGLang {
		return &sglangDialect
	}
	return &vllmDialect
}

// owner says which field of the spec stands for a flag that the operator renders.
type owner struct {
	field   string // below spec, or below the role when perRole
	perRole bool
	why     string // where no field stands for it
}

func (o owner) owned() bool { return o != owner{} }

func role(field string) owner   { return owner{field: field, perRole: true} }
func spec(field string) owner   { return owner{field: field} }
func never(reason string) owner { return owner{why: reason} }

var (
	ports      = never("the operator chooses the ports of a pod")
	oneStage   = never("an instance has no pipeline stages: split the model by layout.tp")
	oneHost    = never("a tensor parallel group lies in one pod; more pods come from layout.dp and layout.dpLocal")
	balancer   = never("the router chooses data parallel ranks; their groups come from layout.dp and layout.dpLocal")
	kvTransfer = spec("transfer")
)

// knownFlags is vLLM's spelling of what matters here.
var knownFlags = []known{
	{name: "model", owner: spec("model.name")},
	{name: "served-model-name", takes: many, owner: spec("model.servedName")},
	{name: "config", owner: never("flags inside a file can't be checked: put them into args")},
	{name: "host", owner: never("the agent and the probes reach the engine on all addresses of the pod")},
	{name: "port", whole: true, owner: ports},
	{name: "headless", takes: toggle, owner: never("every pod of a replica serves HTTP")},
	{name: "max-model-len", owner: spec("model.maxLength")},

	{name: "tensor-parallel-size", short: "tp", whole: true, owner: role("layout.tp")},
	{name: "pipeline-parallel-size", short: "pp", whole: true, owner: oneStage, degree: "layout.pp"},
	{name: "prefill-context-parallel-size", short: "pcp", whole: true, owner: never("prefill context parallelism has no KV transfer")},
	{name: "decode-context-parallel-size", short: "dcp", whole: true, owner: role("layout.dcp")},
	{name: "cp-kv-cache-interleave-size", whole: true, owner: role("layout.interleave")},
	{name: "dcp-kv-cache-interleave-size", whole: true, owner: role("layout.interleave")},
	{name: "data-parallel-size", short: "dp", whole: true, owner: role("layout.dp")},
	{name: "data-parallel-size-local", short: "dpl", whole: true, owner: role("layout.dpLocal")},
	{name: "data-parallel-rank", short: "dpn", whole: true, owner: balancer},
	{name: "data-parallel-start-rank", short: "dpr", whole: true, owner: balancer},
	{name: "data-parallel-address", short: "dpa", owner: balancer},
	{name: "data-parallel-rpc-port", short: "dpp", whole: true, owner: ports},
	{name: "data-parallel-supervisor-port", whole: true, owner: ports},
	{name: "data-parallel-hybrid-lb", short: "dph", takes: toggle, owner: balancer},
	{name: "data-parallel-external-lb", short: "dpe", takes: toggle, owner: balancer},
	{name: "data-parallel-multi-port-external-lb", short: "dpm", takes: toggle, owner: balancer},
	{name: "nnodes", short: "n", whole: true, owner: oneHost},
	{name: "node-rank", short: "r", whole: true, owner: oneHost},
	{name: "master-addr", owner: oneHost},
	{name: "master-port", whole: true, owner: ports},

	{name: "block-size", whole: true, owner: spec("engine.blockSize")},
	{name: "kv-cache-dtype", owner: spec("engine.kvCacheType")},
	{name: "kv-cache-memory-bytes", owner: spec("engine.kvCacheMemory")},
	{name: "kv-transfer-config", takes: object, owner: kvTransfer},

	// Not the operator's, listed for their arity or because the Simulator takes them.
	{name: "num-gpu-blocks-override", whole: true},
	{name: "data-parallel-backend", short: "dpb"},
	{name: "api-server-count", short: "asc", whole: true},
	{name: "enable-expert-parallel", short: "ep", takes: toggle},
	{name: "enable-chunked-prefill", takes: toggle},
	{name: "enable-prefix-caching", takes: toggle},
	{name: "enforce-eager", takes: toggle},
	{name: "trust-remote-code", takes: toggle},
	{name: "disable-hybrid-kv-cache-manager", takes: toggle},
	{name: "dcp-q-replicate", takes: toggle},
	{name: "dcp-comm-backend"},
	{name: "all2all-backend"},
	{name: "mamba-cache-mode"},
	{name: "attention-backend"},
	{name: "gpu-memory-utilization", aliases: []string{"device-memory-utilization"}},
	{name: "max-num-seqs", whole: true},
	{name: "max-num-batched-tokens"},
	{name: "dtype"},
	{name: "quantization", short: "q"},
	{name: "tokenizer"},
	{name: "seed", whole: true},
	{name: "revision"},
	{name: "optimization-level", short: "O"},
	{name: "compilation-config", short: "cc", takes: object},
	{name: "attention-config", short: "ac", takes: object},
	{name: "speculative-config", short: "sc", takes: object},
	{name: "spec-method"},
	{name: "spec-model"},
	{name: "spec-tokens", whole: true},
	{name: "hf-overrides", takes: object},

	{name: "sim-geometry", takes: object, owner: spec("model.geometry")},
	{name: "sim-kv-layout"},
	{name: "sim-fault"},
	{name: "sim-prefill-ms-per-layer"},
	{name: "sim-ms-per-token"},
	{name: "sim-max-queue", whole: true},
}

// ownedEnv is the environment that the operator sets or that would undo a flag of it.
var ownedEnv = map[string]owner{
	HostIP:                           never("the operator sets the pod's IP"),
	"VLLM_PORT":                      ports,
	"VLLM_ENGINE_READY_TIMEOUT_S":    never("the operator sizes it with the startup probe"),
	"VLLM_MORIIO_TRANSFER_TIMEOUT_S": spec("transfer.receiveAbortTimeoutSeconds"),
	"VLLM_DP_SIZE":                   role("layout.dp"),
	"VLLM_DP_RANK":                   balancer,
	"VLLM_DP_RANK_LOCAL":             balancer,
	"VLLM_DP_MASTER_IP":              balancer,
	"VLLM_DP_MASTER_PORT":            ports,
}

// lookup finds the flag that a parser like Python's argparse would take for a
// long name: the exact one, else the only one that it abbreviates.
func (d *dialect) lookup(name string) (known, bool) {
	found := -1
	for i, k := range d.flags {
		if k.name == name || slices.Contains(k.aliases, name) {
			return k, true
		}
		if len(name) < 2 || !k.begins(name) {
			continue
		}
		if found >= 0 {
			found = len(d.flags) // ambiguous, unless an exact name follows
			continue
		}
		found = i
	}
	if found < 0 || found == len(d.flags) {
		return known{}, false
	}
	return d.flags[found], true
}

// begins says whether one of the flag's long names begins so.
func (k known) begins(prefix string) bool {
	return strings.HasPrefix(k.name, prefix) ||
		slices.ContainsFunc(k.aliases, func(a string) bool { return strings.HasPrefix(a, prefix) })
}

func (d *dialect) lookupShort(short string) (known, bool) {
	if short == "" {
		return known{}, false
	}
	i := slices.IndexFunc(d.flags, func(k known) bool { return k.short == short })
	if i < 0 {
		return known{}, false
	}
	return d.flags[i], true
}
