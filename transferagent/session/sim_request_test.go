package session_test

import (
	"fmt"
	"slices"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// engineActs does the next thing for some request, or starts one.
func (s *sim) engineActs() bool {
	if s.comeBack() {
		return true
	}
	if s.wanted > 0 && (s.calm || s.rng.IntN(6) == 0) && s.startRequest() {
		s.wanted--
		return true
	}
	for _, i := range s.rng.Perm(len(s.agents)) {
		a := s.agents[i]
		if !a.runs() {
			continue // what the engine says waits in the socket
		}
		for _, j := range s.rng.Perm(len(a.engine.requests)) {
			if r := a.engine.requests[j]; !r.over && s.requestActs(a, r) {
				return true
			}
		}
	}
	return false
}

// comeBack has engines do what they do after they have lost their agent.
func (s *sim) comeBack() bool {
	for _, a := range s.agents {
		if s.ownLeases(a) {
			return true
		}
		if !a.engine.complete() && (s.calm || s.rng.IntN(8) == 0) && s.engineUp(a) {
			return true
		}
	}
	return false
}

// ownLeases frees what an engine has kept since it lost its agent.
func (s *sim) ownLeases(a *agent) bool {
	for _, r := range a.engine.requests {
		if r.restless && !r.freed && !r.quietAt.IsZero() && !s.now.Before(r.quietAt) {
			s.logf("%s: %s is quiet, as the lease is over", a.shape.host, r.id)
			a.engine.free(r)
			return true
		}
	}
	return false
}

// startRequest gives a request to a prefill and a decode engine, as the router does.
// It waits for room at both. Now and then it has an id that was used before, for the
// same prompt or another.
func (s *sim) startRequest() bool {
	p := s.pick(func(a *agent) bool { return a.shape.role == kvlayout.Prefill })
	d := s.pick(func(a *agent) bool { return a.shape.role == kvlayout.Decode })
	tokens := 1 + s.rng.IntN(3*s.pairs[0].block)
	id := fmt.Sprintf("t%d", len(s.ids))
	prompt := id
	if s.faults && len(s.ids) > 0 && s.rng.IntN(3) == 0 {
		id = s.ids[s.rng.IntN(len(s.ids))]
		if s.rng.IntN(2) == 0 {
			prompt = id
		}
	}
	return s.begin(p, d, id, prompt, tokens, s.rng.IntN(p.shape.dp), s.rng.IntN(d.shape.dp))
}

// begin starts a request if both engines take it.
func (s *sim) begin(p, d *agent, id, prompt string, tokens, pdp, ddp int) bool {
	if !p.engine.takes(pdp, id, tokens) || !d.engine.takes(ddp, id, tokens) {
		return false
	}
	if slices.Contains(s.ids, id) {
		s.tally["id used again"]++
	}
	s.ids = append(s.ids, id)
	pr := s.newRequest(p, id, prompt, pdp, tokens)
	dr := s.newRequest(d, id, prompt, ddp, tokens)
	if s.rng.IntN(3) == 0 {
		dr.first = s.rng.IntN(tokens + 1)
	}
	peer := p.shape
	dr.peer, dr.peerDP = &peer, pr.dp
	if s.faults && (s.rng.IntN(10) == 0 || s.limits.Transfers > 0 && s.rng.IntN(2) == 0) {
		pr.prompt += "?" // the engines work on different prompts
	}
	s.logf("%s: %s; %s: %s", p.shape.host, pr, d.shape.host, dr)
	return true
}

// takes says whether an engine admits a request: it has a scheduler and room, and no
// live request of the id.
func (e *engine) takes(dp int, id string, tokens int) bool {
	old := e.byID[dp][id]
	return e.up[scheduler(dp)] && (old == nil || old.freed) && e.room(dp, tokens)
}

func (s *sim) newRequest(a *agent, id, prompt string, dp, tokens int) *request {
	e := a.engine
	r := &request{
		id: id, prompt: prompt, dp: dp, tokens: tokens, mute: s.faults && s.rng.IntN(15) == 0,
		saved: map[int]int{}, sealed: map[int]bool{}, touched: map[session.Conn]bool{}, told: map[session.Conn]string{}, lost: map[session.Conn]struct{}{},
	}
	for _, c := range e.conns {
		if c.DP == r.dp && !e.up[c] {
			r.lost[c] = struct{}{}
		}
	}
	need := e.blocksFor(tokens)
	for _, block := range s.rng.Perm(e.shape.blocks) {
		if len(r.blocks) < need && e.owner[dp][int32(block)] == nil {
			r.blocks = append(r.blocks, int32(block))
			e.owner[dp][int32(block)] = r
		}
	}
	e.requests = append(e.requests, r)
	e.byID[dp][id] = r
	return r
}

// requestActs sends the next message of a request. It reports false when nothing is left.
func (s *sim) requestActs(a *agent, r *request) bool {
	if a.shape.role == kvlayout.Prefill && s.late == latePrefill {
		return false
	}
	c := scheduler(r.dp)
	_, lost := r.lost[c]
	schedules := a.engine.up[c] && !lost && !r.abortSent && a.engine.byID[r.dp][r.id] == r
	if schedules && s.scheduleActs(a, r) {
		return true
	}
	return a.shape.role == kvlayout.Prefill && s.workerActs(a, r)
}

func (s *sim) scheduleActs(a *agent, r *request) bool {
	switch {
	case s.faults && !s.calm && (r.answer == "" && s.rng.IntN(300) == 0 || s.rng.IntN(5000) == 0):
		s.tally["abort"]++
		r.abortSent = true
		s.say(a, r, kvproto.Abort{Transfer: r.id})
	case !r.expectSent:
		r.expectSent = true
		r.begins(a)
		expect := kvproto.Expect{Transfer: r.id, Tokens: r.tokens, Hash: []byte(r.prompt)}
		if a.shape.role == kvlayout.Decode && s.rng.IntN(4) > 0 {
			expect.Peer = kvproto.Peer{Host: r.peer.host, Handshake: 1, Notify: 2, DP: r.peerDP, TPSize: r.peer.tp}
			r.named = true
		}
		s.say(a, r, expect)
	case a.shape.role == kvlayout.Decode:
		return s.receives(a, r)
	default:
		return s.holds(a, r)
	}
	return true
}

// say sends a message of the scheduler and takes a refusal.
func (s *sim) say(a *agent, r *request, m kvproto.Message) {
	if err := s.step(a, session.EngineMessage{Conn: scheduler(r.dp), Message: m}); err != nil {
		if _, expect := m.(kvproto.Expect); expect {
			r.named = false
		}
		s.refusedBy(a, r, m)
	}
}

// holds keeps prefill's blocks for the transfer, before its workers save or after.
func (s *sim) holds(a *agent, r *request) bool {
	if r.blocksSent || r.mute || (s.rng.IntN(2) == 0 && len(r.sealed) < a.shape.tp) {
		return false
	}
	r.blocksSent = true
	r.joined(a)
	s.say(a, r, kvproto.Hold{Transfer: r.id, Blocks: r.blocks, Tokens: r.tokens})
	return true
}

// receives asks for the transfer into decode's blocks.
func (s *sim) receives(a *agent, r *request) bool {
	if r.blocksSent || r.mute || s.late == lateDecode {
		return false
	}
	r.blocksSent = true
	r.joined(a)
	s.say(a, r, kvproto.Receive{
		Transfer: r.id, Blocks: r.blocks, FirstToken: r.first, Tokens: r.tokens,
		Peer: kvproto.Peer{Host: r.peer.host, Handshake: 1, Notify: 2, DP: r.peerDP, TPSize: r.peer.tp},
	})
	return true
}

// begins: with the first message of a request the agent sees which workers are up.
func (r *request) begins(a *agent) {
	if !r.begun {
		r.begun = true
		r.joined(a)
	}
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
		if !a.engine.up[c] || r.sealed[tp] || s.late == lateLayers && r.saved[tp] > 0 {
			continue
		}
		r.begins(a)
		delete(r.lost, c)
		r.touched[c] = true
		m := kvproto.Message(kvproto.Sealed{Transfer: r.id})
		if layer := r.saved[tp]; layer < a.shape.layers {
			r.saved[tp]++
			a.engine.compute(r, tp, layer)
			m = kvproto.Save{Transfer: r.id, Layer: layer}
		} else {
			r.sealed[tp] = true
		}
		if err := s.step(a, session.EngineMessage{Conn: c, Message: m}); err != nil {
			r.unserved = true // nobody answers a worker for a transfer that is not its own
		}
		return true
	}
	return false
}

// compute fills the rows of a layer on one rank.
func (e *engine) compute(r *request, tp, layer int) {
	bytes := e.memory[worker(r.dp, tp)].bytes
	eachRow(e.shape, e.regions(r.dp, tp), layer, tp, r.tokens, r.blocks, func(head, token int, at, length int64) {
		for k := range length {
			bytes[at+k] = content(r.prompt, layer, head, token, k)
		}
	})
}

// notice is what the engine hears.
func (s *sim) notice(a *agent, n session.Notice) {
	id := kvproto.TransferOf(n.Message)
	if _, known := a.engine.known[n.Conn]; known && !a.engine.up[n.Conn] {
		return // the agent has yet to notice that nobody listens
	}
	r := a.engine.byID[n.Conn.DP][id]
	if r == nil {
		s.violation("%s: %s is told %s of a transfer that it never had", a.shape.host, connText(n.Conn), noticeText(n.Message))
		return
	}
	if _, lost := r.lost[n.Conn]; lost || !a.engine.up[n.Conn] {
		s.violation("%s: %s is told %s, but its connection is a new one or down", a.shape.host, connText(n.Conn), noticeText(n.Message))
	}
	if n.Conn.Kind == kvproto.Worker {
		s.workerTold(a, r, n)
		return
	}
	s.schedulerTold(a, r, n)
}

func (s *sim) workerTold(a *agent, r *request, n session.Notice) {
	if before, twice := r.told[n.Conn]; twice {
		s.violation("%s: %s is told %s after %s", a.shape.host, connText(n.Conn), noticeText(n.Message), before)
	}
	switch n.Message.(type) {
	case kvproto.Done, kvproto.Failed:
	default:
		s.violation("%s: a worker is told %s", a.shape.host, noticeText(n.Message))
	}
	r.told[n.Conn] = noticeText(n.Message)
}

func (s *sim) schedulerTold(a *agent, r *request, n session.Notice) {
	_, quiet := n.Message.(kvproto.Quiet)
	_, released := n.Message.(kvproto.Released)
	_, done := n.Message.(kvproto.Done)
	prefill := a.shape.role == kvlayout.Prefill
	switch {
	case quiet && !r.abortSent, !quiet && !r.blocksSent, r.over:
		s.violation("%s: the scheduler is told %s unasked", a.shape.host, noticeText(n.Message))
	case prefill && done, !prefill && released:
		s.violation("%s: the %s scheduler is told %s", a.shape.host, a.shape.role, noticeText(n.Message))
	case r.answer != "" && (!quiet || r.answer == noticeText(n.Message)):
		s.violation("%s: the scheduler is told %s after %s", a.shape.host, noticeText(n.Message), r.answer)
	}
	first := r.answer == ""
	r.answer = noticeText(n.Message)
	if !first {
		return
	}
	s.checkQuiet(a, r.id)
	if done {
		s.checkRows(a, r)
	}
	if !prefill {
		if done {
			s.tally["transfer done"]++
		} else {
			s.tally["transfer failed"]++
		}
	}
	a.engine.free(r)
}
