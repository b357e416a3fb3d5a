package session

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// Decode is the machine of a decode pod: it tells prefill where it wants a prompt
// and waits until every writer of every own rank has ended.
type Decode struct {
	table[*decodeTransfer]
}

var _ Machine = (*Decode)(nil)

// NewDecode returns the machine of a decode pod. It knows no engine until EngineReady.
func NewDecode(cfg Config) *Decode {
	d := &Decode{}
	d.table = newTable(newMachine(cfg, kvlayout.Decode), d)
	return d
}

// Step takes one event; see Machine.
func (d *Decode) Step(now time.Time, ev Event) error {
	err := d.step(now, ev)
	d.ring(now)
	return err
}

func (d *Decode) step(now time.Time, ev Event) error {
	switch ev := ev.(type) {
	case EngineReady:
		return d.engineReady(now, ev)
	case EngineGone:
		return d.engineGone(now, ev)
	case EngineMessage:
		return d.engineMessage(now, ev)
	case PeerMessage:
		return d.peerMessage(now, ev)
	case Handshaken:
		return d.handshaken(now, ev)
	case PeerGone:
		d.peerGone(now, ev)
		return nil
	case Revoked:
		return d.revoked(now, ev)
	case Tick:
		return nil
	}
	return wrongf(WrongEvent, "decode takes no %T", ev)
}

func (d *Decode) engineMessage(now time.Time, ev EngineMessage) error {
	switch m := ev.Message.(type) {
	case kvproto.Expect:
		return d.expect(now, ev.Conn, m)
	case kvproto.Receive:
		return d.receive(now, ev.Conn, m)
	case kvproto.Abort:
		return d.abort(now, ev.Conn, m)
	}
	return wrongf(WrongEvent, "decode takes no %T from its engine", ev.Message)
}

func (d *Decode) peerMessage(now time.Time, ev PeerMessage) error {
	switch m := ev.Message.(type) {
	case *moriio.WriteDone:
		return d.writeDone(now, m)
	case *moriio.WriteFailed:
		return d.writeFailed(now, m)
	}
	return wrongf(WrongEvent, "decode takes no %T from a peer", ev.Message)
}

// ring carries out what is due.
func (d *Decode) ring(now time.Time) {
	for {
		key, ok := d.alarms.due(now)
		switch {
		case !ok:
			return
		case key.transfer == "":
			d.retry(now, key.peer)
		default:
			d.overdue(now, key.transfer)
		}
	}
}

// Asked is 0: prefill asks for nothing.
func (d *Decode) Asked() int { return 0 }

// Transfer tells the state of one transfer.
func (d *Decode) Transfer(id string) (Transfer, bool) {
	if t := d.transfers[id]; t != nil {
		return t.view(d.cfg.Self.DPStart), true
	}
	if r := d.past.find(id); r != nil {
		return r.view, true
	}
	return Transfer{}, false
}
