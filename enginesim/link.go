package enginesim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/kvclient"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// link is one registration of a group at the agent: its scheduler connection and
// one connection per worker. It ends with the first connection that ends, and all
// its transfers with it. Only a worker that a fault kills ends alone: its link
// begins no transfer any more and ends with the last one that it has.
type link struct {
	scheduler *kvclient.Client
	workers   []*kvclient.Client

	mu        sync.Mutex
	transfers map[string]*transfer
	// dead are workers that a fault has killed: the others go on while transfers live.
	dead map[*kvclient.Client]struct{}
	lost error // set before gone is closed
	gone chan struct{}
}

// sendWithin is how long a full queue may stay full.
const sendWithin = 10 * time.Second

var errKilled = errors.New("a worker was killed")

var errDuplicate = errors.New("a transfer of this id is under way")

// open connects a group and hands its memory over.
func (g *group) open(ctx context.Context) (_ *link, err error) {
	l := &link{transfers: map[string]*transfer{}, dead: map[*kvclient.Client]struct{}{}, gone: make(chan struct{})}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.scheduler, err = kvclient.Dial(ctx, g.cfg.Socket, g.hello(kvproto.Scheduler, 0)); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	for tp, r := range g.ranks {
		w, err := kvclient.Dial(ctx, g.cfg.Socket, g.hello(kvproto.Worker, tp))
		if err != nil {
			return nil, fmt.Errorf("worker %d: %w", tp, err)
		}
		l.workers = append(l.workers, w)
		if err := g.handOver(l, w, r); err != nil {
			return nil, fmt.Errorf("worker %d: %w", tp, err)
		}
	}
	return l, nil
}

func (g *group) hello(connection string, tp int) kvproto.Hello {
	l := g.cfg.Layout
	return kvproto.Hello{
		Version: kvproto.ProtocolVersion, Connection: connection, DP: g.dp, TP: tp,
		TPSize: l.TP, DCP: l.DCP, Interleave: l.Interleave, BlockTokens: l.Block, Blocks: g.cfg.Blocks,
		Model: g.cfg.Model, KVType: g.cfg.KVType, Faults: g.cfg.faults.agent,
	}
}

func (g *group) handOver(l *link, w *kvclient.Client, r *rank) error {
	if err := w.SendMemory(r.size(), r.file); err != nil {
		return fmt.Errorf("hand the memory over: %w", err)
	}
	for _, region := range r.regions() {
		if err := l.insist(w, region); err != nil {
			return fmt.Errorf("register layer %d: %w", region.Layer, err)
		}
	}
	return l.insist(w, kvproto.Ready{})
}

// send queues a message of a transfer, which has failed when there is no room: no
// forward pass waits for an agent that does not read. With the link lost it has failed
// for the reason that ends all the others, whoever comes first to say so.
func (l *link) send(c *kvclient.Client, m kvproto.Message) error {
	err := l.say(c, m, c.Send)
	select {
	case <-l.gone:
		return agentGone(l.lost)
	default:
		return err
	}
}

// agentGone is the end of a transfer whose link is lost.
func agentGone(why error) *TransferError {
	return &TransferError{Rule: "agent-gone", Text: "the connection to the transfer agent was lost: " + why.Error()}
}

// insist queues a message that has to be said, and waits for room. The agent reads
// fast; one that lets a queue stay full is given up.
func (l *link) insist(c *kvclient.Client, m kvproto.Message) error {
	return l.say(c, m, func(m kvproto.Message) error { return l.queue(c, m) })
}

// say ends the link by an error other than that m breaks a limit or finds no room.
// What a killed worker says is lost.
func (l *link) say(c *kvclient.Client, m kvproto.Message, queue func(kvproto.Message) error) error {
	select {
	case <-l.gone:
		return l.lost // what is left of it closes by and by, and must not be used meanwhile
	default:
	}
	err := queue(m)
	var limit *kvproto.Error
	switch {
	case errors.Is(err, kvclient.ErrFull):
		return &TransferError{"agent-slow", "the agent does not read what it is told of the transfer"}
	case err == nil || errors.As(err, &limit):
		return err
	case l.isDead(c):
		return nil
	}
	l.drop(err)
	return err
}

func (l *link) queue(c *kvclient.Client, m kvproto.Message) error {
	deadline := time.NewTimer(sendWithin)
	defer deadline.Stop()
	for {
		err := c.Send(m)
		if !errors.Is(err, kvclient.ErrFull) {
			return err
		}
		room := time.NewTimer(time.Millisecond)
		select {
		case <-room.C:
		case <-l.gone:
		case <-deadline.C:
			return fmt.Errorf("%s: the agent has read nothing for %s", m.Type(), sendWithin)
		}
		room.Stop()
	}
}

// drop ends the link: nothing can be sent any more, and each transfer has failed.
// Whether their blocks are quiet is known when the agent takes the engine again.
func (l *link) drop(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return
	}
	l.lost = err
	close(l.gone)
	for _, t := range l.transfers {
		t.end(agentGone(err), false)
	}
}

// close ends all connections and waits for them.
func (l *link) close() {
	if l.scheduler != nil {
		_ = l.scheduler.Close()
	}
	for _, w := range l.workers {
		_ = w.Close()
	}
}

// begin makes the engine's record of a transfer; fail is called when it ends badly.
func (l *link) begin(id string, decode bool, fail context.CancelCauseFunc) (*transfer, error) {
	t := &transfer{
		id: id, link: l, decode: decode, fail: fail, reported: map[int]bool{},
		ended: make(chan struct{}), quiet: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost != nil {
		return nil, errors.Join(errNotRegistered, l.lost)
	}
	if len(l.dead) > 0 {
		return nil, errors.Join(errNotRegistered, errKilled)
	}
	if l.transfers[id] != nil {
		return nil, fmt.Errorf("%.64q: %w", id, errDuplicate)
	}
	l.transfers[id] = t
	return t, nil
}

// serve takes the agent's messages until the link is lost.
func (l *link) serve(ctx context.Context, g *group) error {
	var readers sync.WaitGroup
	readers.Go(func() { l.listen(g, l.scheduler, -1) })
	for tp, w := range l.workers {
		readers.Go(func() { l.listen(g, w, tp) })
	}
	select {
	case <-l.gone:
	case <-ctx.Done():
		l.drop(ctx.Err())
	}
	l.close()
	readers.Wait()
	return l.lost
}

// listen reads one connection to its end; tp is -1 for the scheduler's.
func (l *link) listen(g *group, c *kvclient.Client, tp int) {
	for m := range c.Messages() {
		if r, ok := m.(kvproto.Refused); ok {
			l.refused(g, r, tp)
			continue
		}
		l.mu.Lock()
		t := l.transfers[kvproto.TransferOf(m)]
		l.mu.Unlock()
		if t == nil {
			continue // a worker's report after the scheduler's, or of another incarnation
		}
		over := false
		if tp < 0 {
			over = t.scheduler(m)
		} else {
			over = t.worker(tp, m)
		}
		if over {
			l.forget(t)
		}
	}
	if !l.isDead(c) {
		l.drop(fmt.Errorf("agent: %w", c.Err()))
	}
}

// forget ends the record of a transfer. With the last one a link that has lost a
// worker is given up, so that all of it registers anew.
func (l *link) forget(t *transfer) {
	l.mu.Lock()
	delete(l.transfers, t.id)
	over := len(l.dead) > 0 && len(l.transfers) == 0
	l.mu.Unlock()
	if over {
		l.drop(errKilled)
	}
}

// kill is what a fault does to a worker: its connection ends, and what it would
// say later is lost.
func (l *link) kill(tp int) {
	c := l.workers[tp]
	l.mu.Lock()
	l.dead[c] = struct{}{}
	l.mu.Unlock()
	_ = c.Close()
}

func (l *link) isDead(c *kvclient.Client) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, dead := l.dead[c]
	return dead
}

// refused counts what the agent didn't take. What it says of the registration
// itself ends the link, what it says of a transfer that transfer.
func (l *link) refused(g *group, r kvproto.Refused, tp int) {
	g.tally.refused.Add(1)
	if omitted, ok := g.notices.admit(time.Now()); ok {
		g.log.Error("the agent refuses a message", "dp", g.dp, "rule", r.Rule, "text", r.Text, "omitted", omitted)
	}
	if r.Rule == "kv-memory" || r.Rule == "kv-regions" {
		l.drop(&kvclient.RefusedError{Rule: r.Rule, Text: r.Text})
		return
	}
	l.mu.Lock()
	t := l.transfers[r.Transfer]
	l.mu.Unlock()
	if t != nil && tp < 0 && t.refused(r) {
		l.forget(t)
	}
}

// reason is a link error in one line.
func reason(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
