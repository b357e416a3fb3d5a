package session

import (
	"time"

	"github.com/pdpool/pdpool/moriio"
)

// writeDone takes a writer's word that all of its bytes are in place at one rank.
func (d *Decode) writeDone(now time.Time, m *moriio.WriteDone) error {
	t, err := d.reported(now, m.Transfer, m.PDPool)
	if err != nil {
		return err
	}
	f := t.flow(m.PDPool.WriterTP, m.PDPool.ReaderTP)
	if err := t.checkReport(f, m.PDPool); err != nil {
		return err
	}
	f.ended, f.bytes = now, m.PDPool.Bytes
	if d.cfg.FirstWriterEnds {
		for _, f := range t.flows {
			if f.ended.IsZero() {
				f.ended = now
			}
		}
	}
	d.advance(now, t)
	return nil
}

// writeFailed takes a writer's word that it has ended without writing all. It is
// shown at once; the transfer ends when all other writers have ended too and the own
// mover has revoked it: what the failed writer has sent may be placed after its report.
func (d *Decode) writeFailed(now time.Time, m *moriio.WriteFailed) error {
	t, err := d.reported(now, m.Transfer, m.PDPool)
	if err != nil {
		return err
	}
	why := newEnding(m.PDPool.Rule, m.PDPool.Text)
	if why.rule == "" {
		why = endingf(RuleCopy, "prefill tp %d failed without a reason", m.PDPool.WriterTP)
	}
	if m.PDPool.WriterTP == AllRanks && m.PDPool.ReaderTP == AllRanks {
		return d.nothingWritten(now, t, m.PDPool, why)
	}
	f := t.flow(m.PDPool.WriterTP, m.PDPool.ReaderTP)
	if err := t.checkReport(f, m.PDPool); err != nil {
		return err
	}
	f.ended, f.bytes, f.failure = now, m.PDPool.Bytes, why
	t.blame(why)
	d.advance(now, t)
	return nil
}

// nothingWritten takes prefill's word that none of its ranks has written, or will.
// A report of one rank says otherwise, and then that counts. The own mover revokes the
// transfer here too: that costs little, and without it the word of whoever reaches the
// port would give back blocks that copies are on their way to.
func (d *Decode) nothingWritten(now time.Time, t *decodeTransfer, r *moriio.Report, why *ending) error {
	for _, f := range t.flows {
		if !f.ended.IsZero() {
			return wrongf(Duplicate, "prefill reports on all ranks of transfer %q after a report of tp %d", t.id, f.writer)
		}
	}
	if r.WriterDP != t.receive.Peer.DP {
		return wrongf(UnexpectedWriter, "prefill dp %d does not write in transfer %q", r.WriterDP, t.id)
	}
	for _, f := range t.flows {
		f.ended, f.failure = now, why
	}
	t.blame(why)
	d.advance(now, t)
	return nil
}

// reported finds the transfer of a report and refuses reports of other incarnations.
func (d *Decode) reported(now time.Time, id string, r *moriio.Report) (*decodeTransfer, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, wrongf(NoExtension, "a report on transfer %q does not say which writer it is from", id)
	}
	if err := d.meant(r.PeerEpoch); err != nil {
		return nil, err
	}
	if d.past.find(id) != nil {
		return nil, wrongf(Late, "a report on transfer %q came after its end", id)
	}
	t := d.transfers[id]
	switch {
	case t == nil:
		return nil, wrongf(UnknownTransfer, "a report on transfer %q that is not known", id)
	case t.sentAt.IsZero():
		return nil, wrongf(UnexpectedWriter, "a report on transfer %q before anything was asked for", id)
	case r.Epoch != t.epoch:
		d.doubt(now, t.peer)
		return nil, wrongf(OtherEpoch, "a report on transfer %q is from epoch %d, its writers are of %d", id, r.Epoch, t.epoch)
	}
	return t, nil
}

func (t *decodeTransfer) flow(writer, reader int) *inflow {
	for _, f := range t.flows {
		if f.writer == writer && f.reader == reader {
			return f
		}
	}
	return nil
}

func (t *decodeTransfer) checkReport(f *inflow, r *moriio.Report) error {
	switch {
	case f == nil || r.WriterDP != t.receive.Peer.DP:
		return wrongf(UnexpectedWriter, "prefill dp %d tp %d does not write to decode tp %d in transfer %q", r.WriterDP, r.WriterTP, r.ReaderTP, t.id)
	case r.Bytes < 0:
		return wrongf(BadNumber, "prefill tp %d reports %d bytes of transfer %q", r.WriterTP, r.Bytes, t.id)
	case !f.ended.IsZero():
		return wrongf(Duplicate, "prefill tp %d has reported on decode tp %d of transfer %q before", r.WriterTP, r.ReaderTP, t.id)
	}
	return nil
}
