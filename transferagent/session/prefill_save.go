package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// save takes note that a layer is complete in a worker's memory; it is posted as
// soon as the rest is known. A worker may be ahead of its scheduler, as each has a
// connection of its own.
func (p *Prefill) save(now time.Time, c Conn, m kvproto.Save) error {
	if own, ok := p.engine.worker(c.DP, c.TP); ok {
		if _, ok := own.region(m.Layer); !ok {
			return wrongf(BadNumber, "worker tp %d has no layer %d", c.TP, m.Layer)
		}
	}
	t, w, err := p.workerOf(now, c, m, m.Transfer)
	if t == nil || err != nil {
		return err
	}
	if _, ok := w.done[m.Layer]; ok {
		return wrongf(Duplicate, "layer %d of transfer %q was saved before by tp %d", m.Layer, m.Transfer, c.TP)
	}
	w.add(m.Layer)
	t.touched, t.lastSave = true, now
	p.advance(now, t)
	return nil
}

// sealed takes note that all layers of a worker are complete, also those for which
// no save came.
func (p *Prefill) sealed(now time.Time, c Conn, m kvproto.Sealed) error {
	t, w, err := p.workerOf(now, c, m, m.Transfer)
	if t == nil || err != nil {
		return err
	}
	if w.sealed {
		return wrongf(Duplicate, "transfer %q was sealed before by tp %d", m.Transfer, c.TP)
	}
	for _, r := range w.memory.regions {
		w.add(r.Layer)
	}
	w.sealed, t.touched, t.lastSave = true, true, now
	p.advance(now, t)
	return nil
}

// workerOf finds the writer of a worker's message; no transfer and no error when
// it has ended: the engine may not know yet.
func (p *Prefill) workerOf(now time.Time, c Conn, m kvproto.Message, id string) (*prefillTransfer, *writer, error) {
	if err := p.checkMessage(c, kvproto.Worker, m, id); err != nil {
		return nil, nil, err
	}
	if r := p.past.find(id); r != nil {
		if err := r.belongsTo(c.DP); err != nil {
			return nil, nil, err
		}
		p.tellWorker(r, c)
		return nil, nil, nil
	}
	t, err := p.find(now, id, c.DP)
	if err != nil {
		return nil, nil, err
	}
	w := t.writers[c.TP]
	if w.lost {
		// What it had computed on the connection before is gone; it is told the end.
		t.touched = true
		delete(t.lost, c)
		return nil, nil, nil
	}
	return t, w, nil
}

func (w *writer) lose(why *ending) { w.lost, w.gone = true, why }

func (w *writer) add(layer int) {
	if _, ok := w.done[layer]; !ok {
		w.done[layer] = struct{}{}
		w.saved = append(w.saved, layer)
	}
}
