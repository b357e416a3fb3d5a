// Package moriio holds the messages of the control protocol that vLLM's MoRIIO
// connector speaks: handshake, notifications and registration, as MessagePack.
// It is pure: Append and Parse, no sockets.
//
// Messages keep MoRIIO's names and fields; PDPool adds fields, all under names
// that begin with "pdpool", which stock peers ignore. Parse accepts what a stock
// vLLM 0.29 to 0.33 sends, ignores unknown fields, and never allocates by a
// length that the peer chose without a cap.
package moriio

import "github.com/pdpool/pdpool/kvlayout"

// GetMetadata is the first frame of a handshake.
const GetMetadata = "get_meta_msg"

// Metadata is the answer's first message (MoRIIOAgentMetadata).
type Metadata struct {
	EngineID        string // "<ip>:<handshake port>"
	EngineDesc      []byte // agent_metadata: packed MoRI EngineDesc, opaque
	BaseAddresses   []uint64
	NumBlocks       int
	BlockLen        int
	Backend         string           // attn_backend_name
	HeadLayouts     map[string][]int // kv_head_layouts
	StateLayouts    map[string][]int // mamba_state_layouts
	AttentionBlocks map[string]int   // attention_block_sizes; non-empty marks >= 0.33.0
	DCP             int              // dcp_size, 0 when not advertised
	Interleave      int              // cp_kv_cache_interleave_size, 0 when not advertised
	PDPool          *Agent           // pdpool: what a PDPool agent says of itself, nil for a stock peer
}

// Agent is what one PDPool agent tells another in the handshake.
type Agent struct {
	Version int    // of these fields
	Epoch   uint64 // incarnation of the agent: a new one ends all sessions of the old
	Pairing string
	Role    kvlayout.Role
	Pool    string
	DPStart int
	Layout  kvlayout.Layout
	Block   int
	KVType  kvlayout.KVType
	Model   string
	Mover   string // name of the mover: "tcp", "shm"
	Address []byte // of the mover, for its Dial
	Ranks   []AgentRank
}

// AgentRank is the memory of one rank of the pod.
type AgentRank struct {
	DP, TP  int // global data parallel rank, tensor parallel rank
	Memory  uint32
	Regions []kvlayout.Region
}

// RemoteBlocks tells prefill where decode wants a transfer (WRITE).
type RemoteBlocks struct {
	RequestID  string
	Transfer   string
	Blocks     []int32   // group 0
	Groups     [][]int32 // hybrid models: one list per transfer group, Blocks is the first
	DecodeRank int       // global DP rank of decode
	PDPool     *Allocation
}

// Allocation is what a PDPool decode adds to RemoteBlocks.
type Allocation struct {
	Epoch      uint64 // of the decode agent
	PeerEpoch  uint64 // of the prefill agent that is meant: another one refuses
	Host       string // where the decode agent's handshake and notify listeners are
	Handshake  int
	Notify     int
	PrefillDP  int // global DP rank of prefill that is meant
	FirstToken int
	Tokens     int
	Hash       []byte // of the prompt, from Expect; empty when the engine said none
}

// WriteDone reports that a writer has written all it had to.
type WriteDone struct {
	Transfer   string
	NumWriters int // 0 or 1: not sent
	PDPool     *Report
}

// WriteFailed reports that a writer has ended without writing all.
type WriteFailed struct {
	Transfer string
	PDPool   *Report
}

// Report is what a PDPool agent adds to write_done and write_failed.
type Report struct {
	Epoch     uint64 // of the prefill agent
	PeerEpoch uint64 // of the decode agent that it is meant for; 0 says nothing
	WriterDP  int
	WriterTP  int
	ReaderTP  int
	Bytes     int64  // written by this writer to this reader
	Rule      string // write_failed: why
	Text      string
}

// Release tells prefill that its blocks are not needed any more.
type Release struct {
	Transfer   string
	ConsumerTP int
	PDPool     *Released
}

// Released is what a PDPool agent adds to release.
type Released struct {
	Epoch uint64 // of the decode agent
	// PeerEpoch is that of the prefill agent which decode has named blocks to; 0 says nothing.
	PeerEpoch uint64
	Rule      string
	Text      string
}

// Registration is an instance's heartbeat to a router.
type Registration struct {
	Role         kvlayout.Role // "P" or "D" on the wire
	HTTPAddress  string        // "ip:port"
	ZMQAddress   string        // "host:IP,handshake:PORT,notify:PORT"
	DPSize       int
	TPSize       int
	TransferMode kvlayout.Mode // "WRITE" or "READ" on the wire
	PDPool       *Instance
}

// Instance is what the agent adds when it relays a stock engine's registration.
type Instance struct {
	Namespace string
	Pool      string
	Pod       string
	Pairing   string
	Revision  string
	Layout    kvlayout.Layout
	Block     int
	KVType    kvlayout.KVType
	Model     string // served name
	Agent     string // "ip:port" of the agent's HTTP server
	Draining  bool
}
