package session_test

import (
	"fmt"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/session"
)

// checkEnd looks at what is left when nothing happens any more.
func (s *sim) checkEnd() {
	for _, a := range s.agents {
		if left := a.machine.Transfers(); len(left) > 0 {
			s.violation("%s: %d transfers never end: %+v", a.shape.host, len(left), left[0])
		}
		if left := session.Leftovers(a.machine, false); len(left) > 0 {
			s.violation("%s keeps %s", a.shape.host, strings.Join(left, ", "))
		}
		s.checkAnswered(a)
		for _, peer := range s.agents {
			_ = s.step(a, session.PeerGone{Peer: peer.shape.peer()})
		}
		if left := session.Leftovers(a.machine, true); len(left) > 0 {
			s.violation("%s keeps after its peers are gone %s", a.shape.host, strings.Join(left, ", "))
		}
	}
	if s.faults {
		return
	}
	if done, failed := s.tally["transfer done"], s.tally["transfer failed"]; failed > 0 || done != len(s.ids) {
		s.violation("without faults %d of %d transfers ended well, %d failed", done, len(s.ids), failed)
	}
	for pair, n := range s.dials {
		if n > 1 && s.limits.Peers == 0 {
			s.violation("%d handshakes %s without a fault", n, pair)
		}
	}
}

// checkServes: whatever has happened, each decode pod soon gets prompts again from a
// prefill pod. One transfer may fail of what either still believes of the other, and
// that tells it better.
func (s *sim) checkServes() {
	if !s.faults {
		return
	}
	s.now = s.now.Add(longestJump) // clocks that were set back are where they have been again
	for _, d := range s.agents {
		if d.shape.role != kvlayout.Decode {
			continue
		}
		p := s.pick(func(a *agent) bool { return a.shape.role == kvlayout.Prefill })
		served := false
		for range 3 {
			before := s.tally["transfer done"]
			s.faults = false // the engines do what is asked
			s.begin(p, d, fmt.Sprintf("t%d", len(s.ids)), "again", 1, 0, 0)
			s.finish()
			s.faults = true
			if s.wrong != nil {
				return
			}
			if served = s.tally["transfer done"] > before; served {
				break
			}
		}
		if !served {
			s.violation("%s gets no prompt from %s though all is well", d.shape.host, p.shape.host)
		}
	}
}

// checkStep holds after every event: each transfer that has not ended waits for
// something that comes, and no more peers are kept than may be.
func (s *sim) checkStep(a *agent) {
	if again := a.machine.Ready(); len(again.Ended)+len(again.Notices)+len(again.Messages)+len(again.Dials)+len(again.Copies)+len(again.Revokes) > 0 {
		s.violation("%s: Ready returns things twice: %+v", a.shape.host, again)
	}
	if stuck := session.Stuck(a.machine); len(stuck) > 0 {
		s.violation("%s: nothing will happen to %s", a.shape.host, strings.Join(stuck, ", "))
	}
	if crowded := session.Crowded(a.machine); len(crowded) > 0 {
		s.violation("%s: %s", a.shape.host, strings.Join(crowded, ", "))
	}
	limits := s.limits
	if limits.Peers > 0 && session.IdlePeers(a.machine) > limits.Peers {
		s.violation("%s keeps %d peers that nobody uses, the limit is %d", a.shape.host, session.IdlePeers(a.machine), limits.Peers)
	}
}

// checkOverdue: in the calm part no transfer lives for longer than all of its waits.
func (s *sim) checkOverdue() {
	longest := 2*(timeouts.Handshake+timeouts.Defer+timeouts.Transfer+timeouts.ReceiveAbort) + lease
	for _, a := range s.agents {
		if !s.calm || !a.runs() {
			continue
		}
		for _, t := range a.machine.Transfers() {
			since := t.Started.Add(-a.skew)
			if since.Before(s.calmed) {
				since = s.calmed
			}
			if lived := s.now.Sub(since); lived > longest {
				s.violation("%s: %s has not ended after %s of calm: %+v", a.shape.host, t.ID, lived, t)
			}
		}
	}
}

// checkEnded: the end of a transfer is told once, when it is not live any more.
func (s *sim) checkEnded(a *agent, ended []session.Transfer) {
	for _, t := range ended {
		if _, twice := a.ended[t.ID]; twice {
			s.violation("%s: the end of %s is told twice", a.shape.host, t.ID)
		}
		a.ended[t.ID] = struct{}{}
		if t.Rule == session.RuleCopy && !s.broken[t.ID] {
			s.violation("%s: %s has ended as %s, but no copy of it has failed otherwise than by decode's end", a.shape.host, t.ID, t.Rule)
		}
		if now, ok := a.machine.Transfer(t.ID); !ok || t.Ended.IsZero() || now.State != t.State || (t.State != session.Ended && t.State != session.Broken) {
			s.violation("%s: the end of %s is told as %+v, the transfer is %+v", a.shape.host, t.ID, t, now)
		}
		if (t.State == session.Broken) != (t.Rule != "" && t.Text != "") && t.Rule != session.RuleReleased {
			s.violation("%s: %s has ended as %s for the reason %q: %q", a.shape.host, t.ID, t.State, t.Rule, t.Text)
		}
	}
	if n := len(a.machine.Transfers()); a.machine.Live() != n {
		s.violation("%s: %d of %d live transfers are counted", a.shape.host, a.machine.Live(), n)
	}
}

// checkReleased: prefill hears at once of a transfer that ends before decode has named its
// blocks, if the agent knows where prefill is.
func (s *sim) checkReleased(a *agent, r session.Ready) {
	told := map[string]bool{}
	for _, m := range r.Messages {
		if release, ok := m.Message.(*moriio.Release); ok {
			told[release.Transfer] = true
		}
	}
	for _, t := range r.Ended {
		for _, q := range a.engine.requests {
			if q.id == t.ID && q.named && !q.blocksSent && !told[t.ID] {
				s.violation("%s: %s has ended before its blocks were named, and prefill is not told", a.shape.host, t.ID)
			}
			if q.id == t.ID && q.named && !q.blocksSent {
				s.tally["released before blocks"]++
			}
		}
	}
}

// checkLimit: nobody's ask is turned away for those that nobody waits for any more.
func (s *sim) checkLimit(a *agent, wrong *session.EventError) {
	if wrong != nil && wrong.Reason == session.OverLimit && strings.Contains(wrong.Text, "may ask for ahead of the engine") && a.machine.Asked() < s.limits.Early {
		s.violation("%s: %s, but decode waits for %d", a.shape.host, wrong.Text, a.machine.Asked())
	}
}

// checkReport: decode hears once how a writer has ended for a reader.
func (s *sim) checkReport(a *agent, message any) {
	var report *moriio.Report
	transfer := ""
	switch m := message.(type) {
	case *moriio.WriteDone:
		transfer, report = m.Transfer, m.PDPool
	case *moriio.WriteFailed:
		transfer, report = m.Transfer, m.PDPool
	default:
		return
	}
	if report.WriterTP == session.AllRanks {
		return // also said to others who ask for the same transfer
	}
	key := fmt.Sprintf("%s %d/%d>%d", transfer, report.WriterDP, report.WriterTP, report.ReaderTP)
	if _, twice := a.reports[key]; twice {
		s.violation("%s: the end of %s is reported twice", a.shape.host, key)
	}
	a.reports[key] = struct{}{}
}

// checkOwner holds a copy to the blocks of its own transfer.
func (s *sim) checkOwner(m *memory, transfer string, at, length int64) {
	if m.dead {
		return
	}
	host := m.engine.shape.host
	region := m.engine.region(m.dp, m.tp, at)
	if region == nil || at+length > region.End() {
		s.violation("%s: bytes %d..%d of %s are in no layer of rank %d/%d", host, at, at+length, transfer, m.dp, m.tp)
		return
	}
	for _, byteAt := range []int64{at, at + length - 1} {
		block := int32((byteAt - region.Offset) / region.BlockStride)
		if owner := m.engine.owner[m.dp][block]; owner == nil || owner.id != transfer {
			s.violation("%s: a copy of %s touches block %d of dp %d, which belongs to %v", host, transfer, block, m.dp, owner)
		}
	}
}

// checkQuiet: blocks are reported free while no copy can touch them.
func (s *sim) checkQuiet(a *agent, id string) {
	for _, t := range a.strays {
		if t.order.Transfer == id {
			s.violation("%s: blocks of %s are free while copy order %d may still be placed", a.shape.host, id, t.order.ID)
		}
	}
	for _, m := range a.orders {
		if m.order.Transfer == id {
			s.violation("%s: blocks of %s are free while copy order %d is open", a.shape.host, id, m.order.ID)
		}
	}
	for _, m := range s.ordersTo(a) {
		if m.order.Transfer == id && s.stillWrites(m) {
			s.violation("%s: blocks of %s are free while %s has copy order %d open", a.shape.host, id, m.session.writer.shape.host, m.order.ID)
		}
	}
}

// content is byte k of the row of a token, as prefill computes it.
func content(prompt string, layer, head, token int, k int64) byte {
	h := uint32(2166136261)
	for _, b := range []byte(prompt) {
		h = (h ^ uint32(b)) * 16777619
	}
	for _, n := range []int{layer, head, token, int(k)} {
		h = (h ^ uint32(n+1)) * 16777619
	}
	return byte(h>>13) | 1 // never 0, which is poison
}

// rowAt is where the engine with this layout keeps a token's row: vLLM's slot
// formula. ok is false when another DCP rank has it.
func rowAt(sh shape, region kvlayout.Region, tp, head, token int, blocks []int32) (at int64, ok bool) {
	n, b := max(sh.dcp, 1), sh.block
	virtual, o := token/(b*n), token%(b*n)
	if o/sh.il%n != tp%n {
		return 0, false
	}
	slot := o/(sh.il*n)*sh.il + o%sh.il
	at = region.Offset + int64(blocks[virtual])*region.BlockStride +
		int64(head-region.Heads.First)*region.HeadStride + int64(slot)*region.TokenStride
	return at, true
}

// eachRow visits every row of a prompt that a rank holds.
func eachRow(sh shape, regions []kvlayout.Region, layer, tp, tokens int, blocks []int32, visit func(head, token int, at, length int64)) {
	for _, region := range regions {
		if layer >= 0 && region.Layer != layer {
			continue
		}
		for head := region.Heads.First; head < region.Heads.First+region.Heads.Count; head++ {
			for token := range tokens {
				if at, ok := rowAt(sh, region, tp, head, token, blocks); ok {
					visit(head, token, at, region.RowBytes)
				}
			}
		}
	}
}

// checkRows: after Done, every row that decode lacked is the one of its prompt.
func (s *sim) checkRows(a *agent, r *request) {
	for tp := range a.shape.tp {
		m := a.engine.memory[worker(r.dp, tp)]
		if m == nil {
			s.violation("%s: %s is done without worker %d/%d", a.shape.host, r.id, r.dp, tp)
			return
		}
		for _, region := range a.engine.regions(r.dp, tp) {
			eachRow(a.shape, []kvlayout.Region{region}, -1, tp, r.tokens, r.blocks, func(head, token int, at, length int64) {
				for k := range length {
					if want := content(r.prompt, region.Layer, head, token, k); token >= r.first && m.bytes[at+k] != want {
						s.violation("%s: %s is done, but layer %d head %d token %d at rank %d/%d is wrong at byte %d: %d instead of %d",
							a.shape.host, r.id, region.Layer, head, token, r.dp, tp, k, m.bytes[at+k], want)
						return
					}
				}
			})
		}
	}
}

// wire takes a message through MoRIIO's encoding, so that nothing is sent
// that a peer would refuse to read.
func wire(message any) []byte {
	return message.(interface{ Append(b []byte) []byte }).Append(nil)
}
