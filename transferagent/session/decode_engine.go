package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// loseConn ends the transfers of the connection's data parallel rank: a prompt is
// of use only with all ranks. Workers have no part in it before receive.
func (d *Decode) loseConn(now time.Time, c Conn) {
	d.engine.gone(c)
	for t := range d.byAge() {
		if t.dp != c.DP || (c.Kind == kvproto.Worker && t.receive == nil) {
			continue
		}
		t.lost[c] = struct{}{}
		if c.Kind == kvproto.Scheduler {
			t.fail(d.schedulerLost(c.DP))
		} else {
			t.fail(d.workerLost(c.DP, c.TP))
		}
		d.advance(now, t)
	}
}
