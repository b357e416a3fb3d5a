package session

import (
	"fmt"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/moriio/msgpack"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// Rules under which a transfer ends badly, beside those of kvlayout's catalog.
// They travel in write_failed, in release and in Failed, and label metrics.
const (
	// Refusals: the two sides do not fit.
	RulePairing         = "pairing-differs"
	RulePrompt          = "prompt-differs"
	RuleAllocationShort = "allocation-short"
	RuleBlockRange      = "block-range"    // a block id outside the memory
	RuleBlocksLimit     = "blocks-limit"   // more blocks than a transfer may have
	RuleRegions         = "regions-differ" // memory of the two sides that no plan can be made for
	RulePeerKind        = "peer-kind"      // not a PDPool agent of the other role, mover and model
	RulePeerRanks       = "peer-ranks"     // the peer has no such rank

	// Deadlines, one for each wait.
	RuleHandshakeDeadline = "deadline-handshake"
	RuleDeferDeadline     = "deadline-defer"
	RulePrefillSilent     = "prefill-silent"
	RuleDecodeSilent      = "decode-silent"
	RuleTransferDeadline  = "deadline-transfer"
	RuleReceiveDeadline   = "deadline-receive"

	// What happened.
	RuleHandshake      = "handshake-failed"
	RuleCopy           = "copy-failed"
	RuleAborted        = "aborted"
	RuleReleased       = "released" // decode does not need the transfer: a good end
	RuleEngineGone     = "engine-gone"
	RulePeerGone       = "peer-gone"
	RulePeerRestarted  = "peer-restarted"
	RuleTransfersLimit = "transfers-limit"
)

// AllRanks in both WriterTP and ReaderTP of a write_failed stands for every rank:
// the transfer failed before prefill knew which of its ranks writes to which, so
// nothing of it was or will be written. It is the largest number that the message
// can carry; no layout has that many ranks, as tp divides the attention heads.
const AllRanks = moriio.MaxRanks - 1

// ending is why a transfer, or a flow of it, ends otherwise than by all its copies.
type ending struct {
	rule, text string
	good       bool // decode has no need of them: no failure, whatever word a peer uses as rule
}

// failed reports whether an ending, nil for all copies done, is a bad one.
func (e *ending) failed() bool { return e != nil && !e.good }

func endingf(rule, format string, args ...any) *ending {
	return newEnding(rule, fmt.Sprintf(format, args...))
}

// newEnding makes an ending whose text a message can carry, whoever wrote it.
func newEnding(rule, text string) *ending {
	return &ending{rule: rule, text: msgpack.Cut(text, kvproto.MaxText)}
}
