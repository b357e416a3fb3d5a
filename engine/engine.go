// Package engine knows the command lines of inference engines: what the operator
// renders for a pod (Render), what a user typed (ParseArgs), which of it the
// operator must have for itself (Owned), and what commands mean that start an
// engine by hand (ParseCommands, Launch.Read).
//
// It is pure. Facts about flags, defaults and environment are those of vLLM 0.33.0
// and SGLang 0.5.23, and hack/interop-vllm.sh holds them against both; kvlayout.Facts
// has what differs by release. PDPool's Simulator takes vLLM's flags, and adds some
// that begin with "--sim-".
package engine

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// Backend is the way of the bytes, spelled as in the API. Only those of the
// Engine mover reach a command line.
type Backend string

// The backends of vLLM's MoRIIO connector.
const (
	RDMA Backend = "RDMA"
	XGMI Backend = "XGMI"
)

// HealthPath answers 200 while the engine can serve. The models route answers
// even after the engine core has died, so it is no readiness probe.
const HealthPath = "/health"

// SimulatorBinary is where the image of the Simulator has its program.
const SimulatorBinary = "/usr/local/bin/enginesim"

// HostIP is the variable with the pod's IP; arguments refer to it in the form
// that the kubelet expands.
const HostIP = "VLLM_HOST_IP"

// Input is one pod of an engine instance, all values resolved.
type Input struct {
	Kind kvlayout.Engine // VLLM or Simulator
	Role kvlayout.Role
	// Model is what the engine loads: a name or a path.
	Model string
	// Served is the name that clients use; Model when empty.
	Served string
	// Geometry is told to the Simulator, which has no model to read it from.
	Geometry kvlayout.Geometry
	Layout   kvlayout.Layout
	// BlockSize is tokens per block and rank; DefaultBlockSize when 0.
	BlockSize int
	KVType    kvlayout.KVType
	// KVMemory is bytes of KV memory per rank; 0 leaves it to the engine.
	KVMemory int64
	// MaxLength is tokens of prompt and answer; 0 leaves it to the engine.
	MaxLength int
	Mover     kvlayout.Mover
	// Mode must be Write in this version.
	Mode kvlayout.Mode
	// Backend is used with MoverEngine.
	Backend  Backend
	Timeouts Timeouts
	Ports    Ports
	// Pod is the index of the pod in its replica of Pods pods; DPStart the first
	// global data parallel rank of it; Leader the host (name or IP) of pod 0.
	Pod, Pods, DPStart int
	Leader             string
	// Args are the user's, already known to hold no Owned flag. They come last.
	Args []string
	// KVSocket is the path of the agent's door, used with MoverAgent.
	KVSocket string
}

// Timeouts of transfers, in seconds, used with MoverEngine. All must be > 0.
type Timeouts struct {
	Transfer     int
	Defer        int
	ReceiveAbort int
}

// Ports are what an engine binds or is told to dial. Handshake and Notify are
// bases: rank (dp, tp) of the pod binds base + dp + tp.
type Ports struct {
	HTTP      int
	Ping      int // where the agent takes the engine's registration
	RPC       int // data parallel coordination
	VLLM      int // where the engine looks for free ports from
	Handshake int
	Notify    int
}

// Command is what a container runs. The user's environment comes after Env; the
// last value of a name counts.
type Command struct {
	Command []string
	Args    []string
	Env     []EnvVar
}

// EnvVar is an environment variable: a literal, or where Field is not empty the
// value of that field of the pod (a fieldRef path).
type EnvVar struct {
	Name  string
	Value string
	Field string
}

// DefaultBlockSize is the tokens per block and rank that the operator asks for
// when the spec says nothing. vLLM's own default is 16 or what the attention
// backend prefers; the backends for MLA on AMD GPUs run best at 64, and both
// sides of a pair must have the same, so the operator always renders one.
func DefaultBlockSize(g kvlayout.Geometry) int {
	if g.Kind == kvlayout.MLA {
		return 64
	}
	return 16
}

// StartupBudget is how long a starting engine may take until HealthPath answers.
// A large model that is fetched and compiled for the first time takes over an hour.
func StartupBudget(k kvlayout.Engine) time.Duration {
	if k == kvlayout.Simulator {
		return 2 * time.Minute
	}
	return 2 * time.Hour
}
