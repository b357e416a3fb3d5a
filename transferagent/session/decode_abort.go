package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// abort ends a transfer early. It is answered by Quiet once nobody can write into
// the blocks; at once for a transfer that is not known, which then can't begin any
// more.
func (d *Decode) abort(now time.Time, c Conn, m kvproto.Abort) error {
	if err := d.checkMessage(c, m, m.Transfer); err != nil {
		return err
	}
	if ended, err := d.abortEnded(c, m); ended {
		return err
	}
	t := d.transfers[m.Transfer]
	if t == nil {
		t = d.begin(now, m.Transfer, c.DP)
	}
	switch {
	case t.dp != c.DP:
		return wrongf(WrongRank, "transfer %q belongs to dp %d, not to dp %d", m.Transfer, t.dp, c.DP)
	case t.aborted:
		return wrongf(Duplicate, "transfer %q was aborted before", m.Transfer)
	}
	t.aborted = true
	t.fail(endingf(RuleAborted, "the decode engine aborted it"))
	d.advance(now, t)
	return nil
}
