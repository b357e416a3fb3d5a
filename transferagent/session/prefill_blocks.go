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
	if n := p.waiting + len(to.blocks); n > earlyLists*p.cfg.Limits.Blocks {
		err := wrongf(OverLimit, "transfer %q is asked for ahead of the engine, which makes %d blocks", m.Transfer, n)
		if !p.aimed(m.Transfer) {
			p.refuse(to, m.Transfer, endingf(RuleTransfersLimit, "%s", err.Error()))
		}
		return err
	}
	e, err := p.askEarly(now, m.Transfer)
	switch {
	case err != nil:
		p.refuse(to, m.Transfer, endingf(RuleTransfersLimit, "%s", err.Error()))
		return err
	case e.target != nil:
		return wrongf(Duplicate, "remote_blocks of transfer %q came before", m.Transfer)
	}
	if e.released != nil && e.releaser != to.epoch {
		e.released = nil // it was not this decode that wants nothing more
	}
	e.target = to
	p.waiting += len(to.blocks)
	return nil
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
	if e := p.early[id]; e != nil {
		return e.target != nil
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
