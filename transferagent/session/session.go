// Package session holds the transfer state machines of the agent. It is pure: no
// goroutine, no clock, no socket. The agent's loop feeds a machine with events
// through Step and carries out what Ready returns, in order; Deadline says when
// Step wants a Tick if nothing else happens.
//
// One Prefill machine serves all ranks and transfers of a prefill pod, one Decode
// machine those of a decode pod (WRITE). docs/protocol.md has the state diagrams.
package session

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// Machine is what the agent's loop drives.
type Machine interface {
	// Step takes one event. An error means that the event was wrong (unknown
	// connection, duplicate, over a limit): it is counted under its Reason and
	// changes nothing else; the machine goes on.
	Step(now time.Time, ev Event) error
	// Ready returns and forgets what is to be done since the last call.
	Ready() Ready
	// Deadline is the earliest time at which a Tick is due; false when none is.
	Deadline() (time.Time, bool)
	// Transfer tells the state of one transfer, terminal ones too while they are
	// remembered (the newest 4096).
	Transfer(id string) (Transfer, bool)
	// Transfers lists the live ones.
	Transfers() []Transfer
	// Live is the number of them.
	Live() int
	// Asked is the number of transfers that peers wait for and the own engine has not
	// named yet.
	Asked() int
	// Needs says that a live transfer is with a peer, or waits for the own engine to
	// name it.
	Needs(at Peer) bool
	// Restless says that a transfer has not ended which had a part of the connection
	// that was there before: copies may touch its blocks.
	Restless(c Conn) bool
}

// Config is what a machine knows of its own pod.
type Config struct {
	Self     moriio.Agent // Ranks empty: they come with EngineReady
	Geometry kvlayout.Geometry
	Engine   kvlayout.Engine
	Host     string // own IP, told to peers
	// Ports of the own listeners, told to peers.
	Handshake, Notify int
	Timeouts          Timeouts
	// Plan makes the copies of one layer; nil means kvlayout.WritePlan. Only fault injection replaces it.
	Plan func(dst []kvlayout.Copy, s kvlayout.WriteSpec) ([]kvlayout.Copy, error)
	// FirstWriterEnds makes Decode report done at its first writer. Only fault injection sets it.
	FirstWriterEnds bool
	// Limits bound what the machine keeps; the zero value means the defaults.
	Limits Limits
}

// Timeouts bound the waits of a transfer; each has its own rule when it runs out:
// deadline-handshake, deadline-defer, prefill-silent, deadline-transfer, deadline-receive.
type Timeouts struct {
	// Handshake runs from the moment a transfer needs a peer's metadata.
	Handshake time.Duration
	// Defer runs from Hold, while decode has named no blocks.
	Defer time.Duration
	// Transfer runs from the last layer that prefill's engine has handed over, or from
	// when the first could be copied if that is later, while copies are in flight or
	// wait for their turn: it measures the copies, neither engine.
	Transfer time.Duration
	// ReceiveAbort runs at decode from the remote_blocks that it has sent, and at
	// prefill from the first message of decode until its own engine names the
	// transfer (prefill-silent). Other waits for the own engine end after Defer and
	// ReceiveAbort together (prefill-silent, decode-silent), when the other side
	// can't be waiting any more.
	ReceiveAbort time.Duration
}

// Peer is a control address of another agent.
type Peer struct {
	Host      string
	Handshake int
	Notify    int
}

// CopyID names a copy order of a machine; it is never used again.
type CopyID uint64

// Event is an input of a machine.
type Event interface{ isEvent() }

// Conn names a connection of the own engine. DP is the rank within the pod.
type Conn struct {
	Kind string // kvproto.Scheduler or kvproto.Worker
	DP   int
	TP   int // 0 for a scheduler
}

// EngineReady says that all connections of the engine are up and all regions
// complete. It comes again after EngineGone.
type EngineReady struct{ Ranks []moriio.AgentRank }

// EngineGone says that a connection of the engine was lost: transfers that need
// it fail as engine-gone.
type EngineGone struct{ Conn Conn }

// EngineMessage is a message of the own engine: Expect, Hold, Save, Sealed,
// Receive or Abort.
type EngineMessage struct {
	Conn    Conn
	Message kvproto.Message
}

// PeerMessage is a notification from another agent: *moriio.RemoteBlocks,
// *moriio.WriteDone, *moriio.WriteFailed or *moriio.Release.
type PeerMessage struct{ Message any }

// Handshaken answers a Dial.
type Handshaken struct {
	Peer     Peer
	Metadata *moriio.Metadata // nil when Err is not
	Err      error
}

// PeerGone says that the control connection to a peer, or the mover's session
// with it, has ended: its process is gone or unreachable. What was learned of it
// is forgotten; transfers with it fail as peer-gone.
type PeerGone struct{ Peer Peer }

// Copied answers a CopyOrder: the own memory is not read for it any more. Without
// Err its bytes are in place; with Err some that were sent may still be placed at
// the peer, until its mover has revoked the transfer.
type Copied struct {
	ID      CopyID
	Moved   int64
	Err     error
	Revoked bool // with Err: decode's mover refuses it, as the transfer has ended there
}

// Revoked answers a Ready.Revokes entry: nothing of the transfer is written here any more.
type Revoked struct{ Transfer string }

// Tick says that time has passed.
type Tick struct{}

func (EngineReady) isEvent()   {}
func (EngineGone) isEvent()    {}
func (EngineMessage) isEvent() {}
func (PeerMessage) isEvent()   {}
func (Handshaken) isEvent()    {}
func (PeerGone) isEvent()      {}
func (Copied) isEvent()        {}
func (Revoked) isEvent()       {}
func (Tick) isEvent()          {}

// Ready is what the loop has to do, in this order.
type Ready struct {
	Ended    []Transfer // each transfer once, when it has ended
	Notices  []Notice
	Messages []Outgoing
	Dials    []Peer // handshakes to start; each is answered by Handshaken
	Copies   []CopyOrder
	Revokes  []string // transfers to revoke at the own mover; each is answered by Revoked
}

// Notice is a message to the own engine.
type Notice struct {
	Conn    Conn
	Message kvproto.Message
}

// Outgoing is a notification to a peer's notify port: *moriio.RemoteBlocks, ...
type Outgoing struct {
	Peer    Peer
	Message any
}

// CopyOrder is a batch for the mover's session with the peer; it is answered by Copied.
type CopyOrder struct {
	ID       CopyID
	Peer     Peer
	Epoch    uint64 // of the peer: never posted to another incarnation
	Address  []byte // of the peer's mover
	Transfer string
	WriterDP int // global
	WriterTP int
	ReaderDP int // global
	ReaderTP int
	Source   uint32 // memory of the writer's rank
	Target   uint32 // memory of the reader's rank
	Copies   []kvlayout.Copy
}

// State of a transfer.
type State string

// The states of a transfer, as told by /transfers. Failing means failed but not
// quiet yet: a copy may still touch its blocks.
const (
	Waiting State = "waiting"
	Moving  State = "moving"
	Failing State = "failing"
	Ended   State = "done"
	Broken  State = "failed"
)

// Transfer is a view of one transfer.
type Transfer struct {
	ID      string         `json:"id"`
	Role    kvlayout.Role  `json:"role"`
	State   State          `json:"state"`
	Rule    string         `json:"rule,omitempty"`
	Text    string         `json:"text,omitempty"`
	Tokens  int            `json:"tokens,omitempty"`
	Started time.Time      `json:"started"`
	Ended   time.Time      `json:"ended,omitzero"`
	Flows   []TransferFlow `json:"flows,omitempty"`
}

// TransferFlow is what one writer does for one reader. Bytes is what the mover
// of the writer counted (prefill) or what the writer reported (decode).
type TransferFlow struct {
	WriterDP int       `json:"writerDP"`
	WriterTP int       `json:"writerTP"`
	ReaderDP int       `json:"readerDP"`
	ReaderTP int       `json:"readerTP"`
	State    State     `json:"state"`
	Bytes    int64     `json:"bytes"`
	Ended    time.Time `json:"ended,omitzero"`
}
