package session

import (
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// decodeTransfer is a live transfer of a decode pod.
type decodeTransfer struct {
	life
	receive *kvproto.Receive
	peer    Peer // from expect if that says it, else from receive

	waiting bool      // for a handshake
	reachBy time.Time // end of that wait
	epoch   uint64    // of prefill, once sent
	sentAt  time.Time // of remote_blocks; zero before
	flows   []*inflow // what is expected, by reader and writer

	sated    bool // nothing was missing, so nobody is asked
	released bool // prefill was told
	revoking bool
	revoked  bool
}

// inflow is what one writer has to do for one own rank.
type inflow struct {
	writer, reader int // tp
	bytes          int64
	failure        *ending
	ended          time.Time
}

func (d *Decode) begin(now time.Time, id string, dp int) *decodeTransfer {
	t := &decodeTransfer{life: d.newLife(now, id, dp)}
	d.transfers[id] = t
	return t
}

func (t *decodeTransfer) view(dpStart int) Transfer {
	v := Transfer{ID: t.id, Role: kvlayout.Decode, State: Waiting, Started: t.started}
	if t.expect != nil {
		v.Tokens = t.expect.Tokens
	}
	if t.receive != nil {
		v.Tokens = t.receive.Tokens
	}
	if !t.sentAt.IsZero() {
		v.State = Moving
	}
	if why := t.cause; why != nil {
		v.State, v.Rule, v.Text = Failing, why.rule, why.text
	}
	for _, f := range t.flows {
		v.Flows = append(v.Flows, TransferFlow{
			WriterDP: t.receive.Peer.DP, WriterTP: f.writer, ReaderDP: dpStart + t.dp, ReaderTP: f.reader,
			State: f.state(t), Bytes: f.bytes, Ended: f.ended,
		})
	}
	return v
}

func (f *inflow) state(t *decodeTransfer) State {
	switch {
	case f.failure != nil:
		return Broken
	case !f.ended.IsZero():
		return Ended
	case t.failure != nil:
		return Failing
	}
	return Waiting
}

// end reports a quiet transfer to the engine, exactly once, and remembers it.
func (d *Decode) end(now time.Time, t *decodeTransfer) {
	why := t.cause
	r := &record{dp: t.dp, failure: why, expected: t.expect != nil, claimed: t.receive != nil, revoking: t.revoking && !t.revoked, peerTold: t.released}
	r.view = t.view(d.cfg.Self.DPStart)
	r.view.Ended = now
	r.view.State = Ended
	if why != nil {
		r.view.State = Broken
	}
	for i := range r.view.Flows {
		// Revoked ones will not be reported any more.
		if f := &r.view.Flows[i]; f.Ended.IsZero() {
			f.State, f.Ended = Broken, now
		}
	}
	if t.receive != nil {
		d.tellWorkers(r, t.dp, t.lost)
	}
	switch {
	case t.aborted:
		r.settled = true
		d.sayScheduler(t.dp, t.lost, kvproto.Quiet{Transfer: t.id})
	case t.receive != nil:
		d.sayScheduler(t.dp, t.lost, lastWord(t.id, why))
	}
	d.remember(r)
	delete(d.transfers, t.id)
	d.discard(&t.life)
	d.alarms.drop(alarmKey{transfer: t.id})
	if t.receive != nil {
		d.leave(now, t.peer, t.id)
	}
}
