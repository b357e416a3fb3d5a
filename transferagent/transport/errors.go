package transport

import "errors"

// Why a session ended, told apart with errors.Is on Session.Err and on the
// errors that Dial and done give.
var (
	// ErrPeerGone: the peer closed the connection or died. Nothing of this
	// session can reach its memory any more.
	ErrPeerGone = errors.New("peer has gone")
	// ErrFrozen: the peer did not answer within a deadline, though its
	// connection stands. The session is cut; what the peer's kernel had already
	// accepted may still be placed by the peer itself once it wakes up.
	ErrFrozen = errors.New("peer stopped answering")
	// ErrStale: the address belongs to an earlier incarnation of the peer.
	ErrStale = errors.New("peer was restarted since it gave this address")
	// ErrUnproved: the peer did not prove that it knows the pool's secret, or did
	// not accept the proof of this side.
	ErrUnproved = errors.New("peer is not proved to belong to the pool")
	// ErrAddress: the bytes are not an address of this kind of mover.
	ErrAddress = errors.New("not an address of this mover")
)

// MaxTransferName is the longest Flow.Transfer in bytes.
const MaxTransferName = 256

// MaxAddress is the longest Mover.Address in bytes.
const MaxAddress = 4096
