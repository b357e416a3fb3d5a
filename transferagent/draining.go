package transferagent

import (
	"context"
	"errors"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// ruleDraining refuses transfers that would begin at a draining agent. Those that it
// knows go on to their end.
const ruleDraining = "draining"

// errDraining is why a draining agent is not ready and takes nothing new.
var errDraining = errors.New("the pod is draining")

// begins says that a message about this transfer would begin it, at an agent that is
// draining.
func (l *loop) begins(transfer string) bool {
	if transfer == "" || !l.draining.Load() {
		return false
	}
	_, known := l.machine.Transfer(transfer)
	return !known
}

// turnDown refuses a message of the engine that would begin a transfer, and reports
// whether it did. Prefill, which may hold blocks for it, is told at once.
func (l *loop) turnDown(ctx context.Context, s *slot, m kvproto.Message) bool {
	id := kvproto.TransferOf(m)
	if _, abort := m.(kvproto.Abort); abort || !l.begins(id) {
		return false
	}
	l.metrics.refuse(ruleDraining)
	l.door.refuse(s.who, m, ruleDraining, errDraining)
	if r, ok := m.(kvproto.Receive); ok {
		l.send(ctx, session.Outgoing{
			Peer: session.Peer{Host: r.Peer.Host, Handshake: r.Peer.Handshake, Notify: r.Peer.Notify},
			Message: &moriio.Release{Transfer: id, PDPool: &moriio.Released{
				Epoch: l.self.Epoch, Rule: ruleDraining, Text: "decode: " + errDraining.Error(),
			}},
		})
	}
	return true
}

// turnAway answers a peer that asks for a transfer which would begin, and reports
// whether it did.
func (l *loop) turnAway(ctx context.Context, message any) bool {
	m, ok := message.(*moriio.RemoteBlocks)
	if !ok || m.PDPool == nil || !l.begins(m.Transfer) {
		return false
	}
	l.metrics.refuse(ruleDraining)
	a := m.PDPool
	l.send(ctx, session.Outgoing{
		Peer: session.Peer{Host: a.Host, Handshake: a.Handshake, Notify: a.Notify},
		Message: &moriio.WriteFailed{Transfer: m.Transfer, PDPool: &moriio.Report{
			Epoch: l.self.Epoch, WriterDP: a.PrefillDP, WriterTP: session.AllRanks, ReaderTP: session.AllRanks,
			Rule: ruleDraining, Text: "prefill: " + errDraining.Error(),
		}},
	})
	return true
}
