package enginesim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// TransferError is why a KV transfer failed: the agent's rule and sentence.
type TransferError struct{ Rule, Text string }

func (e *TransferError) Error() string { return "KV transfer failed: " + e.Rule + ": " + e.Text }

// transfer is one request's transfer as the engine sees it. Two things happen to
// it, in this order: it ends (its fate is known), and it is quiet (nothing touches
// its blocks any more).
type transfer struct {
	id     string
	link   *link
	decode bool
	ended  chan struct{}
	quiet  chan struct{}
	fail   context.CancelCauseFunc // ends what the request does

	mu       sync.Mutex
	err      error // of a transfer that has ended
	isEnded  bool
	isQuiet  bool
	told     bool // the scheduler heard Done
	reported map[int]bool
}

// outcome is nil for a transfer that ended well; the transfer must have ended.
func (t *transfer) outcome() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// end settles the fate. A transfer that has one keeps it.
func (t *transfer) end(err error, quiet bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endLocked(err, quiet)
}

func (t *transfer) endLocked(err error, quiet bool) {
	if !t.isEnded {
		t.isEnded, t.err = true, err
		close(t.ended)
		if err != nil {
			t.fail(err)
		}
	}
	if quiet && !t.isQuiet {
		t.isQuiet = true
		close(t.quiet)
	}
}

// scheduler takes what the agent tells the scheduler of the transfer, and says
// whether nothing more will come.
func (t *transfer) scheduler(m kvproto.Message) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m := m.(type) {
	case kvproto.Failed:
		t.endLocked(&TransferError{m.Rule, m.Text}, true)
	case kvproto.Quiet:
		t.endLocked(context.Canceled, true)
	case kvproto.Released:
		t.endLocked(nil, true)
	case kvproto.Done:
		t.told = true
		t.complete()
	}
	return t.isQuiet
}

// refused takes that the agent does not do what the scheduler asked for, and says
// whether nothing more will come. Blocks that it has not taken are quiet, so are those
// of a transfer that it can't end for us as it is another rank's. What is wrong with an
// expect shows in the answer to what follows it.
func (t *transfer) refused(r kvproto.Refused) (over bool) {
	switch r.Message {
	case kvproto.Hold{}.Type(), kvproto.Receive{}.Type():
	case kvproto.Abort{}.Type():
		if r.Rule != "wrong-rank" {
			return false
		}
	default:
		return false
	}
	t.end(&TransferError{r.Rule, r.Text}, true)
	return true
}

// worker takes what the agent tells a worker. Decode needs the word of each.
func (t *transfer) worker(tp int, m kvproto.Message) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.decode {
		return t.isQuiet
	}
	switch m := m.(type) {
	case kvproto.Done:
		t.reported[tp] = true
		t.complete()
	case kvproto.Failed:
		// The scheduler hears of it too, and then it is quiet.
		t.endLocked(&TransferError{m.Rule, m.Text}, false)
	}
	return t.isQuiet
}

func (t *transfer) complete() {
	if t.told && len(t.reported) == len(t.link.workers) {
		t.endLocked(nil, true)
	}
}

// send says something of the transfer on the scheduler's connection.
func (t *transfer) send(m kvproto.Message) error { return t.link.send(t.link.scheduler, m) }

// sendWorker says something on a worker's connection.
func (t *transfer) sendWorker(tp int, m kvproto.Message) error {
	return t.link.send(t.link.workers[tp], m)
}

// letGo waits in the background until nothing touches the blocks any more, then
// frees them. abort tells the agent that the request has ended early. tokens is
// how many of the request lie in the blocks.
func (g *group) letGo(t *transfer, ids []int32, tokens int, abort bool) {
	g.tally.live.Add(1)
	g.background.Go(func() {
		defer g.tally.live.Add(-1)
		if abort {
			g.abort(t)
		}
		if !g.awaitQuiet(t) {
			return // the memory goes with the instance
		}
		if len(ids) == 0 {
			return
		}
		if err := g.checkTail(ids, tokens, t.decode); err != nil {
			g.violation(err.Error())
		}
		g.give(ids)
	})
}

func (g *group) abort(t *transfer) {
	select {
	case <-t.quiet:
		return
	default:
	}
	if err := t.link.insist(t.link.scheduler, kvproto.Abort{Transfer: t.id}); err != nil {
		t.link.drop(fmt.Errorf("abort of %s: %w", t.id, err))
	}
}

// awaitQuiet waits until nothing touches the blocks of a transfer. An agent that
// says nothing for too long is given up; it tells when it takes the engine again.
// false: the instance ends first.
func (g *group) awaitQuiet(t *transfer) bool {
	patience := g.patienceWith(t.link)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case <-t.quiet:
			return true
		case <-g.stop:
			return false
		case <-limit.C:
			t.link.drop(fmt.Errorf("the agent has said nothing of transfer %s for %s", t.id, patience))
		}
	}
}
