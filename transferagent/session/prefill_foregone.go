package session

import (
	"container/list"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// foregone is decode's word that it wants nothing of a transfer which it has named no
// blocks for and the own engine has not come to. It takes no place of an early ask.
type foregone struct {
	id    string
	at    time.Time
	why   *ending
	epoch uint64 // of decode
}

func (f *foregone) view(id string) Transfer {
	return Transfer{ID: id, Role: kvlayout.Prefill, State: Waiting, Started: f.at}
}

// foregones are the newest of them: nobody waits for them, so the oldest makes room,
// and prefill then holds that transfer's blocks until Timeouts.Defer.
type foregones struct {
	byID  map[string]*list.Element // of *foregone
	order list.List                // newest first
}

func (f *foregones) find(id string) *foregone {
	if e := f.byID[id]; e != nil {
		return e.Value.(*foregone)
	}
	return nil
}

func (f *foregones) drop(id string) {
	f.order.Remove(f.byID[id])
	delete(f.byID, id)
}

func (p *Prefill) forgo(f *foregone) {
	all := &p.foregone
	if all.order.Len() >= p.cfg.Limits.Early {
		p.unforgo(all.order.Back().Value.(*foregone).id)
	}
	all.byID[f.id] = all.order.PushFront(f)
	p.alarms.put(alarmKey{transfer: f.id, early: true}, f.at.Add(p.cfg.Timeouts.ReceiveAbort))
}

func (p *Prefill) unforgo(id string) {
	p.foregone.drop(id)
	p.alarms.drop(alarmKey{transfer: id, early: true})
}
