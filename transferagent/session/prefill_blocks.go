package session

import (
	"time"

	"github.com/pdpool/pdpool/moriio"
)

// remoteBlocks takes decode's allocation. One that can't be used is answered by
// write_failed, so that decode does not wait for its deadline.
func (p *Prefill) remoteBlocks(now time.Time, m *moriio.RemoteBlocks) error {
	if err := checkID(m.Transfer); err != nil {
		return err
	}
	if m.PDPool == nil {
		return wrongf(NoExtension, "remote_blocks of transfer %q does not say where decode's agent is", m.Transfer)
	}
	to := targetOf(now, m)
	if err := checkPeer(to.peer); err != nil {
		return err
	}
	if why, err := p.checkTarget(m, to); why != nil {
		if !p.aimed(m.Transfer) {
			p.refuse(to, m.Transfer, why)
		}
		return err
	}
	if r := p.past.find(m.Transfer); r != nil {
		return p.remoteBlocksLate(m.Transfer, to, r)
	}
	if t := p.transfers[m.Transfer]; t != nil {
		return p.remoteBlocksLive(now, t, to)
	}
	return p.remoteBlocksEarly(now, m.Transfer, to)
}

// remoteBlocksEarly takes an allocation for a transfer that the own engine has not named.
func (p *Prefill) remoteBlocksEarly(now time.Time, id string, to *target) error {
	if p.early[id] != nil {
		return wrongf(Duplicate, "remote_blocks of transfer %q came before", id)
	}
	if f := p.foregone.find(id); f != nil {
		p.unforgo(id)
		if f.epoch == to.epoch { // else it was not this decode that wants nothing more
			view := f.view(id)
			view.Tokens = to.tokens
			p.recordEarly(now, view, f.why)
			return nil
		}
	}
	err := p.askEarly(now, id, to)
	if err != nil {
		p.refuse(to, id, endingf(RuleTransfersLimit, "%s", err.Error()))
	}
	return err
}

// checkTarget tells what is wrong with an allocation by itself: for decode, and
// for the count.
func (p *Prefill) checkTarget(m *moriio.RemoteBlocks, to *target) (*ending, error) {
	self := &p.cfg.Self
	dp := to.prefill - self.DPStart
	switch n := len(to.blocks); {
	case m.PDPool.PeerEpoch != self.Epoch:
		return endingf(RulePeerRestarted, "prefill's agent has restarted since the handshake"),
			wrongf(OtherEpoch, "remote_blocks of transfer %q is meant for epoch %d, this is %d", m.Transfer, m.PDPool.PeerEpoch, self.Epoch)
	case dp < 0 || dp >= p.dpLocal():
		return endingf(RulePeerRanks, "this prefill pod has no dp %d", to.prefill),
			wrongf(WrongRank, "remote_blocks of transfer %q asks dp %d", m.Transfer, to.prefill)
	case n > p.cfg.Limits.Blocks:
		return endingf(RuleBlocksLimit, "%d blocks are asked for, a transfer may have %d", n, p.cfg.Limits.Blocks),
			wrongf(OverLimit, "remote_blocks of transfer %q has %d blocks", m.Transfer, n)
	case len(m.Groups) > 1:
		return endingf(RuleRegions, "%d block groups are asked for, one is served", len(m.Groups)),
			wrongf(BadNumber, "remote_blocks of transfer %q has %d groups", m.Transfer, len(m.Groups))
	case to.tokens < 0 || to.first < 0 || to.first > to.tokens:
		return endingf(RuleRegions, "tokens %d to %d are asked for", to.first, to.tokens),
			wrongf(BadNumber, "remote_blocks of transfer %q asks for tokens %d to %d", m.Transfer, to.first, to.tokens)
	}
	return nil, nil
}

func (p *Prefill) remoteBlocksLate(id string, to *target, r *record) error {
	if r.peerTold || r.failure == nil {
		return wrongf(Late, "remote_blocks of transfer %q came after its end", id)
	}
	r.peerTold = true
	p.refuse(to, id, r.failure)
	return nil
}

func (p *Prefill) remoteBlocksLive(now time.Time, t *prefillTransfer, to *target) error {
	switch {
	case t.target != nil:
		return wrongf(Duplicate, "remote_blocks of transfer %q came before", t.id)
	case to.prefill != p.engine.global(t.dp):
		p.refuse(to, t.id, p.wrongRank(to.prefill, t.dp))
		return wrongf(WrongRank, "remote_blocks of transfer %q asks dp %d, it runs on dp %d", t.id, to.prefill, p.engine.global(t.dp))
	}
	p.aim(now, t, to)
	p.advance(now, t)
	return nil
}

// aimed reports whether an allocation of the transfer was taken: then its flows are
// reported one by one, and no other message may say that nothing is written.
func (p *Prefill) aimed(id string) bool {
	if t := p.transfers[id]; t != nil {
		return t.target != nil
	}
	if p.early[id] != nil {
		return true
	}
	r := p.past.find(id)
	return r != nil && (r.peerTold || r.failure == nil)
}

// aim binds a transfer to decode's allocation.
func (p *Prefill) aim(now time.Time, t *prefillTransfer, to *target) {
	t.target = to
	p.meet(now, to.peer)
	if why := p.keep(&t.life, len(to.blocks)); why != nil {
		to.blocks = nil
		t.fail(why)
	}
}
