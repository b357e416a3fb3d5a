package session

import (
	"slices"
	"time"
)

// traffic is what is open with one peer, and what waits until some of it is answered.
// The copies of a long prompt, of all layers and ranks at once, would be many times what
// a mover has in work.
type traffic struct {
	orders, pieces int
	waiting        []pending
}

// pending is a flow with layers to post.
type pending struct {
	transfer *prefillTransfer
	writer   *writer
	flow     *flow
}

// order is what an open CopyOrder belongs to.
type order struct {
	transfer *prefillTransfer
	flow     *flow
	pieces   int
}

// ordersKept is how many open orders a map may have had that is kept when it is empty:
// maps do not shrink.
const ordersKept = 1024

// pump has what is saved and not posted yet posted, behind what waits for the peer already.
func (p *Prefill) pump(now time.Time, t *prefillTransfer) {
	at := t.target.peer
	if !p.current(at, t.target.epoch) {
		return
	}
	for _, w := range t.writers {
		for _, f := range w.flows {
			if f.queued || f.posted == len(w.saved) || t.wellWith(w, f) != nil {
				continue
			}
			if t.moving.IsZero() {
				t.moving = now
			}
			f.queued = true
			t.queued++
			if p.traffic[at] == nil {
				p.traffic[at] = &traffic{}
			}
			p.traffic[at].waiting = append(p.traffic[at].waiting, pending{t, w, f})
		}
	}
	p.feed(now, at, t)
}

// feed posts what waits for a peer, flow by flow, as far as there is room: one order for
// each layer, without waiting for those before. What that means for other transfers than
// the caller's is concluded here. With no order open all that waits is posted or
// dropped, so some answer always comes that makes it go on.
func (p *Prefill) feed(now time.Time, at Peer, caller *prefillTransfer) {
	x := p.traffic[at]
	if x == nil {
		return
	}
	for len(x.waiting) > 0 && p.room(x) {
		w := x.waiting[0]
		t, f := w.transfer, w.flow
		// What is held up as the peer is in doubt is queued again after the answer.
		if f.posted < len(w.writer.saved) && t.wellWith(w.writer, f) == nil && p.current(at, t.target.epoch) {
			layer := w.writer.saved[f.posted]
			f.posted++
			p.post(x, w, layer)
			continue
		}
		x.waiting[0] = pending{}
		x.waiting = x.waiting[1:]
		f.queued = false
		t.queued--
		if t != caller && p.transfers[t.id] == t {
			p.conclude(now, t)
		}
	}
	if x.orders == 0 && len(x.waiting) == 0 {
		delete(p.traffic, at)
	}
}

// room reports whether another order may be open with a peer. One always may: peers that
// are slow leave room for others.
func (p *Prefill) room(x *traffic) bool {
	l := &p.cfg.Limits
	return x.orders == 0 || x.orders < l.Orders && x.pieces < l.Pieces && p.pieces < l.LivePieces
}

func (p *Prefill) post(x *traffic, w pending, layer int) {
	t, f := w.transfer, w.flow
	copies, err := p.copies(nil, t, w.writer, f, layer)
	if err != nil {
		f.failure = planRefusal(err)
		t.blame(f.failure)
		return
	}
	if len(copies) == 0 {
		return
	}
	p.lastOrder++
	p.orders[p.lastOrder] = order{transfer: t, flow: f, pieces: len(copies)}
	p.ordersMost = max(p.ordersMost, len(p.orders))
	f.open++
	t.inflight++
	x.orders++
	x.pieces += len(copies)
	p.pieces += len(copies)
	p.out.Copies = append(p.out.Copies, CopyOrder{
		ID: p.lastOrder, Peer: t.target.peer, Epoch: t.target.epoch, Address: slices.Clone(t.decode.agent.Address),
		Transfer: t.id, WriterDP: p.engine.global(t.dp), WriterTP: f.writer, ReaderDP: t.target.dp, ReaderTP: f.reader,
		Source: w.writer.memory.id, Target: f.target.id, Copies: copies,
	})
}

// answeredOrder takes an order off the accounts of its peer.
func (p *Prefill) answeredOrder(id CopyID, o order) {
	delete(p.orders, id)
	if len(p.orders) == 0 && p.ordersMost > ordersKept {
		p.orders, p.ordersMost = map[CopyID]order{}, 0
	}
	o.flow.open--
	o.transfer.inflight--
	p.pieces -= o.pieces
	x := p.traffic[o.transfer.target.peer]
	x.orders--
	x.pieces -= o.pieces
}
