package enginesim

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// save tells the agent on each worker's connection that a layer is complete.
func (g *group) save(t *transfer, layer int) error {
	for tp := range g.ranks {
		if g.delayed(tp) > 0 {
			continue // seal tells all of it later
		}
		if g.killed(tp, layer) {
			_ = t.link.workers[tp].Close()
		}
		if err := t.sendWorker(tp, kvproto.Save{Transfer: t.id, Layer: layer}); err != nil {
			return err
		}
	}
	return nil
}

// seal tells the agent that all layers were announced.
func (g *group) seal(t *transfer) error {
	for tp := range g.ranks {
		if wait := g.delayed(tp); wait > 0 {
			g.background.Go(func() { g.sealLater(t, tp, wait) })
			continue
		}
		if err := t.sendWorker(tp, kvproto.Sealed{Transfer: t.id}); err != nil {
			return err
		}
	}
	return nil
}

// sealLater is what a delayed worker does.
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
		if err := t.sendWorker(tp, kvproto.Save{Transfer: t.id, Layer: layer}); err != nil {
			return // the link is lost, and the transfer with it
		}
	}
	_ = t.sendWorker(tp, kvproto.Sealed{Transfer: t.id}) // likewise
}

// delayed is how long a worker keeps back its saves.
func (g *group) delayed(tp int) time.Duration {
	for _, d := range g.cfg.faults.delays {
		if d.rank == tp {
			return d.wait
		}
	}
	return 0
}

func (g *group) killed(tp, layer int) bool {
	for _, k := range g.cfg.faults.kills {
		if k.rank == tp && k.layer == layer {
			return true
		}
	}
	return false
}

// flip inverts the first byte of the rows that a fault names.
func (g *group) flip(s *sequence, ids []int32, layer int) {
	for _, f := range g.cfg.faults.flips {
		if f.layer != layer || f.row >= len(s.tokens) {
			continue
		}
		at := g.cfg.Layout.place(f.row)
		if r := g.ranks[f.rank]; at.rank == r.dcp {
			r.row(layer, ids[at.block], r.headFirst, at.slot)[0] ^= 0xff
		}
	}
}
