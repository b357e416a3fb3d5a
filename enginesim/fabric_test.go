package enginesim

import (
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/kvconn"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// fabric stands for the two agents of a pair and all between them. It copies row
// by row, and finds rows by dealing tokens one after the other.
type fabric struct {
	mu              sync.Mutex
	prefill, decode *side
	flows           map[string]*flow
	frozen          bool              // nothing is copied
	abort           func(t *flow)     // replaces the answer to an abort
	handlers        sync.WaitGroup    // of connections
	seen            []kvproto.Message // of the schedulers, in order
}

// side is one agent.
type side struct {
	f        *fabric
	path     string
	listener *net.UnixListener
	epoch    uint64
	layout   Layout
	faults   []string
	conns    map[int]*kvconn.Conn // by TP rank, the scheduler's at -1
	memory   map[int][]byte
	regions  map[int][]kvproto.Region
	ready    map[int]bool // workers whose regions are complete
	greeted  int          // connections since the start
	refuse   string       // rule with which to refuse a hello
	silence  time.Duration
}

func newFabric(t *testing.T) *fabric {
	t.Helper()
	f := &fabric{flows: map[string]*flow{}}
	f.prefill, f.decode = newSide(t, f, "p.sock"), newSide(t, f, "d.sock")
	t.Cleanup(func() {
		f.prefill.close(t)
		f.decode.close(t)
		f.handlers.Wait()
	})
	return f
}

func newSide(t *testing.T, f *fabric, name string) *side {
	t.Helper()
	s := &side{f: f, path: filepath.Join(t.TempDir(), name), epoch: 1}
	s.reset()
	s.listen(t)
	return s
}

func (s *side) reset() {
	s.conns, s.memory, s.regions = map[int]*kvconn.Conn{}, map[int][]byte{}, map[int][]kvproto.Region{}
	s.ready = map[int]bool{}
}

func (s *side) listen(t *testing.T) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	s.listener = l
	s.f.handlers.Go(func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			s.f.handlers.Go(func() { s.serve(kvconn.New(c)) })
		}
	})
}

// close ends the agent as a crash would.
func (s *side) close(t *testing.T) {
	t.Helper()
	if err := s.listener.Close(); err != nil {
		t.Error(err)
	}
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}

// restart ends the agent and starts it again as a new incarnation.
func (s *side) restart(t *testing.T) {
	t.Helper()
	s.close(t)
	s.f.mu.Lock()
	for id := range s.f.flows {
		s.f.flows[id].over = true
	}
	s.reset()
	s.epoch++
	s.f.mu.Unlock()
	s.listen(t)
}

func (s *side) serve(c *kvconn.Conn) {
	defer func() { _ = c.Close() }()
	m, _, err := c.Read()
	if err != nil {
		return
	}
	hello, ok := m.(kvproto.Hello)
	if !ok {
		return
	}
	who := hello.TP
	if hello.Connection == kvproto.Scheduler {
		who = -1
	}
	if !s.greet(c, hello, who) {
		return
	}
	for {
		m, file, err := c.Read()
		if err != nil {
			s.f.lost(s, c, who)
			return
		}
		if mem, ok := m.(kvproto.Memory); ok {
			b, err := memory.MapSealed(file, mem.Bytes)
			if err != nil {
				panic(err)
			}
			_ = file.Close()
			defer func() { _ = memory.Unmap(b) }()
			s.f.mu.Lock()
			s.memory[who] = b
			s.f.mu.Unlock()
			continue
		}
		if !s.f.repeated(s, m) {
			s.f.take(s, who, m)
		}
	}
}

func (s *side) greet(c *kvconn.Conn, h kvproto.Hello, who int) bool {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.refuse != "" {
		_ = c.Write(kvproto.Refused{Rule: s.refuse, Text: "not this one"}, nil)
		return false
	}
	if s.conns[who] != nil {
		s.f.lose(s, who)
	}
	s.greeted++
	s.conns[who] = c
	s.regions[who] = nil
	s.faults = h.Faults
	s.layout = Layout{TP: h.TPSize, DCP: h.DCP, Interleave: h.Interleave, Block: h.BlockTokens}
	return c.Write(kvproto.Welcome{Epoch: s.epoch, Silence: s.silence}, nil) == nil
}

// lost is what happens to transfers when an engine's connection has ended: without
// a worker of prefill they go on with the others, without another they end.
func (f *fabric) lost(s *side, c *kvconn.Conn, who int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.conns[who] == c {
		f.lose(s, who)
	}
}

func (f *fabric) lose(s *side, who int) {
	delete(s.conns, who)
	delete(s.ready, who)
	for _, t := range f.flows {
		switch {
		case s != f.prefill || who < 0:
			f.fail(t, "engine-gone", "a connection of the engine was lost")
		case t.begun:
			t.lost[who] = true
			f.advance(t)
		}
	}
}

func (f *fabric) take(s *side, who int, m kvproto.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if who < 0 {
		f.seen = append(f.seen, m)
	}
	if id := named(m); id != "" && s == f.prefill {
		f.begin(f.flow(id))
	}
	switch m := m.(type) {
	case kvproto.Region:
		s.regions[who] = append(s.regions[who], m)
	case kvproto.Ready: // nothing orders the connections of an engine
		s.ready[who] = true
		for _, t := range f.flows {
			f.advance(t)
		}
	case kvproto.Hold:
		t := f.flow(m.Transfer)
		t.hold = &m
		if t.failed != nil {
			s.tellAll(*t.failed)
		}
		f.advance(t)
	case kvproto.Receive:
		t := f.flow(m.Transfer)
		t.receive = &m
		if t.failed != nil {
			s.tellAll(*t.failed)
		}
		f.advance(t)
	case kvproto.Save:
		f.flow(m.Transfer).saves[who]++
	case kvproto.Sealed:
		f.flow(m.Transfer).sealed[who] = true
		f.advance(f.flow(m.Transfer))
	case kvproto.Abort:
		t := f.flow(m.Transfer)
		if f.abort != nil {
			f.abort(t)
			return
		}
		s.tell(-1, kvproto.Quiet{Transfer: t.id})
		f.fail(t, "aborted", "the other side has ended")
	}
}

// repeated refuses blocks of a transfer that has some already.
func (f *fabric) repeated(s *side, m kvproto.Message) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.flows[kvproto.TransferOf(m)]
	if t == nil {
		return false
	}
	_, hold := m.(kvproto.Hold)
	_, receive := m.(kvproto.Receive)
	again := hold && t.hold != nil || receive && t.receive != nil
	if again {
		s.tell(-1, kvproto.Refused{Rule: "duplicate", Text: "again", Message: m.Type(), Transfer: t.id})
	}
	return again
}

func (s *side) tell(who int, m kvproto.Message) {
	if c := s.conns[who]; c != nil {
		_ = c.Write(m, nil)
	}
}

func (s *side) tellAll(m kvproto.Message) {
	for who := -1; who < s.layout.TP; who++ {
		s.tell(who, m)
	}
}
