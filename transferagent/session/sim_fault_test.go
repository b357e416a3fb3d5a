package session_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// tally counts what has happened, so that a schedule that no longer does something
// is noticed.
type tally map[string]int

// kinds are what a thousand schedules have to contain.
var kinds = []string{
	"transfer done", "transfer failed", "request refused", "id used again", "engine restarted", "engine lost its agent",
	"worker lost", "agent restarted alone", "agent killed", "pod restarted", "other memory", "agent frozen", "frozen too long",
	"partition", "session cut", "clock jumped", "message lost", "write into the memory of a dead agent", "stray placed",
	"copy failed", "order stalled", "revoke waits for a lease", "blocks kept for a lease", "abort",
	"released before blocks",
}

func (t tally) add(o tally) {
	for kind, n := range o {
		t[kind] += n
	}
}

func (t tally) missing() []string {
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool { return t[kind] > 0 })
}

func (t tally) String() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, t[kind]))
	}
	return strings.Join(parts, ", ")
}

func pairOf(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// strike breaks something, or mends it.
func (s *sim) strike() {
	a := s.agents[s.rng.IntN(len(s.agents))]
	peer := s.agents[s.rng.IntN(len(s.agents))]
	if s.rng.IntN(2) == 0 {
		a, peer = s.busy(a, peer)
	}
	blows := []struct {
		often int
		land  func()
	}{
		{2, func() { s.loseWorker(a) }},
		{1, func() { s.restartEngine(a) }},
		{1, func() { s.dropLink(a) }},
		{2, func() { s.killAgent(a) }},
		{1, func() { s.restartPod(a) }},
		{2, func() { s.freeze(a) }},
		{2, func() { s.partition(a, peer) }},
		{1, func() { s.cutSession(a, peer) }},
		{1, func() { s.advance() }},
		{1, func() { s.pass(a, time.Duration(s.rng.IntN(40))*time.Second) }},
		{1, func() { s.jump(a) }},
		{1, s.lose},
	}
	sum := 0
	for _, b := range blows {
		sum += b.often
	}
	n := s.rng.IntN(sum)
	for _, b := range blows {
		if n -= b.often; n < 0 {
			b.land()
			return
		}
	}
}

// lose drops a message that is under way.
func (s *sim) lose() {
	if len(s.net) > 0 {
		s.tally["message lost"]++
		i := s.rng.IntN(len(s.net))
		s.net = append(s.net[:i], s.net[i+1:]...)
	}
}

// busy is a pod that bytes are on their way to, and where they come from.
func (s *sim) busy(a, peer *agent) (reader, writer *agent) {
	for _, i := range s.rng.Perm(len(s.agents)) {
		if open := s.ordersTo(s.agents[i]); len(open) > 0 {
			return s.agents[i], open[s.rng.IntN(len(open))].session.writer
		}
	}
	return a, peer
}

// pass lets time pass, which one agent notices at once.
func (s *sim) pass(a *agent, d time.Duration) {
	s.now = s.now.Add(d)
	s.tick(a)
}

func (s *sim) tick(a *agent) {
	if a.runs() {
		_ = s.step(a, session.Tick{})
	}
}

// ambush strikes while bytes are on their way: reader and writer lose each other, and
// the reader's engine wants its blocks back, or the reader's agent dies or freezes.
func (s *sim) ambush(m *moving) {
	reader := m.session.reader
	if !s.connected(m.session) {
		return
	}
	switch s.rng.IntN(4) {
	case 0:
		s.partition(reader, m.session.writer)
	case 1:
		s.freeze(m.session.writer)
	case 2:
		s.replaceAgent(reader)
		return
	case 3:
		// What it has received by then it places when it goes on.
		s.abandon(m)
		s.freeze(reader)
		s.dropLink(reader)
		if s.rng.IntN(2) == 0 {
			s.now = s.now.Add(lease + 2*margin)
		}
		return
	}
	r := reader.engine.byID[m.order.ReaderDP][m.order.Transfer]
	if r != nil && !r.over && !r.abortSent && reader.engine.up[scheduler(r.dp)] {
		s.tally["abort"]++
		r.abortSent = true
		s.say(reader, r, kvproto.Abort{Transfer: r.id})
	}
}

// longestJump bounds by how much all jumps of a clock together set it back.
const longestJump = 300 * time.Second

// jump sets the clock of an agent, forward or back.
func (s *sim) jump(a *agent) {
	s.tally["clock jumped"]++
	if a.skew += time.Duration(s.rng.IntN(4000)-1000) * time.Second / 10; a.skew < -longestJump {
		a.skew = -longestJump
	}
	s.logf("%s: the clock is off by %s", a.shape.host, a.skew)
	s.tick(a)
}

// killAgent ends an agent's process, or starts it again. Its engine goes on.
func (s *sim) killAgent(a *agent) {
	if a.dead {
		s.logf("%s: a new agent starts", a.shape.host)
		s.tally["agent restarted alone"]++
		s.bootAgent(a)
		return
	}
	s.logf("%s: the agent is killed", a.shape.host)
	s.tally["agent killed"]++
	s.loseAgent(a)
	if s.rng.IntN(2) == 0 {
		s.killAgent(a)
	}
	s.noticeEnd(a)
}

// replaceAgent restarts an agent so fast that its engine is there again before a peer
// has noticed.
func (s *sim) replaceAgent(a *agent) {
	s.logf("%s: the agent restarts at once", a.shape.host)
	s.tally["agent killed"]++
	s.tally["agent restarted alone"]++
	s.loseAgent(a)
	s.bootAgent(a)
	s.engineUp(a)
}

// loseAgent ends the process.
func (s *sim) loseAgent(a *agent) {
	s.disconnect(a)
	a.dead = true
	for _, m := range a.orders {
		m.session.over = true
	}
	a.orders, a.late, a.dials, a.revokes, a.strays = nil, nil, nil, nil, nil
	s.linkLost(a)
}

// noticeEnd has some peers notice at once that an agent has gone.
func (s *sim) noticeEnd(a *agent) {
	for _, peer := range s.agents {
		if s.rng.IntN(2) == 0 {
			s.cutSession(peer, a)
		}
	}
}

// restartPod replaces a pod's agent and engine by ones with other memory.
func (s *sim) restartPod(a *agent) {
	s.logf("%s: the pod restarts", a.shape.host)
	s.tally["pod restarted"]++
	s.loseAgent(a)
	a.engine.die()
	if blocks := 10 + s.rng.IntN(6); blocks != a.shape.blocks {
		s.tally["other memory"]++
		a.shape.blocks = blocks
	}
	a.engine = newEngine(a.shape)
	s.bootAgent(a)
	s.engineUp(a)
	s.noticeEnd(a)
}

// freeze stops an agent's process, or lets it go on.
func (s *sim) freeze(a *agent) {
	switch {
	case a.dead:
	case a.frozen.IsZero():
		s.logf("%s: the agent freezes", a.shape.host)
		s.tally["agent frozen"]++
		s.disconnect(a)
		a.frozen = s.now
	default:
		s.thaw(a)
	}
}

func (s *sim) thaw(a *agent) {
	s.logf("%s: the agent thaws", a.shape.host)
	if s.now.Sub(a.frozen) > lease {
		s.tally["frozen too long"]++
	}
	a.frozen = time.Time{}
	s.reconnect()
	s.tick(a)
}

// hear: an agent that was frozen comes to what its engine did meanwhile. Until then
// it goes on with what it was at.
func (s *sim) hear() bool {
	a := s.pick(func(a *agent) bool { return a.runs() && a.engine.unheard })
	if a == nil {
		return false
	}
	s.agentHearsLoss(a)
	return true
}

// partition separates two pods, or lets them find each other again.
func (s *sim) partition(a, b *agent) {
	if a.shape.role == b.shape.role {
		return
	}
	pair := pairOf(a.shape.host, b.shape.host)
	if s.cuts[pair] {
		s.logf("%s and %s can reach each other again", pair[0], pair[1])
		delete(s.cuts, pair)
		s.reconnect()
		return
	}
	s.logf("%s and %s can't reach each other", pair[0], pair[1])
	s.tally["partition"]++
	for _, x := range s.sessions {
		if pairOf(x.writer.shape.host, x.reader.shape.host) == pair {
			s.runOut(x)
		}
	}
	s.cuts[pair] = true
}

// cutSession ends what connects two agents, as one of them sees it.
func (s *sim) cutSession(a, peer *agent) {
	if a.shape.role == peer.shape.role || !a.runs() {
		return
	}
	s.tally["session cut"]++
	for _, m := range a.orders {
		if m.order.Peer.Host == peer.shape.host {
			m.session.over = true
		}
	}
	_ = s.step(a, session.PeerGone{Peer: peer.shape.peer()})
}

// settle mends everything for good.
func (s *sim) settle() {
	s.logf("CALM")
	s.calm, s.calmed = true, s.now
	clear(s.cuts)
	for _, a := range s.agents {
		if a.dead {
			s.killAgent(a)
		}
		if !a.frozen.IsZero() {
			s.thaw(a)
		}
	}
	s.reconnect()
}

func (a *agent) metadata() *moriio.Metadata {
	self := a.shape.config().Self
	self.Ranks = a.engine.ranks
	return &moriio.Metadata{PDPool: &self}
}
