package session

import (
	"slices"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

// earlyAsk is what decode said of a transfer that the own engine has not named
// yet: decode is often faster. It is kept as long
// as decode waits: Timeouts.ReceiveAbort.
type earlyAsk struct {
	at       time.Time // of the first message
	target   *target   // nil when only a release has come
	released *ending
	releaser uint64 // epoch of the release
}

// Asked is the number of transfers that decode waits for and the own engine has not named.
func (p *Prefill) Asked() int {
	n := 0
	for _, e := range p.early {
		if e.target != nil && e.released == nil {
			n++
		}
	}
	return n
}

func (e *earlyAsk) view(id string) Transfer {
	v := Transfer{ID: id, Role: kvlayout.Prefill, State: Waiting, Started: e.at}
	if e.target != nil {
		v.Tokens = e.target.tokens
	}
	return v
}

// askEarly returns the early ask of a transfer, making room for it if there is any.
func (p *Prefill) askEarly(now time.Time, id string) (*earlyAsk, error) {
	if e := p.early[id]; e != nil {
		return e, nil
	}
	if len(p.early) >= p.cfg.Limits.Early {
		return nil, wrongf(OverLimit, "transfer %q is one more than the %d that decode may ask for ahead of the engine", id, p.cfg.Limits.Early)
	}
	e := &earlyAsk{at: now}
	p.early[id] = e
	p.alarms.put(alarmKey{transfer: id, early: true}, now.Add(p.cfg.Timeouts.ReceiveAbort))
	return e, nil
}

// earlyLists bounds the memory of early asks: their block lists together are no
// longer than that many of the longest.
const earlyLists = 4

func (p *Prefill) dropEarly(id string) {
	if e := p.early[id]; e != nil && e.target != nil {
		p.waiting -= len(e.target.blocks)
	}
	delete(p.early, id)
	p.alarms.drop(alarmKey{transfer: id, early: true})
}

// adopt gives a transfer that begins what decode has said of it already.
func (p *Prefill) adopt(now time.Time, t *prefillTransfer) {
	e := p.early[t.id]
	if e == nil {
		return
	}
	p.dropEarly(t.id)
	if e.released != nil {
		t.fail(e.released)
	}
	switch {
	case e.target == nil:
	case e.target.prefill != p.engine.global(t.dp):
		p.refuse(e.target, t.id, p.wrongRank(e.target.prefill, t.dp))
	default:
		p.aim(now, t, e.target)
	}
}

// silent ends an early ask that the own engine has never come to.
func (p *Prefill) silent(now time.Time, id string) {
	e := p.early[id]
	if e == nil {
		return
	}
	p.endEarly(now, id, e, endingf(RulePrefillSilent, "prefill's engine did not admit the request within %s", p.cfg.Timeouts.ReceiveAbort))
}

// endEarly tells decode, and remembers the end so that the engine's messages, if
// they still come, are answered.
func (p *Prefill) endEarly(now time.Time, id string, e *earlyAsk, why *ending) {
	p.dropEarly(id)
	if e.released != nil {
		why = e.released
	} else {
		p.refuse(e.target, id, why)
	}
	r := &record{dp: -1, failure: why, peerTold: e.target != nil || e.released != nil}
	r.view = e.view(id)
	r.view.State, r.view.Rule, r.view.Text, r.view.Ended = Broken, why.rule, why.text, now
	if why.good {
		r.view.State = Ended
	}
	p.remember(r)
}

// refuse sends decode a write_failed for all ranks.
func (p *Prefill) refuse(to *target, transfer string, why *ending) {
	if to == nil || to.told {
		return
	}
	to.told = true
	p.send(to.peer, p.failedReport(transfer, to.prefill, AllRanks, AllRanks, 0, why))
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

// earlyOf lists the early asks of a peer, in a fixed order.
func (p *Prefill) earlyOf(at Peer) []string {
	var ids []string
	for id, e := range p.early {
		if e.target != nil && e.target.peer == at {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
