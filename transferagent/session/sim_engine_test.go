package session_test

import (
	"fmt"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// engine is the engine of a pod: its memory and blocks, its requests and its
// connections.
type engine struct {
	shape    shape
	conns    []session.Conn
	up       map[session.Conn]bool
	ranks    []moriio.AgentRank
	memory   map[session.Conn]*memory  // of workers that live
	owner    []map[int32]*request      // by dp: who has a block
	requests []*request                // in order
	byID     []map[string]*request     // by dp: the newest of an id
	unheard  bool                      // the agent is frozen and has not noticed that the connections have ended
	known    map[session.Conn]struct{} // connections that the agent takes for up
}

// request is one side's view of a transfer.
type request struct {
	id            string
	prompt        string // what is asked; it tells requests of one id apart
	dp            int
	tokens, first int
	blocks        []int32
	peer          *shape
	peerDP        int
	named         bool // its agent took an expect that names prefill's
	begun         bool
	expectSent    bool
	blocksSent    bool // hold or receive
	abortSent     bool
	mute          bool // the engine never names its blocks
	saved         map[int]int
	sealed        map[int]bool
	touched       map[session.Conn]bool
	told          map[session.Conn]string
	answer        string // of the scheduler
	over          bool   // refused, or its connections have ended: nobody answers any more
	freed         bool
	unserved      bool // a worker's message was refused
	lost          map[session.Conn]struct{}
	// restless: the connections have ended before the answer. The blocks are quiet
	// when the same agent takes the engine again, or a lease after another has: then
	// the one before has ended, and not before, as it may only have been frozen.
	restless bool
	epoch    uint64    // of the agent that had them
	quietAt  time.Time // zero until another agent has taken the engine
}

func newEngine(sh shape) *engine {
	e := &engine{shape: sh, conns: sh.conns(), up: map[session.Conn]bool{}, memory: map[session.Conn]*memory{}, known: map[session.Conn]struct{}{}}
	for range sh.dp {
		e.owner = append(e.owner, map[int32]*request{})
		e.byID = append(e.byID, map[string]*request{})
	}
	return e
}

// conns are the connections of a complete engine.
func (s shape) conns() []session.Conn {
	var conns []session.Conn
	for dp := range s.dp {
		conns = append(conns, scheduler(dp))
		for tp := range s.tp {
			conns = append(conns, worker(dp, tp))
		}
	}
	return conns
}

func (e *engine) complete() bool {
	for _, c := range e.conns {
		if !e.up[c] {
			return false
		}
	}
	return true
}

func (e *engine) rank(dp, tp int) *moriio.AgentRank {
	for i := range e.ranks {
		if e.ranks[i].DP == dp && e.ranks[i].TP == tp {
			return &e.ranks[i]
		}
	}
	return nil
}

func (e *engine) regions(dp, tp int) []kvlayout.Region { return e.rank(dp, tp).Regions }

// region is the layer that a byte lies in.
func (e *engine) region(dp, tp int, at int64) *kvlayout.Region {
	for i, r := range e.regions(dp, tp) {
		if at >= r.Offset && at < r.End() {
			return &e.rank(dp, tp).Regions[i]
		}
	}
	return nil
}

// die ends the engine's processes.
func (e *engine) die() {
	for _, m := range e.memory {
		m.dead = true
	}
}

// engineUp brings all connections up, as far as the agent takes them: it does once no
// copy touches a memory that is registered anew. It reports false while it doesn't.
func (s *sim) engineUp(a *agent) bool {
	e := a.engine
	if !a.runs() || e.unheard || !s.letGo(a) {
		return false
	}
	for _, r := range a.shape.ranks(0) {
		if !e.up[worker(r.DP, r.TP)] {
			e.register(a, r)
		}
	}
	for _, c := range e.conns {
		e.up[c] = true
		e.known[c] = struct{}{}
	}
	_ = s.step(a, session.EngineReady{Ranks: e.ranks})
	for _, r := range e.requests {
		switch {
		case !r.restless || r.freed:
		case r.epoch == a.shape.epoch:
			e.free(r)
		case r.quietAt.IsZero():
			s.tally["blocks kept for a lease"]++
			r.quietAt = s.now.Add(lease + margin)
		}
	}
	return true
}

// letGo says whether no copy touches memory any more that the agent has unregistered:
// each writer knows, or its lease is over.
func (s *sim) letGo(a *agent) bool {
	for _, m := range s.ordersTo(a) {
		if m.target == nil || m.target.engine != a.engine || a.memory[m.order.Target] == m.target {
			continue
		}
		if s.stillWrites(m) {
			return false
		}
		m.barred = true
	}
	return true
}

// register hands the memory of a rank over, which is new with a new process.
func (e *engine) register(a *agent, r moriio.AgentRank) {
	c := worker(r.DP, r.TP)
	a.nextMem++
	r.Memory = a.nextMem
	if e.memory[c] == nil {
		last := r.Regions[len(r.Regions)-1]
		e.memory[c] = &memory{bytes: make([]byte, last.End()), engine: e, dp: r.DP, tp: r.TP}
	}
	a.memory[r.Memory] = e.memory[c]
	if old := e.rank(r.DP, r.TP); old != nil {
		*old = r
	} else {
		e.ranks = append(e.ranks, r)
	}
}

// linkLost is what an engine does when all of its connections have ended: its
// requests fail at once, and the blocks that the agent knows of are kept.
func (s *sim) linkLost(a *agent) {
	e := a.engine
	s.tally["engine lost its agent"]++
	for _, c := range e.conns {
		e.up[c] = false
	}
	for _, r := range e.requests {
		if r.over || r.freed {
			continue
		}
		r.over = true
		for _, c := range e.conns {
			r.lost[c] = struct{}{}
		}
		if !r.blocksSent {
			e.free(r)
			continue
		}
		r.restless, r.epoch = true, a.shape.epoch
	}
}

// agentHearsLoss: the agent notices that the connections have ended.
func (s *sim) agentHearsLoss(a *agent) {
	a.engine.unheard = false
	for m := range a.registered() {
		a.unregister(m)
	}
	for _, c := range a.engine.conns {
		if _, known := a.engine.known[c]; known {
			delete(a.engine.known, c)
			_ = s.step(a, session.EngineGone{Conn: c})
		}
	}
}

func (a *agent) registered() map[*memory]struct{} {
	set := map[*memory]struct{}{}
	for _, m := range a.memory {
		set[m] = struct{}{}
	}
	return set
}

// dropLink is an engine that gives its agent up, as it says nothing: it may be frozen.
func (s *sim) dropLink(a *agent) {
	if a.dead || len(a.engine.known) == 0 {
		return
	}
	s.logf("%s: the engine ends its connections", a.shape.host)
	s.linkLost(a)
	if !a.runs() {
		a.engine.unheard = true
		return
	}
	s.agentHearsLoss(a)
}

// loseWorker ends one worker's process; the requests of its rank know that the next
// one is not the one that they began with.
func (s *sim) loseWorker(a *agent) {
	e := a.engine
	c := worker(s.rng.IntN(a.shape.dp), s.rng.IntN(a.shape.tp))
	if !a.runs() || e.unheard {
		return
	}
	if !e.up[c] {
		s.engineUp(a)
		return
	}
	s.tally["worker lost"]++
	e.up[c] = false
	if m := e.memory[c]; m != nil {
		m.dead = true
		delete(e.memory, c)
		a.unregister(m)
	}
	for _, r := range e.requests {
		if r.dp == c.DP {
			r.lost[c] = struct{}{}
			delete(r.told, c) // the next connection begins anew
		}
	}
	if s.rng.IntN(4) == 0 && s.engineUp(a) {
		return // so fast that the agent sees but other memory
	}
	delete(e.known, c)
	_ = s.step(a, session.EngineGone{Conn: c})
}

// restartEngine replaces the engine's process, but not the agent.
func (s *sim) restartEngine(a *agent) {
	s.logf("%s: the engine restarts", a.shape.host)
	s.tally["engine restarted"]++
	s.linkLost(a)
	a.engine.die()
	before := a.engine
	switch {
	case a.dead:
		a.engine = newEngine(a.shape)
	case a.runs():
		s.agentHearsLoss(a)
		a.engine = newEngine(a.shape)
		s.engineUp(a)
	default:
		a.engine = newEngine(a.shape)
		a.engine.unheard, a.engine.known = true, before.known
	}
}

// blocksFor is what a prompt needs, with one token to spare.
func (e *engine) blocksFor(tokens int) int {
	span := e.shape.block * e.shape.dcp
	return (tokens + 1 + span - 1) / span
}

func (e *engine) room(dp, tokens int) bool {
	free := e.shape.blocks
	for _, owner := range e.owner[dp] {
		if owner != nil {
			free--
		}
	}
	return free >= e.blocksFor(tokens)
}

// free gives the blocks back, poisoned, to be used again soon.
func (e *engine) free(r *request) {
	if r.freed {
		return
	}
	r.freed = true
	for _, block := range r.blocks {
		e.owner[r.dp][block] = nil
		for tp := range e.shape.tp {
			m := e.memory[worker(r.dp, tp)]
			if m == nil {
				continue
			}
			for _, region := range e.regions(r.dp, tp) {
				clear(m.bytes[region.Offset+int64(block)*region.BlockStride:][:region.BlockStride])
			}
		}
	}
}

// refusedBy is the agent's answer that it does not take a message. Blocks that it
// does not take are quiet.
func (s *sim) refusedBy(a *agent, r *request, m kvproto.Message) {
	switch m.(type) {
	case kvproto.Hold, kvproto.Receive, kvproto.Abort:
		s.tally["request refused"]++
		r.over = true
		a.engine.free(r)
	default:
	}
}

// checkAnswered: whoever was owed an answer has got it, and no block is held.
func (s *sim) checkAnswered(a *agent) {
	for _, r := range a.engine.requests {
		if r.blocksSent && !r.freed {
			s.violation("%s: the blocks of %s are held at the end: %+v", a.shape.host, r.id, r)
		}
		if !r.over {
			s.checkTold(a, r)
		}
	}
}

func (s *sim) checkTold(a *agent, r *request) {
	if _, lost := r.lost[scheduler(r.dp)]; !lost && r.answer == "" && (r.blocksSent || r.abortSent) {
		s.violation("%s: the scheduler was never answered for %s", a.shape.host, r.id)
	}
	if owed := r.blocksSent || len(r.touched) > 0 && !r.abortSent && !r.unserved; !owed {
		return
	}
	for tp := range a.shape.tp {
		c := worker(r.dp, tp)
		_, lost := r.lost[c]
		if _, told := r.told[c]; !lost && !told {
			s.violation("%s: worker %d/%d was never told how %s ended", a.shape.host, r.dp, tp, r.id)
		}
	}
}

// name of a request in a trace.
func (r *request) String() string {
	return fmt.Sprintf("%s (%s) of dp %d: %d tokens from %d in blocks %v", r.id, r.prompt, r.dp, r.tokens, r.first, r.blocks)
}
