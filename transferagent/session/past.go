package session

import (
	"container/list"
)

// record is what is remembered of an ended transfer.
type record struct {
	view     Transfer
	dp       int            // local rank, -1 when the own engine never named the transfer
	failure  *ending        // nil: it ended well
	expected bool           // Expect was taken
	claimed  bool           // Hold or Receive was answered
	settled  bool           // an abort was answered: no worker is told any more
	told     map[int]uint64 // by tp: the number of the connection on which the worker was told
	peerTold bool           // the other side was told, or does not have to be
	revoking bool           // the answer of the own mover was not waited for
}

// past remembers the newest Remembered ended transfers.
type past struct {
	byID  map[string]*list.Element // of *record
	order list.List                // newest first
}

// find returns the record of an ended transfer and counts that as a use.
func (p *past) find(id string) *record {
	element := p.byID[id]
	if element == nil {
		return nil
	}
	p.order.MoveToFront(element)
	return element.Value.(*record)
}

func (p *past) put(r *record) {
	if p.byID == nil {
		p.byID = map[string]*list.Element{}
	}
	if old := p.byID[r.view.ID]; old != nil {
		p.order.Remove(old)
	}
	p.byID[r.view.ID] = p.order.PushFront(r)
	if p.order.Len() > Remembered {
		oldest := p.order.Back()
		p.order.Remove(oldest)
		delete(p.byID, oldest.Value.(*record).view.ID)
	}
}
