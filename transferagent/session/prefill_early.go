package session

import (
	"slices"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

// earlyAsk is where decode wants a transfer that the own engine has not named yet:
// decode is often faster. It is kept as long as decode waits, Timeouts.ReceiveAbort,
// unless decode releases it, which ends it at once.
type earlyAsk struct {
	at     time.Time
	target *target
}

// Asked is the number of transfers that decode waits for and the own engine has not named.
func (p *Prefill) Asked() int { return len(p.early) }

func (e *earlyAsk) view(id string) Transfer {
	return Transfer{ID: id, Role: kvlayout.Prefill, State: Waiting, Started: e.at, Tokens: e.target.tokens}
}

// askEarly keeps an ask until the own engine comes to it, if there is room.
func (p *Prefill) askEarly(now time.Time, id string, to *target) error {
	switch n := p.waiting + len(to.blocks); {
	case n > earlyLists*p.cfg.Limits.Blocks:
		return wrongf(OverLimit, "transfer %q is asked for ahead of the engine, which makes %d blocks", id, n)
	case len(p.early) >= p.cfg.Limits.Early:
		return wrongf(OverLimit, "transfer %q is one more than the %d that decode may ask for ahead of the engine", id, p.cfg.Limits.Early)
	}
	p.early[id] = &earlyAsk{at: now, target: to}
	p.waiting += len(to.blocks)
	p.alarms.put(alarmKey{transfer: id, early: true}, now.Add(p.cfg.Timeouts.ReceiveAbort))
	return nil
}

// earlyLists bounds the memory of early asks: their block lists together are no
// longer than that many of the longest.
const earlyLists = 4

func (p *Prefill) dropEarly(id string) {
	p.waiting -= len(p.early[id].target.blocks)
	delete(p.early, id)
	p.alarms.drop(alarmKey{transfer: id, early: true})
}

// adopt gives a transfer that begins what decode has said of it already.
func (p *Prefill) adopt(now time.Time, t *prefillTransfer) {
	if f := p.foregone.find(t.id); f != nil {
		p.unforgo(t.id)
		t.fail(f.why)
	}
	e := p.early[t.id]
	if e == nil {
		return
	}
	p.dropEarly(t.id)
	if e.target.prefill != p.engine.global(t.dp) {
		p.refuse(e.target, t.id, p.wrongRank(e.target.prefill, t.dp))
		return
	}
	p.aim(now, t, e.target)
}

// silent ends what decode has said of a transfer that the own engine has never come to.
func (p *Prefill) silent(now time.Time, id string) {
	if e := p.early[id]; e != nil {
		why := endingf(RulePrefillSilent, "prefill's engine did not admit the request within %s", p.cfg.Timeouts.ReceiveAbort)
		p.refuse(e.target, id, why)
		p.endEarly(now, id, why)
		return
	}
	if f := p.foregone.find(id); f != nil {
		p.unforgo(id)
		p.recordEarly(now, f.view(id), f.why)
	}
}

// endEarly ends an early ask that decode knows the end of.
func (p *Prefill) endEarly(now time.Time, id string, why *ending) {
	view := p.early[id].view(id)
	p.dropEarly(id)
	p.recordEarly(now, view, why)
}

// recordEarly remembers an end that the own engine does not know of, so that its
// messages, if they still come, are answered.
func (p *Prefill) recordEarly(now time.Time, view Transfer, why *ending) {
	view.State, view.Rule, view.Text, view.Ended = Broken, why.rule, why.text, now
	if why.good {
		view.State = Ended
	}
	p.remember(&record{dp: -1, failure: why, peerTold: true, view: view})
}

// refuse sends decode a write_failed for all ranks.
func (p *Prefill) refuse(to *target, transfer string, why *ending) {
	if to == nil || to.told {
		return
	}
	to.told = true
	p.send(to.peer, p.failedReport(transfer, to.epoch, to.prefill, AllRanks, AllRanks, 0, why))
}

func (p *Prefill) wrongRank(asked, dp int) *ending {
	return endingf(RulePeerRanks, "decode asks prefill dp %d, the request runs on dp %d", asked, p.engine.global(dp))
}

// targetOf reads a remote_blocks.
func targetOf(now time.Time, m *moriio.RemoteBlocks) *target {
	a := m.PDPool
	return &target{
		peer: Peer{Host: a.Host, Handshake: a.Handshake, Notify: a.Notify}, epoch: a.Epoch, dp: m.DecodeRank, prefill: a.PrefillDP,
		blocks: m.Blocks, first: a.FirstToken, tokens: a.Tokens, hash: a.Hash, at: now,
	}
}

// Needs says that a live transfer is with a peer, or that it has asked for one.
func (p *Prefill) Needs(at Peer) bool { return p.machine.Needs(at) || len(p.earlyOf(at)) > 0 }

// earlyOf lists the early asks of a peer, in a fixed order.
func (p *Prefill) earlyOf(at Peer) []string {
	var ids []string
	for id, e := range p.early {
		if e.target.peer == at {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
