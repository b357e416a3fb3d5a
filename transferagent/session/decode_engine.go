package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// engineReady takes the ranks of an engine that is up. Connections whose memory
// is another one than before are taken for gone first.
func (d *Decode) engineReady(now time.Time, ev EngineReady) error {
	ranks, err := d.cfg.checkRanks(ev.Ranks)
	if err != nil {
		return err
	}
	for _, c := range d.engine.lost(ranks) {
		d.loseConn(now, c)
	}
	d.engine.ready(ranks)
	return nil
}

func (d *Decode) engineGone(now time.Time, ev EngineGone) error {
	if !d.engine.has(ev.Conn) {
		return wrongf(NoConnection, "the engine had no %s connection dp %d tp %d to lose", ev.Conn.Kind, ev.Conn.DP, ev.Conn.TP)
	}
	d.loseConn(now, ev.Conn)
	return nil
}

// loseConn ends the transfers of the connection's data parallel rank: a prompt is
// of use only with all ranks. Workers have no part in it before receive.
func (d *Decode) loseConn(now time.Time, c Conn) {
	d.engine.gone(c)
	for _, t := range byAge(d.transfers) {
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
