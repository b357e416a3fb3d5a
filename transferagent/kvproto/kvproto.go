// Package kvproto is the protocol of the KV socket, the door between an engine
// and its transfer agent. It is pure: messages, Append and Parse.
//
// The socket is a unix stream. A frame is a big-endian u32 length and that many
// bytes of one MessagePack map with a string "type". File descriptors travel as
// SCM_RIGHTS with the first byte of the frame that names them.
//
// An engine opens one scheduler connection per data parallel rank (block ids,
// peers and aborts arise there) and one worker connection per rank (memory,
// events and results). The first message of a connection is Hello, answered by
// Welcome or Refused.
package kvproto

import "time"

// ProtocolVersion travels in Hello.
const ProtocolVersion = 1

// Limits of what one side accepts from the other.
const (
	MaxFrame      = 4 << 20
	MaxTransferID = 256
	MaxBlocks     = 1 << 18 // block ids in one message
	MaxText       = 1024
	MaxRegions    = 4096 // regions of one worker
)

// Connection kinds.
const (
	Scheduler = "scheduler"
	Worker    = "worker"
)

// Message is any message of the protocol.
type Message interface{ Type() string }

// Hello opens a connection (engine to agent).
type Hello struct {
	Version     int
	Connection  string // Scheduler or Worker
	DP          int    // data parallel rank within the pod
	TP          int    // tensor parallel rank; 0 on a scheduler connection
	TPSize      int
	DCP         int
	Interleave  int
	BlockTokens int
	Blocks      int // number of blocks per rank
	Model       string
	KVType      string
	// Faults are injected into transfers of this engine; only an agent of a
	// Simulator pool takes them. See package transferagent/fault.
	Faults []string
}

// Welcome answers Hello (agent to engine). Epoch is the agent's incarnation: a
// new one means that everything in flight before has ended or will be reported.
type Welcome struct {
	Epoch uint64
	// Linger is how long peers may go on writing into the engine's memory after this
	// agent's process has ended, in whole milliseconds on the wire, rounded up; 0 where
	// only the agent itself writes. Blocks of transfers that were live when the
	// connections ended are quiet when an agent of the same epoch welcomes the engine
	// again, or Linger after one of another epoch does: the one before has ended then,
	// and not before, as it may only have been stopped.
	Linger time.Duration
	// Silence is the longest that this agent may have nothing to say of a transfer which
	// it is asked to move or to end, all its deadlines together, on the wire like Linger;
	// 0 says nothing. An engine that has heard nothing for longer may take the agent for
	// stopped.
	Silence time.Duration
}

// The longest that a Welcome can say.
const (
	MaxLinger  = time.Hour
	MaxSilence = 7 * 24 * time.Hour
)

// Memory hands over the KV memory of a worker's rank: a sealed memfd, the
// descriptor travels with the frame. At most one per worker connection.
type Memory struct {
	Bytes int64
}

// Region tells where one layer lies in the worker's memory; the fields are those
// of kvlayout.Region.
type Region struct {
	Name                                      string // the engine's layer name
	Layer                                     int
	Offset, BlockStride                       int64
	Blocks, BlockTokens, HeadFirst, HeadCount int
	HeadStride, TokenStride, RowBytes         int64
}

// Ready says that the worker's regions are complete.
type Ready struct{}

// Expect announces a transfer at admission, on either side (scheduler). Hash is
// over the prompt's token ids; sides whose Tokens or Hash differ fail as prompt-differs.
// Decode names the Peer of the Receive that is to follow, so that prefill hears of a
// transfer which ends before; the zero Peer says nothing, and then prefill keeps its
// blocks until it has waited long enough. Prefill's says nothing.
type Expect struct {
	Transfer string
	Tokens   int
	Hash     []byte // at most 32 bytes
	Peer     Peer
}

// Hold names the blocks that prefill keeps for a transfer (scheduler). The
// engine keeps them until Released.
type Hold struct {
	Transfer string
	Blocks   []int32
	Tokens   int
}

// Save says that a layer of a transfer's blocks is complete in the worker's
// memory (worker, prefill).
type Save struct {
	Transfer string
	Layer    int
}

// Sealed says that all layers are saved (worker, prefill).
type Sealed struct{ Transfer string }

// Receive asks for a WRITE into decode's blocks (scheduler, decode), once per request.
type Receive struct {
	Transfer   string
	Blocks     []int32
	FirstToken int // first token that is missing locally
	Tokens     int // prompt length
	Peer       Peer
}

// Peer names the prefill side as the router told the engine.
type Peer struct {
	Host      string // IP
	Handshake int
	Notify    int
	DP        int // global data parallel rank that runs the request
	TPSize    int
}

// Abort ends a transfer early (scheduler); answered by Quiet when no copy
// touches its blocks any more.
type Abort struct{ Transfer string }

// Done ends a transfer well: on a decode worker all expected writers are done
// and every byte is in place; exactly once per transfer and worker, or Failed.
type Done struct{ Transfer string }

// Failed ends a transfer badly, and no copy touches its blocks any more. Sent to
// the scheduler and to every worker of the rank group that was told of it, once each.
type Failed struct {
	Transfer string
	Rule     string // a rule id or a reason such as peer-gone, deadline-defer
	Text     string
}

// Quiet answers Abort: the blocks may be used again.
type Quiet struct{ Transfer string }

// Released tells prefill's scheduler that held blocks may be freed: all written,
// or the transfer has ended otherwise and is quiet.
type Released struct{ Transfer string }

// Refused answers a message that was wrong: the agent has done nothing for it.
// Blocks of a refused Hold or Receive are not touched on its account, and no other
// answer to it follows. The connection stays open unless the message was Hello.
type Refused struct {
	Rule     string
	Text     string
	Message  string // type of what is refused, empty when it could not be read
	Transfer string // that it names, empty when it names none
}

// TransferOf is the transfer that a message names, empty when it names none.
func TransferOf(m Message) string {
	switch m := m.(type) {
	case Expect:
		return m.Transfer
	case Hold:
		return m.Transfer
	case Save:
		return m.Transfer
	case Sealed:
		return m.Transfer
	case Receive:
		return m.Transfer
	case Abort:
		return m.Transfer
	case Done:
		return m.Transfer
	case Failed:
		return m.Transfer
	case Quiet:
		return m.Transfer
	case Released:
		return m.Transfer
	case Refused:
		return m.Transfer
	}
	return ""
}

// Type is "hello" on the wire.
func (Hello) Type() string { return "hello" }

// Type is "welcome" on the wire.
func (Welcome) Type() string { return "welcome" }

// Type is "memory" on the wire.
func (Memory) Type() string { return "memory" }

// Type is "region" on the wire.
func (Region) Type() string { return "region" }

// Type is "ready" on the wire.
func (Ready) Type() string { return "ready" }

// Type is "expect" on the wire.
func (Expect) Type() string { return "expect" }

// Type is "hold" on the wire.
func (Hold) Type() string { return "hold" }

// Type is "save" on the wire.
func (Save) Type() string { return "save" }

// Type is "sealed" on the wire.
func (Sealed) Type() string { return "sealed" }

// Type is "receive" on the wire.
func (Receive) Type() string { return "receive" }

// Type is "abort" on the wire.
func (Abort) Type() string { return "abort" }

// Type is "done" on the wire.
func (Done) Type() string { return "done" }

// Type is "failed" on the wire.
func (Failed) Type() string { return "failed" }

// Type is "quiet" on the wire.
func (Quiet) Type() string { return "quiet" }

// Type is "released" on the wire.
func (Released) Type() string { return "released" }

// Type is "refused" on the wire.
func (Refused) Type() string { return "refused" }
