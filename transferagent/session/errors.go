package session

import "fmt"

// EventError says that an event was wrong. It has changed nothing.
type EventError struct {
	Reason Reason // the label it is counted under
	Text   string // one sentence with the value that was wrong
}

func (e *EventError) Error() string { return e.Text }

// Reason is why an event was not taken: a short word of lower-case letters and
// hyphens, fit for a metric label.
type Reason = string

// The reasons of an EventError.
const (
	WrongEvent       Reason = "wrong-event"        // a kind of event or message that this role does not take
	WrongConnection  Reason = "wrong-connection"   // a scheduler's message on a worker connection, or the other way round
	NoConnection     Reason = "unknown-connection" // the engine has no such connection now
	BadTransferID    Reason = "bad-transfer-id"    // empty, or longer than kvproto.MaxTransferID
	BadAddress       Reason = "bad-address"        // a peer's address without host or with an impossible port
	BadRanks         Reason = "bad-ranks"          // EngineReady with ranks that the layout does not have
	BadNumber        Reason = "bad-number"         // a negative or impossible count
	UnknownTransfer  Reason = "unknown-transfer"   // no transfer of that id is known
	UnknownOrder     Reason = "unknown-order"      // Copied for an order that is not open
	Unasked          Reason = "unasked"            // Handshaken or Revoked that nobody waits for
	UnexpectedWriter Reason = "unexpected-writer"  // a report for a pair of ranks that does not exist
	Duplicate        Reason = "duplicate"          // said before
	Late             Reason = "late"               // the transfer has ended
	OtherEpoch       Reason = "epoch"              // from, or meant for, another incarnation
	WrongRank        Reason = "wrong-rank"         // a data parallel rank that is not this transfer's or this pod's
	NoExtension      Reason = "no-extension"       // without the fields that PDPool adds
	OverLimit        Reason = "limit"              // more than the machine keeps
)

func wrongf(reason Reason, format string, args ...any) error {
	return &EventError{Reason: reason, Text: fmt.Sprintf(format, args...)}
}
