package session

import (
	"container/list"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// Prefill is the machine of a prefill pod: its workers' layers are written to the
// blocks that decode has named, as they are saved.
type Prefill struct {
	table[*prefillTransfer]
	early     map[string]*earlyAsk
	waiting   int // blocks in early
	foregone  foregones
	lastOrder CopyID

	orders     map[CopyID]order // open
	ordersMost int              // since the map was made
	pieces     int              // of the open orders
	traffic    map[Peer]*traffic
}

var _ Machine = (*Prefill)(nil)

// NewPrefill returns the machine of a prefill pod. It knows no engine until EngineReady.
func NewPrefill(cfg Config) *Prefill {
	p := &Prefill{early: map[string]*earlyAsk{}, foregone: foregones{byID: map[string]*list.Element{}}, orders: map[CopyID]order{}, traffic: map[Peer]*traffic{}}
	p.table = newTable(newMachine(cfg, kvlayout.Prefill), p)
	return p
}

// Step takes one event; see Machine.
func (p *Prefill) Step(now time.Time, ev Event) error {
	err := p.step(now, ev)
	p.ring(now)
	return err
}

func (p *Prefill) step(now time.Time, ev Event) error {
	switch ev := ev.(type) {
	case EngineReady:
		return p.engineReady(now, ev)
	case EngineGone:
		return p.engineGone(now, ev)
	case EngineMessage:
		return p.engineMessage(now, ev)
	case PeerMessage:
		return p.peerMessage(now, ev)
	case Handshaken:
		return p.handshaken(now, ev)
	case PeerGone:
		p.peerGone(now, ev)
		return nil
	case Copied:
		return p.copied(now, ev)
	case Tick:
		return nil
	}
	return wrongf(WrongEvent, "prefill takes no %T", ev)
}

func (p *Prefill) engineMessage(now time.Time, ev EngineMessage) error {
	switch m := ev.Message.(type) {
	case kvproto.Expect:
		return p.expect(now, ev.Conn, m)
	case kvproto.Hold:
		return p.hold(now, ev.Conn, m)
	case kvproto.Save:
		return p.save(now, ev.Conn, m)
	case kvproto.Sealed:
		return p.sealed(now, ev.Conn, m)
	case kvproto.Abort:
		return p.abort(now, ev.Conn, m)
	}
	return wrongf(WrongEvent, "prefill takes no %T from its engine", ev.Message)
}

func (p *Prefill) peerMessage(now time.Time, ev PeerMessage) error {
	switch m := ev.Message.(type) {
	case *moriio.RemoteBlocks:
		return p.remoteBlocks(now, m)
	case *moriio.Release:
		return p.release(now, m)
	}
	return wrongf(WrongEvent, "prefill takes no %T from a peer", ev.Message)
}

// ring carries out what is due.
func (p *Prefill) ring(now time.Time) {
	for {
		key, ok := p.alarms.due(now)
		switch {
		case !ok:
			return
		case key.transfer == "":
			p.retry(now, key.peer)
		case key.early:
			p.silent(now, key.transfer)
		default:
			p.overdue(now, key.transfer)
		}
	}
}

// Transfer tells the state of one transfer.
func (p *Prefill) Transfer(id string) (Transfer, bool) {
	if t := p.transfers[id]; t != nil {
		return t.view(p.cfg.Self.DPStart), true
	}
	if r := p.past.find(id); r != nil {
		return r.view, true
	}
	if e := p.early[id]; e != nil {
		return e.view(id), true
	}
	if f := p.foregone.find(id); f != nil {
		return f.view(id), true
	}
	return Transfer{}, false
}
