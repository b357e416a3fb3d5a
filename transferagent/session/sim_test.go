package session_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/session"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "play only this schedule of TestSimulation, with a trace")
	simCount = flag.Uint64("sim.count", 1500, "play that many schedules of TestSimulation")
	simFirst = flag.Uint64("sim.first", 1, "the seed of the first one; 0 for a random one")
)

// TestSimulation plays seeded schedules of several pods of both roles over a network
// that loses, delays, reorders and doubles messages and falls apart and heals. Agents
// and engines die, alone or together, freeze, and come back with another memory;
// clocks jump; copies of real bytes are slow, fail, or go on after the death of the
// agent that they go to. sim_fault_test.go has what happens; sim_check_test.go what has
// to hold after each event, at the end of each transfer and when all is quiet.
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
	count, first := *simCount, *simFirst
	if testing.Short() {
		count = min(count, 300)
	}
	if first == 0 {
		first = uint64(time.Now().UnixNano()) & 0xffffffff
	}
	total := tally{}
	for seed := first; seed < first+count; seed++ {
		s := newSim(seed)
		if err := s.play(); err != nil {
			t.Fatalf("seed %d: %v\n(replay with a trace: go test ./transferagent/session -run 'TestSimulation$' -sim.seed %d -v)", seed, err, seed)
		}
		total.add(s.tally)
	}
	t.Logf("seeds %d to %d: %s", first, first+count-1, total)
	if missing := total.missing(); count >= 1000 && len(missing) > 0 {
		t.Errorf("the schedules are one-sided, they have no %s", strings.Join(missing, ", no "))
	}
}

// sim is one schedule.
type sim struct {
	rng    *rand.Rand
	now    time.Time // of the world; the agents' clocks are off by agent.skew
	faults bool      // without, every transfer has to succeed
	rate   int       // of actions to one fault
	late   late      // engines that keep the others waiting for long
	mapped bool      // writers have mapped the readers' memory; else they send streams
	limits session.Limits
	pairs  [2]shape
	agents []*agent
	net    []envelope
	cuts   map[[2]string]bool // pairs of hosts without a connection, in order
	// sessions are of movers, by writer and reader.
	sessions map[[2]string]*moverSession
	ids      []string // of transfers, in order
	wanted   int      // requests still to start
	calm     bool
	calmed   time.Time
	dials    map[string]int
	broken   map[string]bool // transfers of which a copy has failed somewhere
	tally    tally
	tracing  bool
	trace    []string
	wrong    error // the first violation
}

type envelope struct {
	from, to string
	wire     []byte
}

// agent is a pod: the machine and the mover of its agent, and its engine.
type agent struct {
	shape   shape
	machine session.Machine
	dead    bool          // the agent's process; the engine has an end of its own
	frozen  time.Time     // since when, zero when it runs
	skew    time.Duration // of its clock
	dials   []session.Peer
	orders  []*moving
	late    []session.Event     // answers of the mover that wait for their turn
	strays  []stray             // sent by writers that gave up on them, not placed yet
	revokes []string            // asked for
	refused map[string]struct{} // by the mover
	barred  map[string]struct{} // refused, and answered by Revoked
	memory  map[uint32]*memory  // registered here
	nextMem uint32
	engine  *engine
	ended   map[string]struct{} // told to have ended
	reports map[string]struct{} // sent, of one writer to one reader
}

// runs says whether the agent's process gets to do anything.
func (a *agent) runs() bool { return !a.dead && a.frozen.IsZero() }

func newSim(seed uint64) *sim {
	s := &sim{
		rng: rand.New(rand.NewPCG(seed, 1)), now: start, dials: map[string]int{}, broken: map[string]bool{}, tally: tally{},
		cuts: map[[2]string]bool{}, sessions: map[[2]string]*moverSession{},
	}
	s.faults = s.rng.IntN(5) > 0
	if !s.faults {
		s.late = []late{"", latePrefill, lateDecode, lateLayers}[s.rng.IntN(4)]
	}
	s.rate = []int{12, 40, 120}[s.rng.IntN(3)]
	s.mapped = s.rng.IntN(2) == 0
	s.wanted = 1 + s.rng.IntN(7)
	if s.faults && s.rng.IntN(4) == 0 {
		s.limits = session.Limits{Transfers: 1 + s.rng.IntN(3), Early: 1 + s.rng.IntN(2), Blocks: 4, Peers: 1}
	}
	if s.rng.IntN(3) == 0 {
		// Orders wait for room.
		s.limits.Orders, s.limits.Pieces, s.limits.LivePieces = 1+s.rng.IntN(3), 1+s.rng.IntN(8), 1+s.rng.IntN(8)
	}
	if !s.faults && s.rng.IntN(3) == 0 {
		s.limits.Peers = 1
	}
	if s.faults && s.rng.IntN(10) == 0 {
		s.limits.LiveBlocks = 4 + s.rng.IntN(12)
	}
	s.pairs = simPairs[s.rng.IntN(len(simPairs))]
	for i := range 1 + s.rng.IntN(3) {
		s.agents = append(s.agents, s.newAgent(s.pairs[0], kvlayout.Prefill, fmt.Sprintf("p%d", i)))
	}
	for i := range 1 + s.rng.IntN(3) {
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
		pair(gqa, 4, 2, 4, 1, 1, 1, 2, 1, 1),
		pair(gqa, 4, 2, 1, 2, 1, 2, 1, 1, 1),
		pair(mla, 1, 4, 2, 2, 1, 2, 2, 2, 1),
		pair(gqa, 2, 4, 4, 1, 1, 2, 2, 1, 1),
	}
}()

func (s *sim) newAgent(shape shape, role kvlayout.Role, host string) *agent {
	shape.role, shape.host = role, host
	a := &agent{shape: shape, engine: newEngine(shape)}
	s.bootAgent(a)
	s.engineUp(a)
	return a
}

// bootAgent starts a new incarnation of an agent. Its numbers of memories may be
// those of the one before.
func (s *sim) bootAgent(a *agent) {
	a.shape.epoch = s.rng.Uint64() | 1
	a.dead, a.frozen, a.skew = false, time.Time{}, 0
	cfg := a.shape.config()
	cfg.Limits = s.limits
	a.machine = newMachine(cfg, a.shape.role)
	a.dials, a.orders, a.late, a.strays, a.revokes = nil, nil, nil, nil, nil
	a.refused, a.barred = map[string]struct{}{}, map[string]struct{}{}
	a.ended, a.reports = map[string]struct{}{}, map[string]struct{}{}
	a.memory, a.nextMem = map[uint32]*memory{}, s.rng.Uint32N(3)
	a.engine.unheard = false
	clear(a.engine.known)
	for _, r := range a.engine.requests {
		r.named = false
	}
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

// step feeds a machine and takes what it wants done. The error is the machine's.
func (s *sim) step(a *agent, ev session.Event) error {
	s.logf("%s < %T %+v", a.shape.host, ev, ev)
	err := a.machine.Step(s.now.Add(a.skew), ev)
	if err != nil {
		s.logf("%s   %v", a.shape.host, err)
		var wrong *session.EventError
		if !errors.As(err, &wrong) || wrong.Reason == "" {
			s.violation("%s: untyped error %v", a.shape.host, err)
		}
		s.checkLimit(a, wrong)
	}
	r := a.machine.Ready()
	s.checkEnded(a, r.Ended)
	s.checkReleased(a, r)
	for _, n := range r.Notices {
		s.logf("%s > %s %s", a.shape.host, connText(n.Conn), noticeText(n.Message))
		s.notice(a, n)
	}
	for _, m := range r.Messages {
		s.logf("%s > %s %s", a.shape.host, m.Peer.Host, messageText(m.Message))
		s.checkReport(a, m.Message)
		s.net = append(s.net, envelope{a.shape.host, m.Peer.Host, wire(m.Message)})
	}
	for _, p := range r.Dials {
		s.logf("%s > dial %s", a.shape.host, p.Host)
		s.dials[a.shape.host+">"+p.Host]++
		if slices.Contains(a.dials, p) {
			s.violation("%s dials %s twice at once", a.shape.host, p)
		}
	}
	for _, o := range r.Copies {
		s.logf("%s > copy %s", a.shape.host, orderText(o))
		if slices.Contains(a.dials, o.Peer) {
			s.violation("%s: copy order %d is posted while %s is asked who it is", a.shape.host, o.ID, o.Peer)
		}
		a.orders = append(a.orders, s.newMoving(a, o))
	}
	a.dials = append(a.dials, r.Dials...)
	for _, id := range r.Revokes {
		s.logf("%s > revoke %s", a.shape.host, id)
		a.revokes = append(a.revokes, id)
		a.refused[id] = struct{}{}
	}
	s.checkStep(a)
	return err
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
	s.settle()
	s.finish()
	s.checkServes()
	if s.wrong == nil {
		s.checkEnd()
	}
	return s.wrong
}

// finish plays until nothing happens any more.
func (s *sim) finish() {
	for range 20_000 {
		if s.wrong != nil || !s.act() && !s.advance() {
			return
		}
	}
	s.violation("the schedule does not come to an end")
}

// act does one random thing that can happen, and reports whether there was any.
func (s *sim) act() bool {
	s.now = s.now.Add(time.Duration(s.rng.IntN(1000)) * time.Microsecond)
	if s.faults && !s.calm && s.rng.IntN(s.rate) == 0 {
		s.strike()
		return true
	}
	actions := []func() bool{s.deliver, s.answerDial, s.move, s.answerLate, s.land, s.answerRevoke, s.hear, s.engineActs, s.engineActs}
	for _, i := range s.rng.Perm(len(actions)) {
		if actions[i]() {
			return true
		}
	}
	return s.lateComers()
}

// late is the engines that do nothing more before the others have waited for nearly as
// long as they may.
type late string

const (
	latePrefill late = "prefill names no transfer"
	lateDecode  late = "decode names no blocks"
	lateLayers  late = "prefill saves no second layer"
)

// lateComers has them go on, when nothing else happens any more.
func (s *sim) lateComers() bool {
	wait := map[late]time.Duration{latePrefill: timeouts.ReceiveAbort, lateDecode: timeouts.Defer, lateLayers: 2 * timeouts.Transfer}[s.late]
	if wait == 0 {
		return false
	}
	s.logf("late: %s", s.late)
	s.late = ""
	s.now = s.now.Add(wait - 5*time.Second)
	return true
}

// advance lets time pass to the next deadline: of a machine, or of a lease that
// somebody waits for. It reports false when there is none.
func (s *sim) advance() bool {
	var next *agent
	var at time.Time
	for _, a := range s.agents {
		if !a.runs() {
			continue
		}
		due, ok := a.machine.Deadline()
		if due = due.Add(-a.skew); ok && (at.IsZero() || due.Before(at)) {
			next, at = a, due
		}
	}
	for _, lease := range s.leases() {
		if lease.After(s.now) && (at.IsZero() || lease.Before(at)) {
			next, at = nil, lease
		}
	}
	switch {
	case at.IsZero():
		return false
	case at.After(s.now):
		s.now = at
	}
	if next != nil {
		_ = s.step(next, session.Tick{})
	}
	s.checkOverdue()
	return true
}

// deliver hands over one message, any of those under way.
func (s *sim) deliver() bool {
	for _, i := range s.rng.Perm(len(s.net)) {
		e := s.net[i]
		to := s.find(e.to)
		if !to.dead && (!to.runs() || s.cuts[pairOf(e.from, e.to)]) {
			continue // it may still come
		}
		if s.rng.IntN(10) > 0 || s.calm || to.dead {
			s.net = append(s.net[:i], s.net[i+1:]...)
		}
		message, err := moriio.ParseNotify(e.wire)
		switch {
		case err != nil:
			s.violation("a message that no peer can read: %v", err)
		case to.dead || s.faults && !s.calm && s.rng.IntN(25) == 0:
			s.logf("lost: %s", messageText(message))
		default:
			_ = s.step(to, session.PeerMessage{Message: message})
		}
		return true
	}
	return false
}

func (s *sim) answerDial() bool {
	a := s.pick(func(a *agent) bool { return a.runs() && len(a.dials) > 0 })
	if a == nil {
		return false
	}
	at := a.dials[0]
	peer := s.find(at.Host)
	ev := session.Handshaken{Peer: at}
	switch broken := s.faults && !s.calm && s.rng.IntN(8) == 0; {
	case !broken && peer.runs() && peer.engine.complete() && !s.cuts[pairOf(a.shape.host, at.Host)]:
		ev.Metadata = peer.metadata()
	case !broken && !s.calm && !peer.dead && s.rng.IntN(4) > 0:
		return false // no answer yet
	default:
		ev.Err = errors.New("no answer")
	}
	a.dials = a.dials[1:]
	_ = s.step(a, ev)
	return true
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
