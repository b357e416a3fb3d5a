// Package transport declares how bytes of KV memory move between two transfer
// agents. A Mover executes strided copies from the registered memory of its own
// agent into the registered memory of a peer; it knows nothing of requests,
// layouts or engines. Implementations: mem (one process), shm (pods of one
// node), tcp (any nodes). Package transporttest holds the suite that each passes.
package transport

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// MemoryID names the memory of one rank of the agent that registered it. It is
// unique within that agent's life.
type MemoryID uint32

// Memory is the KV memory of one rank, mapped into this process. File is the
// sealed memfd behind Bytes (nil for memory that no other process can map). The
// Mover does not own either: the caller unregisters before it unmaps.
type Memory struct {
	Bytes []byte
	File  *os.File
}

// Flow names what a batch belongs to. Movers and receivers count bytes by
// (Transfer, Writer, Reader).
type Flow struct {
	Transfer string // at most 256 bytes
	Writer   Rank
	Reader   Rank
}

// Rank is one GPU of an engine instance: global data parallel and tensor parallel index.
type Rank struct {
	DP int `json:"dp"`
	TP int `json:"tp"`
}

// Batch is a list of strided copies from one registered memory here into one
// registered memory of the peer. The Mover keeps Copies until done is called.
type Batch struct {
	Flow   Flow
	Source MemoryID // of this agent
	Target MemoryID // of the peer
	Copies []kvlayout.Copy
}

// Count is bytes moved for one flow.
type Count struct {
	Flow  Flow
	Bytes int64
}

// Mover moves bytes of registered memory. All methods may be called from several goroutines.
type Mover interface {
	// Register makes memory readable for own batches and writable for peers'.
	Register(id MemoryID, m Memory) error
	// Unregister withdraws it. It returns when no copy touches the memory any
	// more; batches that still need it fail.
	Unregister(id MemoryID)
	// Address is what a peer's Dial needs, opaque, at most 4 KiB.
	Address() []byte
	// Dial connects to the mover behind a peer's Address, whose host (an IP) the
	// caller knows from the control connection.
	Dial(ctx context.Context, host string, address []byte) (Session, error)
	// Revoke refuses peers' batches of a transfer from now on and returns when
	// none of them is being applied here or by a peer that maps this memory. Only
	// then may the blocks of the transfer be used again. It ends early with ctx's
	// error; the refusal stays.
	Revoke(ctx context.Context, transfer string) error
	// Linger is how long peers may go on writing into memory that is registered here
	// after this process has ended without Close; zero where only this process writes
	// into it. A process that is merely stopped has not ended: what it does itself it
	// does later.
	Linger() time.Duration
	// Received counts what peers wrote here since the start, per flow, for the
	// newest flows (a bounded number of them).
	Received(transfer string) []Count
	// Close ends all sessions and listeners and waits for their goroutines.
	Close() error
}

// Session is a connection from this mover to one peer.
type Session interface {
	// Post starts a batch. done is called exactly once, from another goroutine,
	// and not before the own memory is read for it no more. Without an error the
	// last byte is in the peer's memory then; with one that the peer answered, no
	// further byte gets there. When the session has broken, the peer may go on
	// with what its kernel has received already: only its Revoke or Unregister
	// says that nothing more is placed. moved is counted while copying.
	// Post blocks only while the session's queue is full, at most until ctx ends.
	// When Post returns an error nothing was started and done is never called;
	// what is wrong at the source (ErrUnknownMemory, ErrBounds) is told this way,
	// what is wrong at the target by done. done may Post, but must not block on
	// Close of this session or on Unregister.
	Post(ctx context.Context, b Batch, done func(moved int64, err error)) error
	// Done is closed when the session has ended: the peer died, its memory went,
	// or Close. The own memory is read for none of its batches then; of the
	// peer's see Post. Err says why.
	Done() <-chan struct{}
	Err() error
	// Close ends the session; every outstanding done has been called when it returns.
	Close() error
}

// Errors that callers tell apart with errors.Is.
var (
	// ErrBounds: a copy lies outside the source or target memory.
	ErrBounds = errors.New("copy outside the registered memory")
	// ErrUnknownMemory: no memory is registered under that id.
	ErrUnknownMemory = errors.New("memory is not registered")
	// ErrRevoked: the peer has revoked the transfer.
	ErrRevoked = errors.New("transfer was revoked by the receiver")
	// ErrClosed: the session or mover has ended.
	ErrClosed = errors.New("closed")
)
