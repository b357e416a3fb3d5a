package session

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// prefillTransfer is a live transfer of a prefill pod. It begins with the first
// message of the own engine that names it.
type prefillTransfer struct {
	life
	hold    *kvproto.Hold
	heldAt  time.Time
	target  *target
	writers []*writer // by tp
	touched bool      // a worker has saved something: the workers await an end

	waiting bool      // for a handshake
	reachBy time.Time // end of that wait
	asked   bool      // a fresh handshake was asked for, as the cached one lacked ranks
	bound   bool      // who writes to whom is known
	planned bool      // the plans of the first layer could be made
	decode  *metadata // of the peer, as of bound

	released bool      // by decode
	inflight int       // copy orders without an answer
	queued   int       // flows that wait for room
	moving   time.Time // since when a layer has been to be copied
	lastSave time.Time // of any worker
}

// target is where decode wants the transfer.
type target struct {
	peer    Peer
	epoch   uint64
	dp      int // of decode, global
	prefill int // dp that is asked, global
	blocks  []int32
	first   int
	tokens  int
	hash    []byte
	at      time.Time
	told    bool // a write_failed for all ranks was sent
}

// writer is one worker's part.
type writer struct {
	tp     int
	memory *memory // nil when it was lost
	saved  []int   // layers, in the order in which they are posted
	done   map[int]struct{}
	sealed bool
	lost   bool
	gone   *ending // when lost
	flows  []*flow // by reader
}

// flow is what one writer does for one reader.
type flow struct {
	writer, reader int // tp
	heads          []kvlayout.HeadRange
	target         *memory
	posted         int  // of the writer's saved layers
	queued         bool // waits for room to post the others
	open           int  // copy orders without an answer
	bytes          int64
	failure        *ending
	ended          time.Time
}

func (p *Prefill) begin(now time.Time, id string, dp int) *prefillTransfer {
	t := &prefillTransfer{life: p.newLife(now, id, dp)}
	for tp := range p.tp() {
		w := &writer{tp: tp, done: map[int]struct{}{}}
		m, ok := p.engine.worker(dp, tp)
		if w.memory = m; !ok {
			w.lose(p.workerLost(dp, tp))
		}
		t.writers = append(t.writers, w)
	}
	for _, c := range p.down(dp) {
		t.lost[c] = struct{}{}
		if c.Kind == kvproto.Scheduler {
			t.fail(p.schedulerLost(dp))
		}
	}
	p.transfers[id] = t
	p.adopt(now, t)
	return t
}

// wellWith reports the ending that holds for a flow: the transfer's, its own, or
// that its worker is gone.
func (t *prefillTransfer) wellWith(w *writer, f *flow) *ending {
	switch {
	case t.failure != nil:
		return t.failure
	case f.failure != nil:
		return f.failure
	case w.lost:
		return w.gone
	}
	return nil
}

func (t *prefillTransfer) tokens() int {
	switch {
	case t.expect != nil:
		return t.expect.Tokens
	case t.hold != nil:
		return t.hold.Tokens
	case t.target != nil:
		return t.target.tokens
	}
	return 0
}

func (t *prefillTransfer) view(dpStart int) Transfer {
	v := Transfer{ID: t.id, Role: kvlayout.Prefill, State: Waiting, Tokens: t.tokens(), Started: t.started}
	if !t.moving.IsZero() {
		v.State = Moving
	}
	if why := t.cause; why != nil {
		v.Rule, v.Text = why.rule, why.text
		if why.failed() {
			v.State = Failing
		}
	}
	for _, w := range t.writers {
		for _, f := range w.flows {
			v.Flows = append(v.Flows, TransferFlow{
				WriterDP: dpStart + t.dp, WriterTP: f.writer, ReaderDP: t.target.dp, ReaderTP: f.reader,
				State: t.flowState(w, f), Bytes: f.bytes, Ended: f.ended,
			})
		}
	}
	return v
}

func (t *prefillTransfer) flowState(w *writer, f *flow) State {
	switch {
	case f.ended.IsZero() && t.wellWith(w, f).failed():
		return Failing
	case !f.ended.IsZero() && f.failure.failed():
		return Broken
	case !f.ended.IsZero():
		return Ended
	case f.posted > 0 || f.queued:
		return Moving
	}
	return Waiting
}

// end reports a quiet transfer to the engine, exactly once, and remembers it.
func (p *Prefill) end(now time.Time, t *prefillTransfer) {
	why := t.cause
	r := &record{dp: t.dp, failure: why, expected: t.expect != nil, claimed: t.hold != nil}
	r.view = t.view(p.cfg.Self.DPStart)
	r.view.Ended = now
	r.view.State = Ended
	if why.failed() {
		r.view.State = Broken
	}
	// Workers that have seen nothing of the transfer yet are told when it is held.
	if t.hold != nil || t.touched {
		p.tellWorkers(r, t.dp, t.lost)
	}
	switch {
	case t.aborted:
		r.settled = true
		p.sayScheduler(t.dp, t.lost, kvproto.Quiet{Transfer: t.id})
	case t.hold == nil:
	case !why.failed():
		p.sayScheduler(t.dp, t.lost, kvproto.Released{Transfer: t.id})
	default:
		p.sayScheduler(t.dp, t.lost, lastWord(t.id, why))
	}
	r.peerTold = t.target != nil
	p.remember(r)
	delete(p.transfers, t.id)
	p.discard(&t.life)
	p.alarms.drop(alarmKey{transfer: t.id})
	if t.target != nil {
		p.leave(now, t.target.peer, t.id)
	}
}

// doneReport is a write_done of this agent.
func (p *Prefill) doneReport(t *prefillTransfer, f *flow) *moriio.WriteDone {
	return &moriio.WriteDone{Transfer: t.id, PDPool: &moriio.Report{
		Epoch: p.cfg.Self.Epoch, PeerEpoch: t.target.epoch, WriterDP: p.engine.global(t.dp), WriterTP: f.writer, ReaderTP: f.reader, Bytes: f.bytes,
	}}
}
