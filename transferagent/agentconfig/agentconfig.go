// Package agentconfig is the contract from the operator to the transfer agent:
// one JSON document in the environment variable PDPOOL_AGENT_CONFIG of the
// sidecar, as immutable as the pod. The router reads the parts of it that the
// operator repeats in the pod's annotations. It is pure.
package agentconfig

import (
	"github.com/pdpool/pdpool/kvlayout"
)

// Env names the variable that carries the configuration; EnvPodIP, EnvNode and
// EnvPod are set by fieldRef beside it.
const (
	Env      = "PDPOOL_AGENT_CONFIG"
	EnvPodIP = "PDPOOL_POD_IP"
	EnvNode  = "PDPOOL_NODE"
	EnvPod   = "PDPOOL_POD"
)

// The files of Config.KeyDir. The secrets are taken as they are, byte for byte; the
// token is text that opens /debug to other hosts.
const (
	KeyFile         = "key"
	PreviousKeyFile = "previous"
	TokenFile       = "token"
)

// DrainHeader carries the token of Config.DrainToken in a request of /drain.
const DrainHeader = "X-PDPool-Drain"

// Version is the version of this contract. An agent accepts its own and the one before.
const Version = 1

// MaxBytes bounds the encoded configuration.
const MaxBytes = 32 << 10

// Config tells one agent what its pod is.
type Config struct {
	Version   int    `json:"version"`
	Namespace string `json:"namespace"`
	Pool      string `json:"pool"`
	PoolUID   string `json:"poolUID"`
	// Revision, Replica, Attempt and Pod place the pod in the pool: Pod is the
	// index in the replica.
	Revision string `json:"revision"`
	Replica  int    `json:"replica"`
	Attempt  int    `json:"attempt"`
	Pod      int    `json:"pod"`
	// Pods is the number of pods of the replica.
	Pods int           `json:"pods"`
	Role kvlayout.Role `json:"role"`
	// Pairing is the pairing key: agents with different keys refuse each other.
	Pairing string          `json:"pairing"`
	Engine  kvlayout.Engine `json:"engine"`
	// EngineVersion is such as 0.33.0; empty when it is not known.
	EngineVersion string            `json:"engineVersion,omitempty"`
	Mover         kvlayout.Mover    `json:"mover"`
	Mode          kvlayout.Mode     `json:"mode"`
	Backend       Backend           `json:"backend"`
	Model         string            `json:"model"`
	Served        string            `json:"served"`
	Layout        kvlayout.Layout   `json:"layout"`
	Block         int               `json:"blockSize"`
	KVType        kvlayout.KVType   `json:"kvType"`
	KV            kvlayout.Geometry `json:"geometry"`
	// DPStart is the first global data parallel rank of this pod.
	DPStart  int      `json:"dpStart"`
	Ports    Ports    `json:"ports"`
	Timeouts Timeouts `json:"timeouts"`
	// KVSocket is the path of the engine's door (mover Agent).
	KVSocket string `json:"kvSocket,omitempty"`
	// SharedDir is the pool's folder for sockets between agents of a node (backend SharedMemory).
	SharedDir string `json:"sharedDir,omitempty"`
	// KeyDir is the folder with the pool's secret: file "key" signs, "previous" (if
	// there) is accepted too. Empty: nothing is signed or checked.
	KeyDir string `json:"keyDir,omitempty"`
	// DrainToken is the hex SHA-256 of the token that /drain wants in header
	// X-PDPool-Drain. Empty: /drain answers anybody.
	DrainToken string `json:"drainToken,omitempty"`
	// Routers are the addresses (host:port) that get registrations (mover Engine).
	Routers []string `json:"routers,omitempty"`
}

// Backend is the way that bytes take between agents.
type Backend string

// The backends of this version. RDMA and XGMI exist with mover Engine only.
const (
	TCP          Backend = "TCP"
	SharedMemory Backend = "SharedMemory"
	RDMA         Backend = "RDMA"
	XGMI         Backend = "XGMI"
)

// OneHost says that the backend moves bytes within one node only.
func (b Backend) OneHost() bool { return b == SharedMemory || b == XGMI }

// Ports are the TCP ports of one pod. The operator takes them from one block per
// replica. EngineHandshake and EngineNotify are bases: rank (dp, tp) of the pod
// binds base + dp + tp.
type Ports struct {
	HTTP            int `json:"http"`            // the engine's OpenAI server
	Agent           int `json:"agent"`           // the agent's health, metrics and /transfers
	Handshake       int `json:"handshake"`       // the agent's MoRIIO handshake listener
	Notify          int `json:"notify"`          // the agent's MoRIIO notify listener
	Data            int `json:"data"`            // the agent's tcp mover
	Ping            int `json:"ping"`            // where a stock engine registers (mover Engine)
	Metrics         int `json:"metrics"`         // reserved for engines that serve metrics apart
	Master          int `json:"master"`          // group rendezvous of a multi-pod replica
	RPC             int `json:"rpc"`             // data parallel RPC
	VLLM            int `json:"vllm"`            // VLLM_PORT: where the engine looks for free ports from
	EngineHandshake int `json:"engineHandshake"` // base, mover Engine
	EngineNotify    int `json:"engineNotify"`    // base, mover Engine
}

// Timeouts are in seconds.
type Timeouts struct {
	Transfer     int `json:"transfer"`     // from the first byte to the last of one transfer
	Defer        int `json:"defer"`        // how long prefill keeps blocks for a decode that hasn't allocated
	ReceiveAbort int `json:"receiveAbort"` // how long decode waits for its writers
	Drain        int `json:"drain"`        // how long /drain waits for live transfers
}
