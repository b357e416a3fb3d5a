package session

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// life is what a live transfer has in either role.
type life struct {
	id      string
	seq     uint64 // tells its age
	dp      int    // local
	started time.Time
	expect  *kvproto.Expect

	failure *ending           // why the whole ends
	cause   *ending           // what went wrong first, in the whole or in a part
	aborted bool              // by the own engine, which awaits Quiet
	lost    map[Conn]struct{} // connections that have no part in it, being newer than theirs
	blocks  int               // that are kept of it
}

func (l *life) self() *life { return l }

// fail keeps the first ending of a transfer.
func (l *life) fail(why *ending) {
	if l.failure == nil {
		l.failure = why
	}
	l.blame(why)
}

// blame keeps what went wrong first: that is what is reported.
func (l *life) blame(why *ending) {
	if l.cause == nil {
		l.cause = why
	}
}

// transfer is a live transfer of one role.
type transfer interface {
	self() *life
	view(dpStart int) Transfer
}

// role is what prefill and decode do each in its own way.
type role[T transfer] interface {
	// begin makes the record of a transfer.
	begin(now time.Time, id string, dp int) T
	// advance does all that can be done for a transfer after any change.
	advance(now time.Time, t T)
	// loseConn ends what needs a connection of the own engine that is gone.
	loseConn(now time.Time, c Conn)
}

// table holds the live transfers, and does with them what both roles do alike.
type table[T transfer] struct {
	machine
	transfers map[string]T
	blocks    int // that are kept of all of them
	role      role[T]
}

func newTable[T transfer](m machine, r role[T]) table[T] {
	return table[T]{machine: m, transfers: map[string]T{}, role: r}
}

// newLife makes the common part of a transfer's record.
func (m *table[T]) newLife(now time.Time, id string, dp int) life {
	m.seq++
	return life{id: id, seq: m.seq, dp: dp, started: now, lost: map[Conn]struct{}{}}
}

// find returns the live transfer of a data parallel rank, or begins it.
func (m *table[T]) find(now time.Time, id string, dp int) (t T, err error) {
	t, live := m.transfers[id]
	switch {
	case !live && len(m.transfers) >= m.cfg.Limits.Transfers:
		return t, wrongf(OverLimit, "transfer %q is one more than the %d that may be live", id, m.cfg.Limits.Transfers)
	case !live:
		return m.role.begin(now, id, dp), nil
	case t.self().dp != dp:
		return t, wrongf(WrongRank, "transfer %q belongs to dp %d, not to dp %d", id, t.self().dp, dp)
	}
	return t, nil
}

// keep accounts for blocks of a transfer, or says why they are too many.
func (m *table[T]) keep(l *life, blocks int) *ending {
	if n := m.blocks + blocks; n > m.cfg.Limits.LiveBlocks {
		return endingf(RuleBlocksLimit, "with its %d blocks the live transfers would have %d, all together may have %d", blocks, n, m.cfg.Limits.LiveBlocks)
	}
	l.blocks += blocks
	m.blocks += blocks
	return nil
}

// discard says that the blocks of a transfer are kept no more.
func (m *table[T]) discard(l *life) {
	m.blocks -= l.blocks
	l.blocks = 0
}

// abort ends a transfer early. It is answered by Quiet once no copy touches its
// blocks; at once for a transfer that is not known, which then can't begin any more.
func (m *table[T]) abort(now time.Time, c Conn, a kvproto.Abort) error {
	if err := m.checkMessage(c, kvproto.Scheduler, a, a.Transfer); err != nil {
		return err
	}
	if ended, err := m.abortEnded(c, a); ended {
		return err
	}
	t, live := m.transfers[a.Transfer]
	if !live {
		// No room is needed for it, so the limit does not count.
		t = m.role.begin(now, a.Transfer, c.DP)
	}
	switch l := t.self(); {
	case l.dp != c.DP:
		return wrongf(WrongRank, "transfer %q belongs to dp %d, not to dp %d", a.Transfer, l.dp, c.DP)
	case l.aborted:
		return wrongf(Duplicate, "transfer %q was aborted before", a.Transfer)
	default:
		l.aborted = true
		delete(l.lost, c) // who asks is answered
		l.fail(endingf(RuleAborted, "the %s engine aborted it", m.cfg.Self.Role))
	}
	m.role.advance(now, t)
	return nil
}

// engineReady takes the ranks of an engine that is up. Connections whose memory
// is another one than before are taken for gone first.
func (m *table[T]) engineReady(now time.Time, ev EngineReady) error {
	ranks, err := m.cfg.checkRanks(ev.Ranks)
	if err != nil {
		return err
	}
	for _, c := range m.engine.lost(ranks) {
		m.role.loseConn(now, c)
	}
	m.engine.ready(ranks)
	return nil
}

func (m *table[T]) engineGone(now time.Time, ev EngineGone) error {
	if !m.engine.has(ev.Conn) {
		return wrongf(NoConnection, "the engine had no %s connection dp %d tp %d to lose", ev.Conn.Kind, ev.Conn.DP, ev.Conn.TP)
	}
	m.role.loseConn(now, ev.Conn)
	return nil
}

// byAge gives the live transfers, the oldest first, but for those that have ended by
// their turn: what becomes of one may make room for others.
func (m *table[T]) byAge() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, t := range slices.SortedFunc(maps.Values(m.transfers), func(a, b T) int { return cmp.Compare(a.self().seq, b.self().seq) }) {
			if now, live := m.transfers[t.self().id]; live && now.self() == t.self() && !yield(t) {
				return
			}
		}
	}
}

// Transfers lists the live ones, the oldest first.
func (m *table[T]) Transfers() []Transfer {
	views := make([]Transfer, 0, len(m.transfers))
	for t := range m.byAge() {
		views = append(views, t.view(m.cfg.Self.DPStart))
	}
	return views
}

// Restless says that a transfer is live which the connection has no part in any more.
func (m *table[T]) Restless(c Conn) bool {
	for _, t := range m.transfers {
		if _, lost := t.self().lost[c]; lost {
			return true
		}
	}
	return false
}

// Live is the number of live transfers.
func (m *table[T]) Live() int { return len(m.transfers) }
