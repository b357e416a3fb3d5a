package transferagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// Rules under which the KV socket refuses; they are metric labels too.
const (
	ruleHello     = "kv-hello"
	ruleDuplicate = "kv-duplicate"
	ruleFaults    = "kv-faults"
	ruleMemory    = "kv-memory"
	ruleRegions   = "kv-regions"
	ruleOrder     = "kv-order"
	ruleMessage   = "kv-message"
)

// door is what the loop knows of the engine's connections. Only turns touch it,
// but for open and metadata, which say to all whether the engine is complete.
type door struct {
	want   int // connections of a complete engine
	slots  map[session.Conn]*slot
	ready  bool
	faults []string // injected into the current machine

	open     atomic.Bool                 // ready, for readers outside the loop
	metadata atomic.Pointer[description] // the handshake's answer while ready, else nil
}

// slot is one connection of the engine. It stays taken after the connection's
// end until no copy touches the memory that came with it.
type slot struct {
	who   session.Conn
	hello kvproto.Hello
	out   *queue[word]
	shut  context.CancelCauseFunc // ends the connection
	rank  *moriio.AgentRank       // of a worker whose regions are complete
	names []string                // the engine's names of rank.Regions
	// early holds messages that came before the engine was complete, until it is:
	// nothing orders the connections of an engine among each other.
	early    []kvproto.Message
	admitted bool
	gone     bool
	freed    chan struct{} // closed when another connection may take the slot
}

// word is a message to the engine. Since is when the last that it tells of came, for
// a done.
type word struct {
	message kvproto.Message
	since   time.Time
}

// maxEarly bounds slot.early.
const maxEarly = 256

// refusal is why the engine's message or connection is refused.
type refusal struct{ rule, text string }

func (r *refusal) Error() string { return r.text }

func refusef(rule, format string, args ...any) *refusal {
	return &refusal{rule: rule, text: fmt.Sprintf(format, args...)}
}

// refuse answers a wrong message.
func (d *door) refuse(who session.Conn, m kvproto.Message, rule string, err error) {
	if s := d.slots[who]; s != nil {
		s.send(refused(m, rule, err.Error()))
	}
}

// refused is the answer to a wrong message; m is nil when it could not be read. It
// names the transfer, so that the engine does not wait for another answer.
func refused(m kvproto.Message, rule, text string) kvproto.Refused {
	r := kvproto.Refused{Rule: rule, Text: text, Transfer: kvproto.TransferOf(m)}
	if m != nil {
		r.Message = m.Type()
	}
	return r
}

// send queues a message for the engine. A connection whose queue is full is
// closed: an engine that reads this slowly would miss the end of its transfers.
func (s *slot) send(m kvproto.Message) { s.tell(word{message: m}) }

func (s *slot) tell(w word) {
	if err := s.out.put(w); err != nil {
		s.shut(fmt.Errorf("%w: %w", errSlowEngine, err))
	}
}

// errSlowEngine ends a connection whose engine leaves too much unread, or for too long.
var errSlowEngine = errors.New("engine does not read its messages")

// notice sends what the machine tells the engine.
func (l *loop) notice(n session.Notice) {
	s := l.door.slots[n.Conn]
	if s == nil || s.gone {
		return
	}
	w := word{message: n.Message}
	if _, done := n.Message.(kvproto.Done); done && l.self.Role == kvlayout.Decode {
		w.since = l.cause
	}
	s.tell(w)
}

// attach gives a slot to a new connection and welcomes it. busy is not nil while
// another connection has the slot, one that lets go of its memory, or, with a
// refusal, one whose end is not known yet; and while transfers of the one before are
// not quiet. The caller waits for it and tries again.
func (l *loop) attach(s *slot, epoch uint64) (busy <-chan struct{}, err *refusal) {
	d := &l.door
	if old := d.slots[s.who]; old != nil {
		if old.gone {
			return old.freed, nil
		}
		return old.freed, refusef(ruleDuplicate, "%s is connected already", name(s.who))
	}
	if l.self.Role == kvlayout.Decode && l.machine.Restless(s.who) {
		// The engine takes its welcome for the word that nobody writes into its blocks.
		return l.nextEnd(), nil
	}
	if !slices.Equal(s.hello.Faults, d.faults) {
		if busy, err := l.inject(s.hello.Faults); busy != nil || err != nil {
			return busy, err
		}
	}
	d.slots[s.who] = s
	l.metrics.connections.WithLabelValues(s.who.Kind).Inc()
	s.send(kvproto.Welcome{Epoch: epoch, Linger: min(l.mover.Linger(), kvproto.MaxLinger), Silence: longestSilence(l.config.Timeouts)})
	l.complete()
	return nil, nil
}

// longestSilence is the longest that nothing may be to say of a transfer: no more of it can come
// together than each of its deadlines once.
func longestSilence(t agentconfig.Timeouts) time.Duration {
	return min(handshakeWithin+time.Duration(t.Defer+t.ReceiveAbort+t.Transfer)*time.Second, kvproto.MaxSilence)
}

// inject replaces the machine by one with other faults, while nothing uses it.
// busy is as for attach.
func (l *loop) inject(faults []string) (busy <-chan struct{}, err *refusal) {
	for _, s := range l.door.slots {
		busy = s.freed
		if !s.gone {
			return busy, refusef(ruleFaults, "faults %q differ from %q of the engine that is being served", faults, l.door.faults)
		}
	}
	if busy != nil {
		return busy, nil
	}
	if n := len(l.machine.Transfers()); n > 0 {
		return nil, refusef(ruleFaults, "faults %q can't be injected while %d transfers of the last engine end", faults, n)
	}
	m, failed := l.build(faults)
	if failed != nil {
		return nil, refusef(ruleFaults, "%v", failed)
	}
	l.machine, l.door.faults = m, slices.Clone(faults)
	if len(faults) > 0 {
		l.log.Warn("faults are injected into transfers", "faults", faults)
	}
	return nil, nil
}

// mapped says that a worker's regions are complete and registered.
func (l *loop) mapped(s *slot, rank moriio.AgentRank, names []string) {
	s.rank, s.names = &rank, names
	l.complete()
}

// complete tells the machine once all connections and regions are there.
func (l *loop) complete() {
	d := &l.door
	if d.ready || len(d.slots) != d.want {
		return
	}
	var workers []*slot
	for _, s := range d.slots {
		switch {
		case s.gone:
			return
		case s.who.Kind == kvproto.Scheduler:
		case s.rank == nil:
			return
		default:
			workers = append(workers, s)
		}
	}
	slices.SortFunc(workers, func(a, b *slot) int {
		return cmp.Or(cmp.Compare(a.rank.DP, b.rank.DP), cmp.Compare(a.rank.TP, b.rank.TP))
	})
	ranks := make([]moriio.AgentRank, len(workers))
	for i, s := range workers {
		ranks[i] = *s.rank
	}
	metadata, err := l.describe(ranks, workers[0].names)
	if err != nil {
		l.log.Error("the engine's memory can't be described to peers", "error", err)
		return
	}
	d.ready = true
	d.metadata.Store(metadata)
	d.open.Store(true)
	l.raise(session.EngineReady{Ranks: ranks})
	for _, s := range d.slots {
		for _, m := range s.early {
			l.raise(session.EngineMessage{Conn: s.who, Message: m})
		}
		s.early, s.admitted = nil, true
	}
	l.log.Info("engine is ready", "ranks", len(ranks))
}

// fromEngine takes a message for the machine.
func (l *loop) fromEngine(ctx context.Context, s *slot, m kvproto.Message) {
	switch {
	case l.turnDown(ctx, s, m):
	case s.admitted:
		l.raise(session.EngineMessage{Conn: s.who, Message: m})
	case len(s.early) < maxEarly:
		s.early = append(s.early, m)
	default:
		l.metrics.refuse(ruleOrder)
		l.door.refuse(s.who, m, ruleOrder, fmt.Errorf("%s before all connections of the engine are ready", m.Type()))
	}
}

// detach says that a connection has ended. Its slot stays taken until free.
func (l *loop) detach(s *slot, why error) {
	d := &l.door
	s.gone = true
	s.out.finish()
	l.metrics.connections.WithLabelValues(s.who.Kind).Dec()
	l.log.Info("engine connection ended", "connection", name(s.who), "error", why)
	if d.ready {
		d.ready = false
		d.open.Store(false)
		d.metadata.Store(nil)
		if l.self.Role == kvlayout.Decode {
			// Peers hold descriptors of memory that goes: they have to shake hands
			// again. Nobody holds any of prefill's, whose other writers go on.
			l.disown()
		}
	}
	if s.admitted {
		l.raise(session.EngineGone{Conn: s.who})
	}
}

// withdraw gives the slot of a connection back that nobody serves.
func (l *loop) withdraw(s *slot, why error) {
	if l.door.slots[s.who] == s {
		l.detach(s, why)
		l.free(s)
	}
}

// free makes room for the next connection of the slot's rank.
func (l *loop) free(s *slot) {
	if l.door.slots[s.who] == s {
		delete(l.door.slots, s.who)
	}
	close(s.freed)
}

// name is a connection in words.
func name(c session.Conn) string {
	if c.Kind == kvproto.Scheduler {
		return fmt.Sprintf("scheduler of data parallel rank %d", c.DP)
	}
	return fmt.Sprintf("worker of data parallel rank %d, tensor parallel rank %d", c.DP, c.TP)
}

// LogValue implements slog.LogValuer.
func (r *refusal) LogValue() slog.Value {
	return slog.GroupValue(slog.String("rule", r.rule), slog.String("text", r.text))
}
