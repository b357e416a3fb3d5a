package enginesim

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// save tells the agent on each worker's connection that a layer is complete.
func (g *group) save(t *transfer, layer int) error {
	for tp := range g.ranks {
		if g.cfg.faults.own.Delay(tp) > 0 {
			continue // seal tells all of it later
		}
		if err := g.saveOne(t, tp, layer); err != nil {
			return err
		}
	}
	return nil
}

// saveOne tells it on one worker's connection, unless the worker dies of it.
func (g *group) saveOne(t *transfer, tp, layer int) error {
	if g.cfg.faults.own.Kills(tp, layer) {
		t.link.kill(tp)
	}
	return t.sendWorker(tp, kvproto.Save{Transfer: t.id, Layer: layer})
}

// seal tells the agent that all layers were announced.
func (g *group) seal(t *transfer) error {
	for tp := range g.ranks {
		if wait := g.cfg.faults.own.Delay(tp); wait > 0 {
			g.background.Go(func() { g.sealLater(t, tp, wait) })
			continue
		}
		if err := t.sendWorker(tp, kvproto.Sealed{Transfer: t.id}); err != nil {
			return err
		}
	}
	return nil
}

// sealLater is what a delayed worker does: it waits once and saves all layers then.
func (g *group) sealLater(t *transfer, tp int, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.quiet:
		return
	case <-g.stop:
		return
	}
	for layer := range g.cfg.Geometry.Layers {
		if err := g.saveOne(t, tp, layer); err != nil {
			return // the link is lost, and the transfer with it
		}
	}
	_ = t.sendWorker(tp, kvproto.Sealed{Transfer: t.id}) // likewise
}

// flip inverts the first byte of the rows that a fault names.
func (g *group) flip(s *sequence, ids []int32, layer int) {
	for _, f := range g.cfg.faults.own.Flips() {
		if f.Layer != layer || f.Row >= len(s.tokens) {
			continue
		}
		at := g.cfg.Layout.place(f.Row)
		if r := g.ranks[f.Rank]; at.rank == r.dcp {
			r.row(layer, ids[at.block], r.headFirst, at.slot)[0] ^= 0xff
		}
	}
}
