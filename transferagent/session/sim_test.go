package session_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/session"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "play only this schedule of TestSimulation, with a trace")
	simCount = flag.Uint64("sim.count", 0, "play that many schedules of TestSimulation, however long it takes")
)

// TestSimulation plays seeded schedules of several agents of both roles over a
// network that drops, delays, reorders and duplicates, with engines and agents that
// die, and movers that copy real bytes. See sim.check for what has to hold.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		s := newSim(*simSeed)
		s.tracing = true
		err := s.play()
		t.Log(strings.Join(s.trace, "\n"))
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	schedules, budget := uint64(4000), 4*time.Second
	if testing.Short() {
		schedules = 300
	}
	if *simCount > 0 {
		schedules, budget = *simCount, time.Hour
	}
	began := time.Now()
	first := uint64(began.UnixNano()) & 0xffffffff
	var done, failed int
	seed := first
	for seed < first+schedules && (seed < first+300 || time.Since(began) < budget) {
		seed++
		s := newSim(seed)
		if err := s.play(); err != nil {
			t.Fatalf("seed %d: %v\n(go test -run TestSimulation -sim.seed %d -v shows the trace)", seed, err, seed)
		}
		done, failed = done+s.done, failed+s.failed
	}
	t.Logf("seeds %d to %d: %d transfers done, %d failed", first+1, seed, done, failed)
	if done == 0 || failed == 0 {
		t.Errorf("the schedules are one-sided: %d transfers done, %d failed", done, failed)
	}
}

// sim is one schedule.
type sim struct {
	rng     *rand.Rand
	now     time.Time
	faults  bool // drops, deaths and aborts; without, every transfer has to succeed
	pairs   [2]shape
	agents  []*agent
	net     []envelope
	nextID  int
	wanted  int // requests still to start
	calm    bool
	done    int // transfers that ended well at decode
	failed  int
	dials   map[string]int
	tracing bool
	trace   []string
	wrong   error // the first violation
}

type envelope struct {
	to   string
	wire []byte
}

// agent is a pod: machine, mover and engine.
type agent struct {
	shape   shape
	machine session.Machine
	dials   []session.Peer
	orders  []*moving
	strays  []stray             // sent by writers that gave up on them, not placed yet
	revokes []string            // asked for
	refused map[string]struct{} // by the mover
	barred  map[string]struct{} // refused, and answered by Revoked
	memory  map[uint32][]byte
	nextMem uint32
	engine  *engine
	ended   map[string]struct{} // told to have ended
}

func newSim(seed uint64) *sim {
	s := &sim{rng: rand.New(rand.NewPCG(seed, 1)), now: start, dials: map[string]int{}}
	s.faults = s.rng.IntN(4) > 0
	s.wanted = 1 + s.rng.IntN(5)
	s.pairs = simPairs[s.rng.IntN(len(simPairs))]
	for i := range 1 + s.rng.IntN(2) {
		s.agents = append(s.agents, s.newAgent(s.pairs[0], kvlayout.Prefill, fmt.Sprintf("p%d", i)))
	}
	for i := range 1 + s.rng.IntN(2) {
		s.agents = append(s.agents, s.newAgent(s.pairs[1], kvlayout.Decode, fmt.Sprintf("d%d", i)))
	}
	return s
}

// simPairs are layouts that fit together, small.
var simPairs = func() [][2]shape {
	pair := func(kind kvlayout.Kind, heads, block, ptp, pdp, pdcp, dtp, ddp, ddcp, il int) [2]shape {
		p := shape{tp: ptp, dp: pdp, dcp: pdcp, il: 1, block: block, blocks: 12, pairing: "k", kind: kind, kvHeads: heads, layers: 2}
		d := p
		d.tp, d.dp, d.dcp, d.il = dtp, ddp, ddcp, il
		if pdcp > 1 {
			p.il = il
		}
		return [2]shape{p, d}
	}
	mla, gqa := kvlayout.MLA, kvlayout.GQA
	return [][2]shape{
		pair(mla, 1, 4, 1, 1, 1, 1, 1, 1, 1),
		pair(mla, 1, 4, 2, 1, 1, 4, 1, 4, 2),
		pair(mla, 1, 4, 4, 1, 1, 2, 1, 2, 1),
		pair(mla, 1, 2, 2, 1, 2, 2, 1, 2, 2),
		pair(gqa, 4, 4, 4, 1, 1, 2, 1, 1, 1),
		pair(gqa, 4, 2, 1, 2, 1, 2, 1, 1, 1),
		pair(gqa, 2, 4, 4, 1, 1, 2, 2, 1, 1),
	}
}()

func (s *sim) newAgent(shape shape, role kvlayout.Role, host string) *agent {
	shape.role, shape.host, shape.epoch = role, host, s.rng.Uint64()|1
	a := &agent{shape: shape, nextMem: s.rng.Uint32N(1000)}
	s.boot(a)
	return a
}

// boot starts a new incarnation of an agent and its engine.
func (s *sim) boot(a *agent) {
	cfg := a.shape.config()
	a.machine = newMachine(cfg, a.shape.role)
	a.dials, a.orders, a.strays, a.revokes = nil, nil, nil, nil
	a.refused, a.barred = map[string]struct{}{}, map[string]struct{}{}
	a.memory, a.ended = map[uint32][]byte{}, map[string]struct{}{}
	a.engine = newEngine(a.shape)
	s.engineUp(a)
}

func (s *sim) find(host string) *agent {
	for _, a := range s.agents {
		if a.shape.host == host {
			return a
		}
	}
	return nil
}

func (s *sim) logf(format string, args ...any) {
	if s.tracing {
		s.trace = append(s.trace, s.now.Sub(start).String()+" "+fmt.Sprintf(format, args...))
	}
}

func (s *sim) violation(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	s.logf("VIOLATION %v", err)
	if s.wrong == nil {
		s.wrong = err
	}
}

// step feeds a machine and takes what it wants done.
func (s *sim) step(a *agent, ev session.Event) {
	s.logf("%s < %T %+v", a.shape.host, ev, ev)
	if err := a.machine.Step(s.now, ev); err != nil {
		s.logf("%s   %v", a.shape.host, err)
		var wrong *session.EventError
		if !errors.As(err, &wrong) || wrong.Reason == "" {
			s.violation("%s: untyped error %v", a.shape.host, err)
		}
	}
	r := a.machine.Ready()
	s.checkEnded(a, r.Ended)
	for _, n := range r.Notices {
		s.logf("%s > %s %s", a.shape.host, connText(n.Conn), noticeText(n.Message))
		s.notice(a, n)
	}
	for _, m := range r.Messages {
		s.logf("%s > %s %s", a.shape.host, m.Peer.Host, messageText(m.Message))
		s.net = append(s.net, envelope{m.Peer.Host, wire(m.Message)})
	}
	for _, p := range r.Dials {
		s.logf("%s > dial %s", a.shape.host, p.Host)
		s.dials[a.shape.host+">"+p.Host]++
		for _, open := range a.dials {
			if open == p {
				s.violation("%s dials %s twice at once", a.shape.host, p)
			}
		}
	}
	for _, o := range r.Copies {
		s.logf("%s > copy %s", a.shape.host, orderText(o))
		a.orders = append(a.orders, &moving{order: o})
	}
	a.dials = append(a.dials, r.Dials...)
	for _, id := range r.Revokes {
		s.logf("%s > revoke %s", a.shape.host, id)
		a.revokes = append(a.revokes, id)
		a.refused[id] = struct{}{}
	}
	if left := a.machine.Ready(); len(left.Notices)+len(left.Messages)+len(left.Copies) > 0 {
		s.violation("%s: Ready returns things twice", a.shape.host)
	}
}

// play runs the schedule: a wild part, then a calm one in which everything that
// waits has to end.
func (s *sim) play() error {
	for range 150 + s.rng.IntN(250) {
		s.act()
		if s.wrong != nil {
			return s.wrong
		}
	}
	s.calm = true
	for range 20_000 {
		if !s.act() && !s.advance() {
			s.checkEnd()
			return s.wrong
		}
		if s.wrong != nil {
			return s.wrong
		}
	}
	return errors.New("the schedule does not come to an end")
}

// act does one random thing that can happen, and reports whether there was any.
func (s *sim) act() bool {
	s.now = s.now.Add(time.Duration(s.rng.IntN(1000)) * time.Microsecond)
	if s.faults && !s.calm && s.rng.IntN(40) == 0 {
		s.strike()
		return true
	}
	actions := []func() bool{s.deliver, s.answerDial, s.move, s.land, s.answerRevoke, s.engineActs, s.engineActs}
	for _, i := range s.rng.Perm(len(actions)) {
		if actions[i]() {
			return true
		}
	}
	return false
}

// advance lets time pass to the next deadline. It reports false when there is none.
func (s *sim) advance() bool {
	var next *agent
	var at time.Time
	for _, a := range s.agents {
		if due, ok := a.machine.Deadline(); ok && (next == nil || due.Before(at)) {
			next, at = a, due
		}
	}
	if next == nil {
		return false
	}
	if at.After(s.now) {
		s.now = at
	}
	s.step(next, session.Tick{})
	return true
}

// strike breaks something.
func (s *sim) strike() {
	a := s.agents[s.rng.IntN(len(s.agents))]
	switch s.rng.IntN(8) {
	case 0, 1:
		s.loseWorker(a)
	case 2:
		s.restartEngine(a)
	case 3:
		s.restartAgent(a)
	case 4:
		peer := s.agents[s.rng.IntN(len(s.agents))]
		if peer.shape.role != a.shape.role {
			s.cutSession(a, peer)
		}
	case 5:
		s.advance()
	case 6:
		s.now = s.now.Add(time.Duration(s.rng.IntN(40)) * time.Second)
		s.step(a, session.Tick{})
	case 7:
		if len(s.net) > 0 {
			i := s.rng.IntN(len(s.net))
			s.net = append(s.net[:i], s.net[i+1:]...)
		}
	}
}

// deliver hands over one message, any of those under way.
func (s *sim) deliver() bool {
	if len(s.net) == 0 {
		return false
	}
	i := s.rng.IntN(len(s.net))
	e := s.net[i]
	if s.rng.IntN(10) > 0 || s.calm {
		s.net = append(s.net[:i], s.net[i+1:]...)
	}
	message, err := unwire(e.wire)
	if err != nil {
		s.violation("a message that no peer can read: %v", err)
		return true
	}
	if s.faults && !s.calm && s.rng.IntN(25) == 0 {
		s.logf("lost: %s", messageText(message))
		return true
	}
	s.step(s.find(e.to), session.PeerMessage{Message: message})
	return true
}

func (s *sim) answerDial() bool {
	a := s.pick(func(a *agent) bool { return len(a.dials) > 0 })
	if a == nil {
		return false
	}
	at := a.dials[0]
	a.dials = a.dials[1:]
	peer := s.find(at.Host)
	ev := session.Handshaken{Peer: at}
	if (s.faults && !s.calm && s.rng.IntN(8) == 0) || !peer.engine.complete() {
		ev.Err = errors.New("no answer")
	} else {
		ev.Metadata = peer.metadata()
	}
	s.step(a, ev)
	return true
}

func (a *agent) metadata() *moriio.Metadata {
	self := a.shape.config().Self
	self.Ranks = a.engine.ranks
	return &moriio.Metadata{PDPool: &self}
}

// pick chooses an agent that has something to do.
func (s *sim) pick(can func(*agent) bool) *agent {
	for _, i := range s.rng.Perm(len(s.agents)) {
		if can(s.agents[i]) {
			return s.agents[i]
		}
	}
	return nil
}

// restartAgent replaces a whole pod's agent and engine; peers may notice.
func (s *sim) restartAgent(a *agent) {
	s.logf("%s restarts", a.shape.host)
	a.shape.epoch = s.rng.Uint64() | 1
	s.boot(a)
	for _, peer := range s.agents {
		if peer.shape.role != a.shape.role && s.rng.IntN(2) == 0 {
			s.cutSession(peer, a)
		}
	}
}

// cutSession ends what connects two agents, as one of them sees it.
func (s *sim) cutSession(a, peer *agent) {
	for _, m := range a.orders {
		if m.order.Peer.Host == peer.shape.host {
			m.cut = true
		}
	}
	s.step(a, session.PeerGone{Peer: peer.shape.peer()})
}
