package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// abort ends a transfer early. It is answered by Quiet once no copy touches the
// blocks; at once for a transfer that is not known, which then can't begin any more.
func (p *Prefill) abort(now time.Time, c Conn, m kvproto.Abort) error {
	if err := p.checkMessage(c, kvproto.Scheduler, m, m.Transfer); err != nil {
		return err
	}
	if ended, err := p.abortEnded(c, m); ended {
		return err
	}
	t := p.transfers[m.Transfer]
	if t == nil {
		// No room is needed for it, so the limit does not count.
		t = p.begin(now, m.Transfer, c.DP)
	}
	switch {
	case t.dp != c.DP:
		return wrongf(WrongRank, "transfer %q belongs to dp %d, not to dp %d", m.Transfer, t.dp, c.DP)
	case t.aborted:
		return wrongf(Duplicate, "transfer %q was aborted before", m.Transfer)
	}
	t.aborted = true
	t.fail(endingf(RuleAborted, "the prefill engine aborted it"))
	p.advance(now, t)
	return nil
}
