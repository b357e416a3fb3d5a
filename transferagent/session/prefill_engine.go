package session

import (
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// engineReady takes the ranks of an engine that is up. Connections whose memory
// is another one than before are taken for gone first.
func (p *Prefill) engineReady(now time.Time, ev EngineReady) error {
	ranks, err := p.cfg.checkRanks(ev.Ranks)
	if err != nil {
		return err
	}
	for _, c := range p.engine.lost(ranks) {
		p.loseConn(now, c)
	}
	p.engine.ready(ranks)
	return nil
}

func (p *Prefill) engineGone(now time.Time, ev EngineGone) error {
	if !p.engine.has(ev.Conn) {
		return wrongf(NoConnection, "the engine had no %s connection dp %d tp %d to lose", ev.Conn.Kind, ev.Conn.DP, ev.Conn.TP)
	}
	p.loseConn(now, ev.Conn)
	return nil
}

// loseConn fails what needs the connection: everything of its rank when it was the
// scheduler's, the flows of the one writer when it was a worker's. Other writers
// finish theirs, so that decode gets one report for each.
func (p *Prefill) loseConn(now time.Time, c Conn) {
	p.engine.gone(c)
	for _, t := range byAge(p.transfers) {
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
