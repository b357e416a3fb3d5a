package session_test

import (
	"errors"
	"slices"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// moving is a copy order under way.
type moving struct {
	order   session.CopyOrder
	applied int // of its copies
	bytes   int64
	cut     bool // its session has ended
}

// move carries on some copy order, or answers one.
func (s *sim) move() bool {
	a := s.pick(func(a *agent) bool { return len(a.orders) > 0 })
	if a == nil {
		return false
	}
	i := s.rng.IntN(len(a.orders))
	m := a.orders[i]
	err := s.apply(a, m, 1+s.rng.IntN(4))
	if err == nil && m.applied < len(m.order.Copies) {
		return true
	}
	a.orders = slices.Delete(a.orders, i, i+1)
	if err != nil {
		s.abandon(m)
	}
	s.step(a, session.Copied{ID: m.order.ID, Moved: m.bytes, Err: err})
	return true
}

// apply copies the next n copies of an order, checking on both sides that the
// blocks still belong to the transfer.
func (s *sim) apply(a *agent, m *moving, n int) error {
	o := m.order
	target := s.find(o.Peer.Host)
	source, registered := a.memory[o.Source]
	switch {
	case m.cut:
		return errors.New("session has ended")
	case target.shape.epoch != o.Epoch || string(o.Address) != target.shape.host:
		return errors.New("session of another incarnation")
	case !registered:
		return errors.New("source memory is gone")
	case target.memory[o.Target] == nil:
		return errors.New("target memory is gone")
	}
	if _, refused := target.refused[o.Transfer]; refused {
		return errors.New("revoked")
	}
	if s.faults && !s.calm && s.rng.IntN(60) == 0 {
		return errors.New("the wire broke")
	}
	for ; n > 0 && m.applied < len(o.Copies); n-- {
		c := o.Copies[m.applied]
		m.applied++
		for i := range int64(c.Count) {
			from, to := c.Src+i*c.SrcStride, c.Dst+i*c.DstStride
			s.checkOwner(a, o.WriterDP, o.WriterTP, o.Transfer, from, c.Length)
			s.checkOwner(target, o.ReaderDP, o.ReaderTP, o.Transfer, to, c.Length)
			if s.wrong != nil {
				return s.wrong
			}
			m.bytes += int64(copy(target.memory[o.Target][to:to+c.Length], source[from:from+c.Length]))
		}
	}
	return nil
}

// stray is a copy of a failed order that has left the writer.
type stray struct {
	order session.CopyOrder
	copy  kvlayout.Copy
}

// abandon leaves the next copy of a failed order with the target, which may place
// it at any time until it has revoked the transfer.
func (s *sim) abandon(m *moving) {
	target := s.find(m.order.Peer.Host)
	_, refused := target.refused[m.order.Transfer]
	if refused || target.shape.epoch != m.order.Epoch || target.memory[m.order.Target] == nil || m.applied == len(m.order.Copies) {
		return
	}
	target.strays = append(target.strays, stray{m.order, m.order.Copies[m.applied]})
}

// land places a stray.
func (s *sim) land() bool {
	a := s.pick(func(a *agent) bool { return len(a.strays) > 0 })
	if a == nil {
		return false
	}
	i := s.rng.IntN(len(a.strays))
	o, c := a.strays[i].order, a.strays[i].copy
	a.strays = slices.Delete(a.strays, i, i+1)
	if a.memory[o.Target] == nil {
		return true
	}
	for i := range int64(c.Count) {
		s.checkOwner(a, o.ReaderDP, o.ReaderTP, o.Transfer, c.Dst+i*c.DstStride, c.Length)
	}
	return true
}

// checkOwner holds a copy to the blocks of its own transfer.
func (s *sim) checkOwner(a *agent, dp, tp int, transfer string, at, length int64) {
	region := a.engine.region(dp, tp, at)
	if region == nil || at+length > region.End() {
		s.violation("%s: bytes %d..%d of %s are in no layer of rank %d/%d", a.shape.host, at, at+length, transfer, dp, tp)
		return
	}
	for _, byteAt := range []int64{at, at + length - 1} {
		block := int32((byteAt - region.Offset) / region.BlockStride)
		if owner := a.engine.owner[dp][block]; owner != transfer {
			s.violation("%s: a copy of %s touches block %d of dp %d, which belongs to %q", a.shape.host, transfer, block, dp, owner)
		}
	}
}

// answerRevoke says that nobody writes any more. Orders that come later are refused,
// and strays are thrown away.
func (s *sim) answerRevoke() bool {
	a := s.pick(func(a *agent) bool { return len(a.revokes) > 0 })
	if a == nil {
		return false
	}
	id := a.revokes[0]
	a.revokes = a.revokes[1:]
	a.barred[id] = struct{}{}
	a.strays = slices.DeleteFunc(a.strays, func(t stray) bool { return t.order.Transfer == id })
	s.step(a, session.Revoked{Transfer: id})
	return true
}

// checkQuiet: blocks are reported free while no copy can touch them.
func (s *sim) checkQuiet(a *agent, id string) {
	for _, t := range a.strays {
		if t.order.Transfer == id && a.memory[t.order.Target] != nil {
			s.violation("%s: blocks of %s are free while copy order %d may still be placed", a.shape.host, id, t.order.ID)
		}
	}
	for _, from := range s.agents {
		for _, m := range from.orders {
			if m.order.Transfer != id {
				continue
			}
			if from == a {
				s.violation("%s: blocks of %s are free while copy order %d is open", a.shape.host, id, m.order.ID)
			}
			_, barred := a.barred[id]
			if m.order.Peer.Host == a.shape.host && m.order.Epoch == a.shape.epoch && !barred {
				s.violation("%s: blocks of %s are free while %s has copy order %d open", a.shape.host, id, from.shape.host, m.order.ID)
			}
		}
	}
}

// content is byte k of the row of a token, as prefill computes it.
func content(id string, layer, head, token int, k int64) byte {
	h := uint32(2166136261)
	for _, b := range []byte(id) {
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
		memory := a.memory[a.engine.memoryID(r.dp, tp)]
		for _, region := range a.engine.regions(r.dp, tp) {
			eachRow(a.shape, []kvlayout.Region{region}, -1, tp, r.tokens, r.blocks, func(head, token int, at, length int64) {
				for k := range length {
					if want := content(r.id, region.Layer, head, token, k); token >= r.first && memory[at+k] != want {
						s.violation("%s: %s is done, but layer %d head %d token %d at rank %d/%d is wrong at byte %d: %d instead of %d",
							a.shape.host, r.id, region.Layer, head, token, r.dp, tp, k, memory[at+k], want)
						return
					}
				}
			})
		}
	}
}

// notice is what the engine hears.
func (s *sim) notice(a *agent, n session.Notice) {
	id := noticeID(n.Message)
	r := a.engine.requests[id]
	if r == nil {
		s.violation("%s: %s is told %s of a transfer that it never had", a.shape.host, connText(n.Conn), noticeText(n.Message))
		return
	}
	if _, lost := r.lost[n.Conn]; lost || !a.engine.up[n.Conn] {
		s.violation("%s: %s is told %s, but its connection is a new one or down", a.shape.host, connText(n.Conn), noticeText(n.Message))
	}
	if n.Conn.Kind == kvproto.Worker {
		s.workerTold(a, r, n)
		return
	}
	s.schedulerTold(a, r, n)
}

func (s *sim) workerTold(a *agent, r *request, n session.Notice) {
	if before, twice := r.told[n.Conn]; twice {
		s.violation("%s: %s is told %s after %s", a.shape.host, connText(n.Conn), noticeText(n.Message), before)
	}
	switch n.Message.(type) {
	case kvproto.Done, kvproto.Failed:
	default:
		s.violation("%s: a worker is told %s", a.shape.host, noticeText(n.Message))
	}
	r.told[n.Conn] = noticeText(n.Message)
}

func (s *sim) schedulerTold(a *agent, r *request, n session.Notice) {
	_, quiet := n.Message.(kvproto.Quiet)
	_, released := n.Message.(kvproto.Released)
	_, done := n.Message.(kvproto.Done)
	prefill := a.shape.role == kvlayout.Prefill
	switch {
	case quiet && !r.abortSent, !quiet && !r.blocksSent:
		s.violation("%s: the scheduler is told %s unasked", a.shape.host, noticeText(n.Message))
	case prefill && done, !prefill && released:
		s.violation("%s: the %s scheduler is told %s", a.shape.host, a.shape.role, noticeText(n.Message))
	case r.answer != "" && (!quiet || r.answer == noticeText(n.Message)):
		s.violation("%s: the scheduler is told %s after %s", a.shape.host, noticeText(n.Message), r.answer)
	}
	first := r.answer == ""
	r.answer = noticeText(n.Message)
	if !first {
		return
	}
	s.checkQuiet(a, r.id)
	if done {
		s.checkRows(a, r)
	}
	if !prefill {
		if done {
			s.done++
		} else {
			s.failed++
		}
	}
	a.engine.free(r, a.memory)
}

func noticeID(m kvproto.Message) string {
	switch m := m.(type) {
	case kvproto.Done:
		return m.Transfer
	case kvproto.Failed:
		return m.Transfer
	case kvproto.Quiet:
		return m.Transfer
	case kvproto.Released:
		return m.Transfer
	}
	return ""
}
