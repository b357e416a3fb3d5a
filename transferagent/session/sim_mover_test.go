package session_test

import (
	"errors"
	"slices"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/session"
)

// A writer checks its lease before each batch; it is renewed all the time while both
// agents run and reach each other. Who can't ask a writer to stop waits for the lease,
// and the margin on top.
const (
	lease  = 5 * time.Second
	margin = time.Second
)

// memory is the KV memory of one rank of an engine. It stays with the engine whatever
// agent it is registered at, and under whatever number.
type memory struct {
	bytes  []byte
	engine *engine
	dp, tp int
	dead   bool // its process has ended: what is written there harms nobody
}

// moverSession is what a writer's mover has with a reader's: two incarnations.
type moverSession struct {
	writer, reader           *agent
	writerEpoch, readerEpoch uint64
	until                    time.Time // end of the lease, zero while it is renewed
	over                     bool      // as the writer knows
}

// moving is a copy order under way.
type moving struct {
	order   session.CopyOrder
	session *moverSession
	target  *memory // once the session has found it
	applied int     // of its copies
	bytes   int64
	slow    bool
	barred  bool // the reader has told the writer that the transfer is revoked
}

// errRevoked is what a writer is told of a transfer that decode has ended.
var errRevoked = errors.New("revoked")

var errStalled = errors.New("nothing moves")

func (s *sim) newMoving(a *agent, o session.CopyOrder) *moving {
	reader := s.find(o.Peer.Host)
	if string(o.Address) != o.Peer.Host {
		s.violation("%s: copy order %d goes to mover %q of %s", a.shape.host, o.ID, o.Address, o.Peer.Host)
	}
	key := [2]string{a.shape.host, reader.shape.host}
	x := s.sessions[key]
	if x == nil || x.over || x.writerEpoch != a.shape.epoch || x.readerEpoch != o.Epoch {
		x = &moverSession{writer: a, reader: reader, writerEpoch: a.shape.epoch, readerEpoch: o.Epoch}
		if !s.connected(x) {
			x.until = s.now // it can't begin
		}
		s.sessions[key] = x
	}
	return &moving{order: o, session: x, slow: s.faults && s.rng.IntN(5) == 0}
}

// connected says whether both ends run, are who they were and reach each other.
func (s *sim) connected(x *moverSession) bool {
	return !x.over && x.writer.runs() && x.reader.runs() && !s.cuts[pairOf(x.writer.shape.host, x.reader.shape.host)] &&
		x.writer.shape.epoch == x.writerEpoch && x.reader.shape.epoch == x.readerEpoch
}

// runOut lets a lease begin to run out.
func (s *sim) runOut(x *moverSession) {
	if x.until.IsZero() {
		x.until = s.now.Add(lease)
	}
}

func (s *sim) disconnect(a *agent) {
	for _, x := range s.sessions {
		if x.writer == a || x.reader == a {
			s.runOut(x)
		}
	}
}

// reconnect renews the leases that have not run out; a session whose has is over.
func (s *sim) reconnect() {
	for _, x := range s.sessions {
		switch {
		case x.until.IsZero() || !s.connected(x):
		case s.now.Before(x.until):
			x.until = time.Time{}
		default:
			x.over = true
		}
	}
}

// leases are the times that somebody waits for.
func (s *sim) leases() []time.Time {
	var times []time.Time
	for _, a := range s.agents {
		for _, m := range a.orders {
			if !m.session.until.IsZero() {
				times = append(times, m.session.until)
			}
		}
		for _, r := range a.engine.requests {
			if r.restless && !r.freed && !r.quietAt.IsZero() {
				times = append(times, r.quietAt)
			}
		}
	}
	return times
}

// move carries on some copy order, or answers one.
func (s *sim) move() bool {
	for _, i := range s.rng.Perm(len(s.agents)) {
		a := s.agents[i]
		if !a.runs() {
			continue
		}
		for _, j := range s.rng.Perm(len(a.orders)) {
			if m := a.orders[j]; (!m.slow || s.calm || s.rng.IntN(8) == 0) && s.carryOn(a, j) {
				return true
			}
		}
	}
	return false
}

// carryOn reports false when the order is stuck.
func (s *sim) carryOn(a *agent, i int) bool {
	m := a.orders[i]
	err := s.apply(a, m, 1+s.rng.IntN(3))
	switch {
	case errors.Is(err, errStalled):
		s.tally["order stalled"]++
		return false
	case err == nil && m.applied < len(m.order.Copies):
		if s.faults && !s.calm && s.rng.IntN(20) == 0 {
			s.ambush(m)
		}
		return true
	}
	a.orders = slices.Delete(a.orders, i, i+1)
	if err != nil {
		s.abandon(m)
	}
	revoked := errors.Is(err, errRevoked)
	if err != nil && !revoked {
		s.broken[m.order.Transfer] = true
	}
	s.answer(a, session.Copied{ID: m.order.ID, Moved: m.bytes, Err: err, Revoked: revoked})
	return true
}

// answer tells the machine what its mover has done, at once or late.
func (s *sim) answer(a *agent, ev session.Event) {
	if s.faults && s.rng.IntN(3) == 0 {
		a.late = append(a.late, ev)
		return
	}
	_ = s.step(a, ev)
}

func (s *sim) answerLate() bool {
	a := s.pick(func(a *agent) bool { return a.runs() && len(a.late) > 0 })
	if a == nil {
		return false
	}
	i := s.rng.IntN(len(a.late))
	ev := a.late[i]
	a.late = slices.Delete(a.late, i, i+1)
	_ = s.step(a, ev)
	return true
}

// apply copies the next n copies of an order, checking on both sides that the
// blocks still belong to the transfer.
func (s *sim) apply(a *agent, m *moving, n int) error {
	source := a.memory[m.order.Source]
	if source == nil {
		return errors.New("source memory is gone")
	}
	if err := s.mayWrite(m); err != nil {
		return err
	}
	if s.faults && !s.calm && s.rng.IntN(25) == 0 {
		s.tally["copy failed"]++
		return errors.New("the wire broke")
	}
	for ; n > 0 && m.applied < len(m.order.Copies); n-- {
		c := m.order.Copies[m.applied]
		m.applied++
		for i := range int64(c.Count) {
			from, to := c.Src+i*c.SrcStride, c.Dst+i*c.DstStride
			s.checkOwner(source, m.order.Transfer, from, c.Length)
			s.checkOwner(m.target, m.order.Transfer, to, c.Length)
			if s.wrong != nil {
				return s.wrong
			}
			m.bytes += int64(copy(m.target.bytes[to:to+c.Length], source.bytes[from:from+c.Length]))
		}
	}
	return nil
}

// mayWrite is what a writer looks at before a batch. Without a connection it can't
// know what the reader wants, and goes by its lease.
func (s *sim) mayWrite(m *moving) error {
	x := m.session
	switch {
	case x.over:
		return errors.New("session has ended")
	case m.barred:
		return errRevoked
	case s.connected(x):
		return s.reach(m)
	case !s.now.Before(x.until):
		return errors.New("the lease has run out")
	case s.mapped && m.target != nil:
		if x.reader.dead || x.reader.shape.epoch != x.readerEpoch {
			s.tally["write into the memory of a dead agent"]++
		}
		return nil
	}
	return errStalled
}

// reach finds the target, and learns there what the reader has revoked. A mapped
// writer that has begun may not have come to that yet; one that begins has, as it
// hears of memories and of revoked transfers in order.
func (s *sim) reach(m *moving) error {
	reader, o := m.session.reader, m.order
	begins := m.target == nil
	if begins {
		m.target = reader.memory[o.Target]
	}
	if m.target == nil || reader.memory[o.Target] != m.target {
		return errors.New("target memory is gone")
	}
	_, barred := reader.barred[o.Transfer]
	_, refused := reader.refused[o.Transfer]
	if barred || refused && (!s.mapped || begins || s.rng.IntN(2) == 0) {
		return errRevoked
	}
	return nil
}

// stillWrites says whether a copy of an order may yet be placed.
func (s *sim) stillWrites(m *moving) bool {
	x := m.session
	switch {
	case x.over, m.barred:
		return false
	case s.connected(x):
		_, barred := x.reader.barred[m.order.Transfer]
		return !barred && (m.target == nil || x.reader.memory[m.order.Target] == m.target)
	}
	return s.mapped && m.target != nil && s.now.Before(x.until)
}

// stray is a copy of a failed order that has left the writer.
type stray struct {
	order  session.CopyOrder
	copy   kvlayout.Copy
	target *memory
}

// abandon leaves the next copy of a failed order with the target, which may place
// it at any time until it has revoked the transfer. Only a stream has such.
func (s *sim) abandon(m *moving) {
	reader, o := m.session.reader, m.order
	_, refused := reader.refused[o.Transfer]
	target := reader.memory[o.Target]
	if s.mapped || refused || reader.dead || reader.shape.epoch != o.Epoch || target == nil || m.applied == len(o.Copies) {
		return
	}
	reader.strays = append(reader.strays, stray{o, o.Copies[m.applied], target})
}

// land places a stray.
func (s *sim) land() bool {
	a := s.pick(func(a *agent) bool { return a.runs() && len(a.strays) > 0 })
	if a == nil {
		return false
	}
	i := s.rng.IntN(len(a.strays))
	t := a.strays[i]
	a.strays = slices.Delete(a.strays, i, i+1)
	s.tally["stray placed"]++
	for i := range int64(t.copy.Count) {
		s.checkOwner(t.target, t.order.Transfer, t.copy.Dst+i*t.copy.DstStride, t.copy.Length)
	}
	return true
}

// answerRevoke says that nobody writes any more. Orders that come later are refused,
// and strays are thrown away. A writer that can't be asked has a lease that is waited for.
func (s *sim) answerRevoke() bool {
	for _, i := range s.rng.Perm(len(s.agents)) {
		a := s.agents[i]
		if !a.runs() {
			continue
		}
		for j, id := range a.revokes {
			if s.unasked(a, id) {
				s.tally["revoke waits for a lease"]++
				continue
			}
			a.revokes = slices.Delete(a.revokes, j, j+1)
			a.barred[id] = struct{}{}
			for _, m := range s.ordersTo(a) {
				m.barred = m.barred || m.order.Transfer == id && (s.connected(m.session) || !s.stillWrites(m))
			}
			a.strays = slices.DeleteFunc(a.strays, func(t stray) bool { return t.order.Transfer == id })
			s.answer(a, session.Revoked{Transfer: id})
			return true
		}
	}
	return false
}

// unasked says whether a writer of the transfer still writes and can't be told.
func (s *sim) unasked(a *agent, id string) bool {
	for _, m := range s.ordersTo(a) {
		if m.order.Transfer == id && !s.connected(m.session) && s.stillWrites(m) {
			return true
		}
	}
	return false
}

// ordersTo lists the open orders to this incarnation of an agent.
func (s *sim) ordersTo(a *agent) []*moving {
	var open []*moving
	for _, from := range s.agents {
		for _, m := range from.orders {
			if m.session.reader == a && m.order.Epoch == a.shape.epoch {
				open = append(open, m)
			}
		}
	}
	return open
}

// unregister takes a memory from an agent: it forgets what was on its way there.
func (a *agent) unregister(mem *memory) {
	for id, m := range a.memory {
		if m == mem {
			delete(a.memory, id)
		}
	}
	a.strays = slices.DeleteFunc(a.strays, func(t stray) bool { return t.target == mem })
}
