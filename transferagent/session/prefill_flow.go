package session

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// reach gets decode's metadata and fixes who writes to whom.
func (p *Prefill) reach(now time.Time, t *prefillTransfer) {
	if t.waiting {
		return
	}
	d := p.want(now, t.target.peer, t.target.epoch, t.id)
	if d == nil {
		p.await(now, t)
		return
	}
	if d.refused != nil {
		t.fail(d.refused)
		return
	}
	p.bind(now, t, d)
}

// await starts the clock of the handshake with the first wait; it runs on through
// a second one.
func (p *Prefill) await(now time.Time, t *prefillTransfer) {
	t.waiting = true
	if t.reachBy.IsZero() {
		t.reachBy = now.Add(p.cfg.Timeouts.Handshake)
	}
}

func (p *Prefill) bind(now time.Time, t *prefillTransfer, d *metadata) {
	for _, w := range t.writers {
		w.flows = nil
		for _, r := range kvlayout.Readers(p.cfg.Geometry, p.cfg.Self.Layout, d.agent.Layout, w.tp) {
			target := d.memory[rank{t.target.dp, r.Rank}]
			if target == nil {
				p.rankMissing(now, t, r.Rank)
				return
			}
			if n := len(w.flows); n > 0 && w.flows[n-1].reader == r.Rank {
				w.flows[n-1].heads = append(w.flows[n-1].heads, r.Heads)
				continue
			}
			w.flows = append(w.flows, &flow{writer: w.tp, reader: r.Rank, heads: []kvlayout.HeadRange{r.Heads}, target: target})
		}
	}
	t.bound, t.reachBy = true, time.Time{}
	t.decode = d
}

// rankMissing asks once more, as what is cached may be older than decode's engine.
func (p *Prefill) rankMissing(now time.Time, t *prefillTransfer, reader int) {
	for _, w := range t.writers {
		w.flows = nil
	}
	if t.asked {
		t.fail(endingf(RulePeerRanks, "decode's agent at %s has no rank dp %d tp %d", t.target.peer, t.target.dp, reader))
		return
	}
	t.asked = true
	p.distrust(t.target.peer)
	p.want(now, t.target.peer, t.target.epoch, t.id)
	p.await(now, t)
}

// plan tries the plan of the first layer of each flow before anything is posted:
// an allocation that is too short is refused whole, not when half is written.
func (p *Prefill) plan(t *prefillTransfer) {
	var tried []kvlayout.Copy // not kept
	for _, w := range t.writers {
		if w.lost {
			continue
		}
		for _, f := range w.flows {
			var err error
			if tried, err = p.copies(tried[:0], t, w, f, w.memory.regions[0].Layer); err != nil {
				t.fail(planRefusal(err))
				return
			}
		}
	}
	t.planned = true
}

// copies plans one layer of a flow, into the given list.
func (p *Prefill) copies(copies []kvlayout.Copy, t *prefillTransfer, w *writer, f *flow, layer int) ([]kvlayout.Copy, error) {
	source, _ := w.memory.region(layer)
	target, ok := f.target.region(layer)
	if !ok {
		return nil, wrongf(BadNumber, "decode rank tp %d has no layer %d", f.reader, layer)
	}
	self, decode := p.cfg.Self.Layout.Defaulted(), t.decode.agent.Layout.Defaulted()
	for _, heads := range f.heads {
		var err error
		copies, err = p.cfg.Plan(copies, kvlayout.WriteSpec{
			Source: source, Target: target,
			SourceBlocks: t.hold.Blocks, TargetBlocks: t.target.blocks,
			SourceDCP: self.DCP, Placement: place(t.decode.agent), TargetRank: kvlayout.DCPRank(f.reader, decode),
			FirstToken: t.target.first, Tokens: t.target.tokens, Heads: heads,
		})
		if err != nil {
			return nil, err
		}
	}
	return copies, nil
}
