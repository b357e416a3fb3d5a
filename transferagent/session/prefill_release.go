package session

import (
	"time"

	"github.com/pdpool/pdpool/moriio"
)

// release takes decode's word that it wants nothing more of a transfer. With a
// rule the transfer has failed there; without, decode has the prompt already.
func (p *Prefill) release(now time.Time, m *moriio.Release) error {
	if err := checkID(m.Transfer); err != nil {
		return err
	}
	if m.PDPool == nil {
		return wrongf(NoExtension, "release of transfer %q does not say why and from which epoch", m.Transfer)
	}
	if err := p.meant(m.PDPool.PeerEpoch); err != nil {
		return err
	}
	why := newEnding(m.PDPool.Rule, m.PDPool.Text)
	if why.rule == "" {
		why = &ending{rule: RuleReleased, text: "decode does not need it", good: true}
	}
	if p.past.find(m.Transfer) != nil {
		return wrongf(Late, "release of transfer %q came after its end", m.Transfer)
	}
	if t := p.transfers[m.Transfer]; t != nil {
		return p.releaseLive(now, t, m.PDPool.Epoch, why)
	}
	e, f := p.early[m.Transfer], p.foregone.find(m.Transfer)
	switch {
	case f != nil:
		return wrongf(Duplicate, "transfer %q was released before", m.Transfer)
	case e == nil:
		p.forgo(&foregone{id: m.Transfer, at: now, why: why, epoch: m.PDPool.Epoch})
	case e.target.epoch != m.PDPool.Epoch:
		return wrongf(OtherEpoch, "release of transfer %q is from epoch %d, its blocks are of epoch %d", m.Transfer, m.PDPool.Epoch, e.target.epoch)
	default:
		p.endEarly(now, m.Transfer, why)
	}
	return nil
}

func (p *Prefill) releaseLive(now time.Time, t *prefillTransfer, epoch uint64, why *ending) error {
	if t.target != nil && t.target.epoch != epoch {
		p.doubt(now, t.target.peer)
		return wrongf(OtherEpoch, "release of transfer %q is from epoch %d, its blocks are of epoch %d", t.id, epoch, t.target.epoch)
	}
	if t.released {
		return wrongf(Duplicate, "transfer %q was released before", t.id)
	}
	t.released = true
	if why.rule == RuleEngineGone && t.target != nil {
		// Its engine comes back with other memory, under the same epoch.
		p.distrust(t.target.peer)
	}
	t.fail(why)
	p.advance(now, t)
	return nil
}
