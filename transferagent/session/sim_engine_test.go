package session_test

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// engine is the engine of a pod: its blocks, its requests and its connections.
type engine struct {
	shape    shape
	up       map[session.Conn]bool
	ranks    []moriio.AgentRank
	owner    []map[int32]string // by dp: who has a block; "" or missing is free
	requests map[string]*request
}

// request is one side's view of a transfer.
type request struct {
	id            string
	dp            int
	tokens, first int
	blocks        []int32
	peer          *shape
	peerDP        int
	expectSent    bool
	blocksSent    bool // hold or receive
	abortSent     bool
	mute          bool // the engine never names its blocks
	saved         map[int]int
	sealed        map[int]bool
	touched       map[session.Conn]bool
	told          map[session.Conn]string
	answer        string // of the scheduler
	freed         bool
	lost          map[session.Conn]struct{}
}

func newEngine(sh shape) *engine {
	e := &engine{shape: sh, up: map[session.Conn]bool{}, requests: map[string]*request{}}
	for range sh.dp {
		e.owner = append(e.owner, map[int32]string{})
	}
	return e
}

func (e *engine) conns() []session.Conn {
	var conns []session.Conn
	for dp := range e.shape.dp {
		conns = append(conns, scheduler(dp))
		for tp := range e.shape.tp {
			conns = append(conns, worker(dp, tp))
		}
	}
	return conns
}

func (e *engine) complete() bool {
	for _, c := range e.conns() {
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

func (e *engine) memoryID(dp, tp int) uint32 { return e.rank(dp, tp).Memory }

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

// engineUp brings all connections up; ranks without memory get new one.
func (s *sim) engineUp(a *agent) {
	e := a.engine
	for _, r := range a.shape.ranks(0) {
		old := e.rank(r.DP, r.TP)
		if old != nil && e.up[worker(r.DP, r.TP)] {
			continue
		}
		a.nextMem++
		r.Memory = a.nextMem
		last := r.Regions[len(r.Regions)-1]
		a.memory[r.Memory] = make([]byte, last.End())
		if old != nil {
			*old = r
		} else {
			e.ranks = append(e.ranks, r)
		}
	}
	for _, c := range e.conns() {
		e.up[c] = true
	}
	s.step(a, session.EngineReady{Ranks: e.ranks})
}

// loseConn ends one connection; the requests of its rank know that it is not the
// one that they began with.
func (s *sim) loseConn(a *agent, c session.Conn) {
	e := a.engine
	e.up[c] = false
	if c.Kind == kvproto.Worker {
		delete(a.memory, e.memoryID(c.DP, c.TP))
	}
	for _, r := range e.requests {
		if r.dp == c.DP {
			r.lost[c] = struct{}{}
		}
	}
	s.step(a, session.EngineGone{Conn: c})
}

func (s *sim) loseWorker(a *agent) {
	c := worker(s.rng.IntN(a.shape.dp), s.rng.IntN(a.shape.tp))
	if a.engine.up[c] {
		s.loseConn(a, c)
		return
	}
	s.engineUp(a)
}

// restartEngine replaces the engine's process, but not the agent.
func (s *sim) restartEngine(a *agent) {
	for _, c := range a.engine.conns() {
		if a.engine.up[c] {
			s.loseConn(a, c)
		}
	}
	a.engine = newEngine(a.shape)
	s.engineUp(a)
}

// engineActs does the next thing for some request, or starts one.
func (s *sim) engineActs() bool {
	if s.calm {
		for _, a := range s.agents {
			if !a.engine.complete() {
				s.engineUp(a)
				return true
			}
		}
	}
	if s.wanted > 0 && (s.calm || s.rng.IntN(6) == 0) && s.startRequest() {
		s.wanted--
		return true
	}
	for _, i := range s.rng.Perm(len(s.agents)) {
		a := s.agents[i]
		ids := make([]string, 0, len(a.engine.requests))
		for n := range s.nextID {
			if id := fmt.Sprintf("t%d", n); a.engine.requests[id] != nil {
				ids = append(ids, id)
			}
		}
		for _, j := range s.rng.Perm(len(ids)) {
			if s.requestActs(a, a.engine.requests[ids[j]]) {
				return true
			}
		}
	}
	return false
}

// startRequest gives a request to a prefill and a decode engine, as the router does.
// It waits for room at both.
func (s *sim) startRequest() bool {
	p := s.pick(func(a *agent) bool { return a.shape.role == kvlayout.Prefill })
	d := s.pick(func(a *agent) bool { return a.shape.role == kvlayout.Decode })
	id := fmt.Sprintf("t%d", s.nextID)
	tokens := 1 + s.rng.IntN(3*s.pairs[0].block)
	pdp, ddp := s.rng.IntN(p.shape.dp), s.rng.IntN(d.shape.dp)
	if !p.engine.room(pdp, tokens) || !d.engine.room(ddp, tokens) {
		return false
	}
	s.nextID++
	pr := s.newRequest(p, id, pdp, tokens)
	dr := s.newRequest(d, id, ddp, tokens)
	if s.rng.IntN(3) == 0 {
		dr.first = s.rng.IntN(tokens + 1)
	}
	dr.peer, dr.peerDP = &p.shape, pr.dp
	if s.faults && s.rng.IntN(20) == 0 {
		pr.tokens++ // the engines work on different prompts
	}
	s.logf("%s from %s/%d to %s/%d: %d tokens from %d, blocks %v and %v", id, p.shape.host, pr.dp, d.shape.host, dr.dp, tokens, dr.first, pr.blocks, dr.blocks)
	return true
}

// blocksFor is what a prompt needs, with one token to spare.
func (e *engine) blocksFor(tokens int) int {
	span := e.shape.block * e.shape.dcp
	return (tokens + 1 + span - 1) / span
}

func (e *engine) room(dp, tokens int) bool {
	free := e.shape.blocks
	for _, owner := range e.owner[dp] {
		if owner != "" {
			free--
		}
	}
	return free >= e.blocksFor(tokens)
}

func (s *sim) newRequest(a *agent, id string, dp, tokens int) *request {
	r := &request{
		id: id, dp: dp, tokens: tokens, mute: s.faults && s.rng.IntN(15) == 0,
		saved: map[int]int{}, sealed: map[int]bool{}, touched: map[session.Conn]bool{}, told: map[session.Conn]string{}, lost: map[session.Conn]struct{}{},
	}
	for _, c := range a.engine.conns() {
		if c.DP == r.dp && !a.engine.up[c] {
			r.lost[c] = struct{}{}
		}
	}
	need := a.engine.blocksFor(tokens)
	for _, block := range s.rng.Perm(a.shape.blocks) {
		if len(r.blocks) < need && a.engine.owner[r.dp][int32(block)] == "" {
			r.blocks = append(r.blocks, int32(block))
			a.engine.owner[r.dp][int32(block)] = id
		}
	}
	a.engine.requests[id] = r
	return r
}

// free gives the blocks back, poisoned, to be used again soon.
func (e *engine) free(r *request, memory map[uint32][]byte) {
	if r.freed {
		return
	}
	r.freed = true
	for _, block := range r.blocks {
		e.owner[r.dp][block] = ""
		for tp := range e.shape.tp {
			for _, region := range e.regions(r.dp, tp) {
				if m := memory[e.memoryID(r.dp, tp)]; m != nil {
					clear(m[region.Offset+int64(block)*region.BlockStride:][:region.BlockStride])
				}
			}
		}
	}
}

// requestActs sends the next message of a request. It reports false when nothing is left.
func (s *sim) requestActs(a *agent, r *request) bool {
	c := scheduler(r.dp)
	_, lost := r.lost[c]
	schedules := a.engine.up[c] && !lost && !r.abortSent
	send := func(m kvproto.Message) bool {
		s.step(a, session.EngineMessage{Conn: c, Message: m})
		return true
	}
	if s.faults && schedules && s.rng.IntN(60) == 0 {
		r.abortSent = true
		return send(kvproto.Abort{Transfer: r.id})
	}
	if schedules && !r.expectSent {
		r.expectSent = true
		return send(kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte("h")})
	}
	if a.shape.role == kvlayout.Decode {
		return schedules && s.receives(a, r)
	}
	return schedules && s.holds(a, r) || s.workerActs(a, r)
}

// holds keeps prefill's blocks for the transfer, before its workers save or after.
func (s *sim) holds(a *agent, r *request) bool {
	if r.blocksSent || r.mute || (s.rng.IntN(2) == 0 && len(r.sealed) < a.shape.tp) {
		return false
	}
	r.blocksSent = true
	r.joined(a)
	s.step(a, session.EngineMessage{Conn: scheduler(r.dp), Message: kvproto.Hold{Transfer: r.id, Blocks: r.blocks, Tokens: r.tokens}})
	return true
}

// receives asks for the transfer into decode's blocks.
func (s *sim) receives(a *agent, r *request) bool {
	if r.blocksSent || r.mute {
		return false
	}
	r.blocksSent = true
	r.joined(a)
	s.step(a, session.EngineMessage{Conn: scheduler(r.dp), Message: kvproto.Receive{
		Transfer: r.id, Blocks: r.blocks, FirstToken: r.first, Tokens: r.tokens,
		Peer: kvproto.Peer{Host: r.peer.host, Handshake: 1, Notify: 2, DP: r.peerDP, TPSize: r.peer.tp},
	}})
	return true
}

// joined: the workers that are up when the blocks are named have a part from there on.
func (r *request) joined(a *agent) {
	for tp := range a.shape.tp {
		c := worker(r.dp, tp)
		delete(r.lost, c)
		if !a.engine.up[c] {
			r.lost[c] = struct{}{}
		}
	}
}

// workerActs computes a layer on some rank and says so, or seals.
func (s *sim) workerActs(a *agent, r *request) bool {
	if r.mute || r.freed {
		return false
	}
	for _, tp := range s.rng.Perm(a.shape.tp) {
		c := worker(r.dp, tp)
		if !a.engine.up[c] || r.sealed[tp] {
			continue
		}
		delete(r.lost, c)
		r.touched[c] = true
		if layer := r.saved[tp]; layer < a.shape.layers {
			r.saved[tp]++
			memory := a.memory[a.engine.memoryID(r.dp, tp)]
			eachRow(a.shape, a.engine.regions(r.dp, tp), layer, tp, r.tokens, r.blocks, func(head, token int, at, length int64) {
				for k := range length {
					memory[at+k] = content(r.id, layer, head, token, k)
				}
			})
			s.step(a, session.EngineMessage{Conn: c, Message: kvproto.Save{Transfer: r.id, Layer: layer}})
			return true
		}
		r.sealed[tp] = true
		s.step(a, session.EngineMessage{Conn: c, Message: kvproto.Sealed{Transfer: r.id}})
		return true
	}
	return false
}

// checkAnswered: whoever was owed an answer has got it.
func (s *sim) checkAnswered(a *agent) {
	for _, r := range a.engine.requests {
		c := scheduler(r.dp)
		_, lost := r.lost[c]
		if !lost && r.answer == "" && (r.blocksSent || r.abortSent) {
			s.violation("%s: the scheduler was never answered for %s", a.shape.host, r.id)
		}
		for tp := range a.shape.tp {
			c := worker(r.dp, tp)
			_, lost := r.lost[c]
			owed := r.blocksSent || (len(r.touched) > 0 && !r.abortSent)
			if _, told := r.told[c]; !lost && owed && !told {
				s.violation("%s: worker %d/%d was never told how %s ended", a.shape.host, r.dp, tp, r.id)
			}
		}
	}
}
