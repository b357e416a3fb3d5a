// Package zmtp speaks ZMTP 3.x over TCP with the NULL mechanism, as DEALER and as
// ROUTER: the part of ZeroMQ that MoRIIO's control sockets use. It is an
// implementation of its own because the pure Go one that exists allocates by the
// length that a peer sends, and the binding to libzmq needs cgo.
//
// A Router survives whatever connects to it: each connection has limits on
// lengths, counts and times, and what breaks one ends that connection alone,
// counted under its reason. A Dealer is one connection: it neither reconnects nor
// queues for a peer that is away, and tells at once when the peer's end closes.
package zmtp

import (
	"errors"
	"fmt"
	"time"
)

// The reasons why connections end or are turned away. They are few and fixed, so
// that they can label a metric.
const (
	Closed           = "closed"               // the peer has closed between two messages
	Cut              = "cut"                  // the peer has closed inside a message or the handshake, or reset the connection
	Probe            = "probe"                // connected and closed without a byte
	NotZMTP          = "not-zmtp"             // the first bytes are no ZMTP signature, or one older than 2.0
	OldVersion       = "old-version"          // ZMTP 2.0
	Mechanism        = "mechanism"            // another one than NULL
	SocketType       = "socket-type"          // a socket that does not belong at this end
	BadHandshake     = "bad-handshake"        // no well-formed READY after the greeting
	PeerError        = "peer-error"           // the peer has refused us with ERROR
	BadFrame         = "bad-frame"            // reserved flags
	BadCommand       = "bad-command"          // an unknown or malformed command
	FrameTooLong     = "frame-too-long"       // over Options.MaxFrame
	TooManyFrames    = "too-many-frames"      // over Options.MaxFrames
	MessageTooLong   = "message-too-long"     // over Options.MaxMessage
	BuffersFull      = "buffers-full"         // over Options.Budget
	HandshakeTimeout = "handshake-timeout"    // over Options.Handshake
	Idle             = "idle"                 // nothing for Options.Idle
	SlowSender       = "slow-sender"          // a message took longer than Options.Message to come
	SlowReader       = "slow-reader"          // the peer does not read what is sent to it
	TooMany          = "too-many-connections" // over Options.MaxConnections
	TooManyFromHost  = "too-many-from-host"   // over Options.MaxPerHost
	TooManyOfMember  = "too-many-of-member"   // over Options.MaxPerMember, and the oldest of them
	Unproven         = "unproven"             // not proved within Trial.Within
	MadeRoom         = "made-room"            // on trial, and a newer connection needed the place
	AcceptFailed     = "accept-failed"        // the system gave no connection, usually for want of descriptors
	Shutdown         = "shutdown"             // closed at this end
)

// ErrClosed says that this end was closed by its owner.
var ErrClosed = errors.New("connection is closed")

// ErrFull says that Options.Queue messages wait for the peer to read.
var ErrFull = errors.New("send queue is full")

// Error says why a connection ended or did not come about.
type Error struct {
	reason string
	err    error
}

func errorf(reason, format string, args ...any) *Error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// Reason is one of the constants of this package.
func (e *Error) Reason() string { return e.reason }

func (e *Error) Error() string { return e.reason + ": " + e.err.Error() }

// Unwrap returns the cause, an error of package net where there is one.
func (e *Error) Unwrap() error { return e.err }

// Options bound what a peer may do. The zero value of a field stands for its default.
type Options struct {
	MaxFrame   int // bytes of a frame; 1 MiB
	MaxFrames  int // frames of a message; 8
	MaxMessage int // bytes of all frames of a message; MaxFrame

	MaxConnections int // of a Router, those in the handshake included unless there is a Trial; 1024
	MaxPerHost     int // of them from one IP address; 256
	MaxPerMember   int // of them proved as one member at one IP address, see Peer.Prove; no limit

	// Budget, when set, bounds what is being received.
	Budget *Budget

	Handshake time.Duration // from the connection to READY; 10 s
	Message   time.Duration // from the first byte of a message to its last; 30 s
	Write     time.Duration // for the peer to take one message; 10 s
	Idle      time.Duration // without any byte from the peer; for ever

	// Trial, when set, puts each connection of a Router on trial until Peer.Prove.
	Trial *Trial

	// Challenge, when set, names the property of READY by which a Router gives each
	// connection a random text of its own, and a Dealer takes it: what the peer proves
	// itself by is then good on this connection alone. ZMTP leaves names that begin with
	// X- to applications, and sockets that don't know one pass over it.
	Challenge string

	Queue int // messages that wait to be written to one peer; 64
	Inbox int // of a Dealer: messages that wait for Receive before the peer has to; 8

	// Count, when set, is called with the reason of every connection that ends or
	// is turned away. It is called from several goroutines and must not block.
	Count func(reason string)
}

// withDefaults returns o with every unset limit replaced.
func (o Options) withDefaults() Options {
	setDefault(&o.MaxFrame, 1<<20)
	setDefault(&o.MaxFrames, 8)
	setDefault(&o.MaxMessage, o.MaxFrame)
	setDefault(&o.MaxConnections, 1024)
	setDefault(&o.MaxPerHost, 256)
	setDefault(&o.Handshake, 10*time.Second)
	setDefault(&o.Message, 30*time.Second)
	setDefault(&o.Write, 10*time.Second)
	setDefault(&o.Queue, 64)
	setDefault(&o.Inbox, 8)
	if o.Trial != nil {
		o.Trial = o.Trial.withDefaults()
	}
	return o
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}
