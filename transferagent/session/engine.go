package session

import (
	"cmp"
	"slices"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// rank is a global data parallel and a tensor parallel index.
type rank struct{ dp, tp int }

// memory is the KV memory of one rank, here or at a peer. It is never changed.
type memory struct {
	id uint32
	*shape
}

// shape is where the layers are in a memory. The ranks of an engine, and the pods of a
// pool, mostly have the same one: those share it.
type shape struct {
	regions []kvlayout.Region // by layer
	blocks  int               // that every region has
}

// newMemory makes the memory of a rank; its shape is one of those known, to which it is
// added when it is none of them.
func newMemory(r moriio.AgentRank, known *[]*shape) *memory {
	regions := r.Regions
	byLayer := func(a, b kvlayout.Region) int { return cmp.Compare(a.Layer, b.Layer) }
	if !slices.IsSortedFunc(regions, byLayer) {
		regions = slices.SortedStableFunc(slices.Values(regions), byLayer)
	}
	for _, s := range *known {
		if slices.Equal(s.regions, regions) {
			return &memory{r.Memory, s}
		}
	}
	s := &shape{regions: slices.Clone(regions)}
	for i, region := range s.regions {
		if i == 0 || region.Blocks < s.blocks {
			s.blocks = region.Blocks
		}
	}
	*known = append(*known, s)
	return &memory{r.Memory, s}
}

func (s *shape) region(layer int) (kvlayout.Region, bool) {
	i, ok := slices.BinarySearchFunc(s.regions, layer, func(r kvlayout.Region, layer int) int { return cmp.Compare(r.Layer, layer) })
	if !ok {
		return kvlayout.Region{}, false
	}
	return s.regions[i], true
}

// distinct reports whether no layer has two regions.
func (s *shape) distinct() bool {
	for i := range s.regions {
		if i > 0 && s.regions[i].Layer == s.regions[i-1].Layer {
			return false
		}
	}
	return true
}

func (m *memory) sameAs(o *memory) bool { return m.id == o.id && slices.Equal(m.regions, o.regions) }

// ownEngine is what is up of the own engine.
type ownEngine struct {
	dpStart int
	up      map[Conn]uint64 // each connection has a number of its own
	last    uint64
	memory  map[rank]*memory
}

func (e *ownEngine) has(c Conn) bool {
	_, ok := e.up[c]
	return ok
}

func (e *ownEngine) global(dp int) int { return e.dpStart + dp }

func (e *ownEngine) worker(dp, tp int) (*memory, bool) {
	m, ok := e.memory[rank{e.global(dp), tp}]
	return m, ok
}

// lost returns the connections that the new ranks replace or leave out, and that
// therefore have to be taken for gone first.
func (e *ownEngine) lost(ranks map[rank]*memory) []Conn {
	var gone []Conn
	for at, old := range e.memory {
		if m := ranks[at]; m == nil || !m.sameAs(old) {
			gone = append(gone, Conn{Kind: kvproto.Worker, DP: at.dp - e.dpStart, TP: at.tp})
		}
	}
	slices.SortFunc(gone, compareConns)
	return gone
}

func (e *ownEngine) ready(ranks map[rank]*memory) {
	before := e.up
	e.up, e.memory = map[Conn]uint64{}, ranks
	for at := range ranks {
		dp := at.dp - e.dpStart
		for _, c := range []Conn{{Kind: kvproto.Worker, DP: dp, TP: at.tp}, {Kind: kvproto.Scheduler, DP: dp}} {
			if e.up[c] != 0 {
				continue
			}
			if e.up[c] = before[c]; e.up[c] == 0 {
				e.last++
				e.up[c] = e.last
			}
		}
	}
}

func (e *ownEngine) gone(c Conn) {
	delete(e.up, c)
	if c.Kind == kvproto.Worker {
		delete(e.memory, rank{e.global(c.DP), c.TP})
	}
}

// checkRanks refuses ranks that the layout does not have, and half of a TP group.
func (c *Config) checkRanks(ranks []moriio.AgentRank) (map[rank]*memory, error) {
	layout := c.Self.Layout.Defaulted()
	byRank := make(map[rank]*memory, len(ranks))
	perDP := map[int]int{}
	var shapes []*shape
	for _, r := range ranks {
		at := rank{r.DP, r.TP}
		switch dp := r.DP - c.Self.DPStart; {
		case dp < 0 || dp >= layout.DPLocal || r.TP < 0 || r.TP >= layout.TP:
			return nil, wrongf(BadRanks, "the engine names rank dp %d tp %d, the pod has dp %d to %d of tp %d",
				r.DP, r.TP, c.Self.DPStart, c.Self.DPStart+layout.DPLocal-1, layout.TP)
		case byRank[at] != nil:
			return nil, wrongf(BadRanks, "the engine names rank dp %d tp %d twice", r.DP, r.TP)
		}
		byRank[at] = newMemory(r, &shapes)
		if !byRank[at].distinct() || len(r.Regions) == 0 {
			return nil, wrongf(BadRanks, "the %d regions of rank dp %d tp %d are not one per layer", len(r.Regions), r.DP, r.TP)
		}
		perDP[r.DP]++
	}
	for dp, n := range perDP {
		if n != layout.TP {
			return nil, wrongf(BadRanks, "the engine names %d ranks of dp %d, tp is %d", n, dp, layout.TP)
		}
	}
	if len(byRank) == 0 {
		return nil, wrongf(BadRanks, "the engine names no rank")
	}
	return byRank, nil
}

func compareConns(a, b Conn) int {
	return cmp.Or(cmp.Compare(a.DP, b.DP), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.TP, b.TP))
}

// down lists the connections of a data parallel rank that are not up.
func (m *machine) down(dp int) []Conn {
	all := []Conn{{Kind: kvproto.Scheduler, DP: dp}}
	for tp := range m.tp() {
		all = append(all, Conn{Kind: kvproto.Worker, DP: dp, TP: tp})
	}
	return slices.DeleteFunc(all, m.engine.has)
}

func (m *machine) schedulerLost(dp int) *ending {
	return endingf(RuleEngineGone, "the scheduler connection of %s dp %d was lost", m.cfg.Self.Role, m.engine.global(dp))
}

func (m *machine) workerLost(dp, tp int) *ending {
	return endingf(RuleEngineGone, "the connection of %s worker dp %d tp %d was lost", m.cfg.Self.Role, m.engine.global(dp), tp)
}
