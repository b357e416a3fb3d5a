package enginesim

import (
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

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
	refuse   string       // rule with which to refuse a hello
}

// flow is one transfer.
type flow struct {
	id      string
	hold    *kvproto.Hold
	receive *kvproto.Receive
	saves   map[int]int // layers by writer
	sealed  map[int]bool
	copied  map[int]bool // by writer
	over    bool
	failed  *kvproto.Failed // told to each side once it has said Hold or Receive
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
		s.f.take(s, who, m)
	}
}

func (s *side) greet(c *kvconn.Conn, h kvproto.Hello, who int) bool {
	s.f.mu.Lock()
	defer s.f.mu.Unlock()
	if s.refuse != "" {
		_ = c.Write(kvproto.Refused{Rule: s.refuse, Text: "not this one"}, nil)
		return false
	}
	s.conns[who] = c
	s.regions[who] = nil
	s.faults = h.Faults
	s.layout = Layout{TP: h.TPSize, DCP: h.DCP, Interleave: h.Interleave, Block: h.BlockTokens}
	return c.Write(kvproto.Welcome{Epoch: s.epoch}, nil) == nil
}

// lost is what happens to transfers when an engine's connection has ended.
func (f *fabric) lost(s *side, c *kvconn.Conn, who int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.conns[who] != c {
		return // of an incarnation before
	}
	delete(s.conns, who)
	delete(s.ready, who)
	for _, t := range f.flows {
		f.fail(t, "engine-gone", "a connection of the engine was lost")
	}
}

func (f *fabric) take(s *side, who int, m kvproto.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if who < 0 {
		f.seen = append(f.seen, m)
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

func (f *fabric) flow(id string) *flow {
	t := f.flows[id]
	if t == nil {
		t = &flow{id: id, saves: map[int]int{}, sealed: map[int]bool{}, copied: map[int]bool{}}
		f.flows[id] = t
	}
	return t
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

// fail ends a flow badly on both sides.
func (f *fabric) fail(t *flow, rule, text string) {
	if t.over {
		return
	}
	t.over = true
	t.failed = &kvproto.Failed{Transfer: t.id, Rule: rule, Text: text}
	if t.hold != nil {
		f.prefill.tellAll(*t.failed)
	}
	if t.receive != nil {
		f.decode.tellAll(*t.failed)
	}
}

// advance copies what is there, and ends the flow when all is.
func (f *fabric) advance(t *flow) {
	ready := len(f.prefill.ready) == f.prefill.layout.TP && len(f.decode.ready) == f.decode.layout.TP
	if !ready || t.over || f.frozen || t.hold == nil || t.receive == nil {
		return
	}
	writers := f.writers()
	for w := range f.prefill.layout.TP {
		if t.sealed[w] && !t.copied[w] {
			t.copied[w] = true
			f.copyAll(t, w, writers)
		}
	}
	if !f.complete(t, writers) {
		return
	}
	t.over = true
	f.decode.tellAll(kvproto.Done{Transfer: t.id})
	f.prefill.tellAll(kvproto.Done{Transfer: t.id})
	f.prefill.tell(-1, kvproto.Released{Transfer: t.id})
}

// complete says whether all writers of all readers have written.
func (f *fabric) complete(t *flow, writers map[int][]int) bool {
	early := slices.Contains(f.decode.faults, "first-writer-ends")
	for _, list := range writers {
		for i, w := range list {
			if !t.copied[w] && (!early || i == 0) {
				return false
			}
		}
	}
	return true
}

// copyAll moves what a writer has for all its readers.
func (f *fabric) copyAll(t *flow, w int, writers map[int][]int) {
	for reader := range f.decode.layout.TP {
		if slices.Contains(writers[reader], w) && !slices.Contains(f.prefill.faults, "copies-off") {
			f.copy(t, w, reader, writers[reader])
		}
	}
}

// writers lists the prefill ranks that have what a decode rank keeps, one per
// head.
func (f *fabric) writers() map[int][]int {
	out := map[int][]int{}
	for reader := range f.decode.layout.TP {
		for _, head := range f.decode.heads(reader) {
			w := f.writer(reader, head)
			if !slices.Contains(out[reader], w) {
				out[reader] = append(out[reader], w)
			}
		}
	}
	return out
}

func (f *fabric) writer(reader, head int) int {
	var able []int
	for w := range f.prefill.layout.TP {
		if slices.Contains(f.prefill.heads(w), head) && (f.prefill.layout.DCP == 1 || f.prefill.layout.dcpRank(w) == f.decode.layout.dcpRank(reader)) {
			able = append(able, w)
		}
	}
	return able[reader%len(able)]
}

func (s *side) heads(tp int) []int {
	var out []int
	r := s.regions[tp][0]
	for h := r.HeadFirst; h < r.HeadFirst+r.HeadCount; h++ {
		out = append(out, h)
	}
	return out
}

// copy moves all rows that a writer has for a reader.
func (f *fabric) copy(t *flow, writer, reader int, writers []int) {
	p, d := f.prefill, f.decode
	whole := p.layout.Block * p.layout.DCP
	tokens := (t.hold.Tokens + whole - 1) / whole * whole
	from, to := deal(p.layout, tokens), deal(d.layout, tokens)
	want := d.layout.dcpRank(reader)
	if slices.Contains(p.faults, "interleave-off") {
		want = (want + d.layout.DCP - 1) % d.layout.DCP
	}
	target := d.memory[reader]
	if slices.Contains(p.faults, "all-to-rank-0") {
		target = d.memory[0]
	}
	for layer := range p.regions[writer] {
		src, dst := p.regions[writer][layer], d.regions[reader][layer]
		for _, head := range d.heads(reader) {
			if f.writer(reader, head) != writer || !slices.Contains(writers, writer) {
				continue
			}
			for pos := range tokens {
				if to[pos].rank != want {
					continue
				}
				a := offset(src, t.hold.Blocks[from[pos].block], head, from[pos].slot)
				b := offset(dst, t.receive.Blocks[to[pos].block], head, to[pos].slot)
				copy(target[b:b+dst.RowBytes], p.memory[writer][a:a+src.RowBytes])
			}
		}
	}
}

func offset(r kvproto.Region, block int32, head, at int) int64 {
	return r.Offset + int64(block)*r.BlockStride + int64(head-r.HeadFirst)*r.HeadStride + int64(at)*r.TokenStride
}
