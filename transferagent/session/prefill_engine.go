package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// loseConn fails what needs the connection: everything of its rank when it was the
// scheduler's, the flows of the one writer when it was a worker's. Other writers
// finish theirs, so that decode gets one report for each.
func (p *Prefill) loseConn(now time.Time, c Conn) {
	p.engine.gone(c)
	for t := range p.byAge() {
		if t.dp != c.DP {
			continue
		}
		t.lost[c] = struct{}{}
		if c.Kind == kvproto.Scheduler {
			t.fail(p.schedulerLost(c.DP))
		} else {
			t.writers[c.TP].lose(p.workerLost(c.DP, c.TP))
		}
		p.advance(now, t)
	}
}
