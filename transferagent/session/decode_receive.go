package session

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// receive takes decode's blocks. It is answered by one Done or Failed, whatever
// has happened before and whatever comes.
func (d *Decode) receive(now time.Time, c Conn, m kvproto.Receive) error {
	if err := d.checkMessage(c, kvproto.Scheduler, m, m.Transfer); err != nil {
		return err
	}
	from := peerOf(m.Peer)
	if err := checkPeer(from); err != nil {
		return err
	}
	if r := d.past.find(m.Transfer); r != nil {
		return d.receiveLate(c, m, from, r)
	}
	t, err := d.find(now, m.Transfer, c.DP)
	if err != nil {
		return d.refuseReceive(now, c, m, from, err)
	}
	if t.receive != nil {
		return wrongf(Duplicate, "transfer %q was asked for before", m.Transfer)
	}
	t.receive, t.peer = &m, from
	for _, c := range d.down(t.dp) {
		t.lost[c] = struct{}{}
	}
	d.meet(now, from)
	why := d.checkReceive(t, &m)
	if why == nil {
		why = d.keep(&t.life, len(m.Blocks))
	}
	switch {
	case why != nil:
		t.receive.Blocks = nil
		t.fail(why)
	case m.FirstToken == m.Tokens && t.failure == nil:
		// Another cache had the prompt: prefill has to hear that nobody will ask.
		t.sated, t.released = true, true
		d.send(from, d.releaseOf(t.id, 0, &ending{good: true}))
	}
	d.advance(now, t)
	return nil
}

// receiveLate answers who asks for a transfer that has ended, and tells prefill.
func (d *Decode) receiveLate(c Conn, m kvproto.Receive, from Peer, r *record) error {
	if err := r.belongsTo(c.DP); err != nil {
		return err
	}
	if r.claimed {
		return wrongf(Duplicate, "transfer %q was asked for before", m.Transfer)
	}
	if r.failure != nil && !r.peerTold {
		r.peerTold = true
		d.send(from, d.releaseOf(m.Transfer, 0, r.failure))
	}
	if r.settled {
		r.claimed = true
		return wrongf(Duplicate, "transfer %q was aborted before", m.Transfer)
	}
	d.failedEarly(r, c.DP)
	return nil
}

// checkReceive refuses what no prefill could serve.
func (d *Decode) checkReceive(t *decodeTransfer, m *kvproto.Receive) *ending {
	switch n := len(m.Blocks); {
	case n > d.cfg.Limits.Blocks:
		return endingf(RuleBlocksLimit, "%d blocks are given, a transfer may have %d", n, d.cfg.Limits.Blocks)
	case m.Tokens < 0 || m.FirstToken < 0 || m.FirstToken > m.Tokens:
		return endingf(RuleAllocationShort, "tokens %d to %d are asked for", m.FirstToken, m.Tokens)
	case t.expect != nil && t.expect.Tokens != m.Tokens:
		return endingf(RulePrompt, "decode admitted %d tokens and asks for %d", t.expect.Tokens, m.Tokens)
	}
	for tp := range d.tp() {
		own, ok := d.engine.worker(t.dp, tp)
		if !ok {
			return d.workerLost(t.dp, tp)
		}
		for _, id := range m.Blocks {
			if id < 0 || int(id) >= own.blocks {
				return endingf(RuleBlockRange, "block %d is outside the %d blocks of decode tp %d", id, own.blocks, tp)
			}
		}
	}
	if need := place(&d.cfg.Self).BlocksFor(m.Tokens); m.FirstToken < m.Tokens && len(m.Blocks) < need {
		return endingf(RuleAllocationShort, "%d tokens need %d blocks at decode, %d are given", m.Tokens, need, len(m.Blocks))
	}
	return nil
}

// refuseReceive fails a transfer that is one too many.
func (d *Decode) refuseReceive(now time.Time, c Conn, m kvproto.Receive, from Peer, err error) error {
	r := d.overflow(now, m.Transfer, c.DP, m.Tokens, err)
	if r == nil {
		return err
	}
	d.failedEarly(r, c.DP)
	r.peerTold = true
	d.send(from, d.releaseOf(m.Transfer, 0, r.failure))
	return nil
}

// reach gets prefill's metadata, fixes who has to write, and asks for it.
func (d *Decode) reach(now time.Time, t *decodeTransfer) {
	if t.waiting {
		return
	}
	known := d.want(now, t.peer, 0, t.id)
	if known == nil {
		t.waiting = true
		if t.reachBy.IsZero() {
			t.reachBy = now.Add(d.cfg.Timeouts.Handshake)
		}
		return
	}
	if known.refused != nil {
		t.fail(known.refused)
		return
	}
	prefill := known.agent.Layout.Defaulted()
	if dp := t.receive.Peer.DP - known.agent.DPStart; dp < 0 || dp >= prefill.DPLocal {
		t.fail(endingf(RulePeerRanks, "prefill's agent at %s has no dp %d", t.peer, t.receive.Peer.DP))
		return
	}
	if !d.bind(t, known) {
		t.fail(endingf(RuleRegions, "some heads of the decode ranks are on no rank of prefill's agent at %s", t.peer))
		return
	}
	t.epoch, t.sentAt = known.epoch, now
	d.send(t.peer, d.remoteBlocks(t))
	t.receive.Blocks = nil // nobody else wants them
	d.discard(&t.life)
}

// bind fixes the expected writers of each own rank, and reports whether they
// provide all of its heads.
func (d *Decode) bind(t *decodeTransfer, known *metadata) bool {
	var flows []*inflow
	for tp := range d.tp() {
		heads := 0
		for _, w := range kvlayout.Writers(d.cfg.Geometry, known.agent.Layout, d.cfg.Self.Layout, tp) {
			heads += w.Heads.Count
			if n := len(flows); n > 0 && flows[n-1].reader == tp && flows[n-1].writer == w.Rank {
				continue // another range of heads from the same rank
			}
			flows = append(flows, &inflow{writer: w.Rank, reader: tp})
		}
		if heads == 0 || heads != kvlayout.HeadsOf(d.cfg.Geometry, d.cfg.Self.Layout, tp).Count {
			return false
		}
	}
	t.flows = flows
	return true
}

func (d *Decode) remoteBlocks(t *decodeTransfer) *moriio.RemoteBlocks {
	m := &moriio.RemoteBlocks{
		RequestID: t.id, Transfer: t.id, Blocks: t.receive.Blocks, DecodeRank: d.engine.global(t.dp),
		PDPool: &moriio.Allocation{
			Epoch: d.cfg.Self.Epoch, PeerEpoch: t.epoch,
			Host: d.cfg.Host, Handshake: d.cfg.Handshake, Notify: d.cfg.Notify,
			PrefillDP: t.receive.Peer.DP, FirstToken: t.receive.FirstToken, Tokens: t.receive.Tokens,
		},
	}
	if t.expect != nil {
		m.PDPool.Hash = t.expect.Hash
	}
	return m
}

// releaseOf is a release of this agent, for that incarnation of prefill's; 0 as long as
// decode has named it no blocks.
func (d *Decode) releaseOf(transfer string, to uint64, why *ending) *moriio.Release {
	return &moriio.Release{Transfer: transfer, ConsumerTP: 1, PDPool: &moriio.Released{
		Epoch: d.cfg.Self.Epoch, PeerEpoch: to, Rule: why.rule, Text: why.text,
	}}
}
