package session

import (
	"errors"
	"slices"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// machine is what both roles have: the own engine, the peers, the deadlines, the
// ended transfers and what is to be done.
type machine struct {
	cfg    Config
	engine ownEngine
	peers  map[Peer]*peerState
	alarms alarms
	past   past
	out    Ready
	seq    uint64 // of the next transfer
}

func newMachine(cfg Config, role kvlayout.Role) machine {
	cfg.Self.Role = role
	cfg.Limits = cfg.Limits.defaulted()
	if cfg.Plan == nil {
		cfg.Plan = kvlayout.WritePlan
	}
	return machine{
		cfg:    cfg,
		engine: ownEngine{dpStart: cfg.Self.DPStart},
		peers:  map[Peer]*peerState{},
	}
}

// Ready returns and forgets what is to be done since the last call.
func (m *machine) Ready() Ready {
	out := m.out
	m.out = Ready{}
	return out
}

// Deadline is the earliest time at which a Tick is due.
func (m *machine) Deadline() (time.Time, bool) { return m.alarms.next() }

// tp is the number of ranks of one data parallel rank here.
func (m *machine) tp() int { return m.cfg.Self.Layout.Defaulted().TP }

func (m *machine) dpLocal() int { return m.cfg.Self.Layout.Defaulted().DPLocal }

// say sends a message to the engine, unless the connection is down.
func (m *machine) say(c Conn, message kvproto.Message) {
	if m.engine.has(c) {
		m.out.Notices = append(m.out.Notices, Notice{Conn: c, Message: message})
	}
}

// tellWorkers tells the workers of a data parallel rank how a transfer ended, but
// those in lost: their connections have no part in it.
func (m *machine) tellWorkers(r *record, dp int, lost map[Conn]struct{}) {
	for tp := range m.tp() {
		c := Conn{Kind: kvproto.Worker, DP: dp, TP: tp}
		if _, gone := lost[c]; !gone {
			m.tellWorker(r, c)
		}
	}
}

// tellWorker tells one worker how a transfer ended, once on each connection: the next
// one is that of another process, or of one that has forgotten.
func (m *machine) tellWorker(r *record, c Conn) {
	if !m.engine.has(c) || r.settled || r.told[c.TP] == m.engine.up[c] {
		return
	}
	if r.told == nil {
		r.told = map[int]uint64{}
	}
	r.told[c.TP] = m.engine.up[c]
	m.say(c, r.lastWord())
}

func (m *machine) sayScheduler(dp int, lost map[Conn]struct{}, message kvproto.Message) {
	c := Conn{Kind: kvproto.Scheduler, DP: dp}
	if _, gone := lost[c]; !gone {
		m.say(c, message)
	}
}

func (m *machine) send(to Peer, message any) {
	m.out.Messages = append(m.out.Messages, Outgoing{Peer: to, Message: message})
}

// meant refuses messages for another incarnation than this one; 0 is for any.
func (m *machine) meant(epoch uint64) error {
	if epoch != 0 && epoch != m.cfg.Self.Epoch {
		return wrongf(OtherEpoch, "a message is meant for epoch %d, this is %d", epoch, m.cfg.Self.Epoch)
	}
	return nil
}

// checkSender refuses messages of connections that are down or of the wrong kind.
func (m *machine) checkSender(c Conn, kind string, message kvproto.Message) error {
	if c.Kind != kind {
		return wrongf(WrongConnection, "%s does not belong on a %s connection", message.Type(), c.Kind)
	}
	if !m.engine.has(c) {
		return wrongf(NoConnection, "the engine has no %s connection dp %d tp %d", c.Kind, c.DP, c.TP)
	}
	return nil
}

func (m *machine) checkMessage(c Conn, kind string, message kvproto.Message, id string) error {
	if err := m.checkSender(c, kind, message); err != nil {
		return err
	}
	return checkID(id)
}

func checkID(id string) error {
	if id == "" || len(id) > kvproto.MaxTransferID {
		return wrongf(BadTransferID, "a transfer id of %d bytes, 1 to %d are allowed", len(id), kvproto.MaxTransferID)
	}
	return nil
}

func checkPeer(p Peer) error {
	const ports = 1 << 16
	if p.Host == "" || p.Handshake <= 0 || p.Handshake >= ports || p.Notify <= 0 || p.Notify >= ports {
		return wrongf(BadAddress, "peer address %q with ports %d and %d", p.Host, p.Handshake, p.Notify)
	}
	return nil
}

// belongsTo refuses data parallel ranks other than the one that had the transfer, or
// that asks first when none had it.
func (r *record) belongsTo(dp int) error {
	if r.dp < 0 {
		r.dp = dp
	}
	if r.dp != dp {
		return wrongf(WrongRank, "transfer %q belonged to dp %d, not to dp %d", r.view.ID, r.dp, dp)
	}
	return nil
}

// failedEarly answers an engine that names a transfer which has ended, or can't
// begin, with what became of it.
func (m *machine) failedEarly(r *record, dp int) {
	r.claimed = true
	scheduler := Conn{Kind: kvproto.Scheduler, DP: dp}
	m.tellWorkers(r, dp, nil)
	if r.failure != nil && r.failure.good {
		m.say(scheduler, kvproto.Released{Transfer: r.view.ID})
		return
	}
	m.say(scheduler, r.lastWord())
}

// overflow remembers a transfer that is one too many as failed, so that whatever its
// engine says of it later finds that end: with less than all of it known, prompts that
// differ would go unnoticed. It is nil when err has another reason.
func (m *machine) overflow(now time.Time, id string, dp, tokens int, err error) *record {
	wrong, ok := errors.AsType[*EventError](err)
	if !ok || wrong.Reason != OverLimit {
		return nil
	}
	r := &record{dp: dp, failure: endingf(RuleTransfersLimit, "%s", wrong.Text), expected: true}
	r.view = Transfer{
		ID: id, Role: m.cfg.Self.Role, State: Broken, Rule: r.failure.rule, Text: r.failure.text,
		Tokens: tokens, Started: now, Ended: now,
	}
	m.remember(r)
	return r
}

// abortEnded answers the abort of a transfer that has ended, after which no worker is
// told of it any more. It reports false when the transfer has not ended.
func (m *machine) abortEnded(c Conn, abort kvproto.Abort) (bool, error) {
	r := m.past.find(abort.Transfer)
	if r == nil {
		return false, nil
	}
	if err := r.belongsTo(c.DP); err != nil {
		return true, err
	}
	r.settled = true
	m.say(c, kvproto.Quiet(abort))
	return true, nil
}

// remember keeps what became of a transfer and tells its end, once.
func (m *machine) remember(r *record) {
	m.past.put(r)
	m.out.Ended = append(m.out.Ended, r.view)
}

// lastWord is what workers are told of an ended transfer.
func (r *record) lastWord() kvproto.Message { return lastWord(r.view.ID, r.failure) }

func lastWord(id string, failure *ending) kvproto.Message {
	if !failure.failed() {
		return kvproto.Done{Transfer: id}
	}
	return kvproto.Failed{Transfer: id, Rule: failure.rule, Text: failure.text}
}

// sameHash reports whether two prompt hashes agree; an empty one says nothing.
func sameHash(a, b []byte) bool { return len(a) == 0 || len(b) == 0 || slices.Equal(a, b) }

// failedReport is a write_failed of this agent, for that incarnation of decode's.
func (m *machine) failedReport(transfer string, to uint64, dp, writer, reader int, bytes int64, why *ending) *moriio.WriteFailed {
	return &moriio.WriteFailed{Transfer: transfer, PDPool: &moriio.Report{
		Epoch: m.cfg.Self.Epoch, PeerEpoch: to, WriterDP: dp, WriterTP: writer, ReaderTP: reader, Bytes: bytes, Rule: why.rule, Text: why.text,
	}}
}
