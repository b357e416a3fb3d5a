package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/pdpool"
)

// setup is a pool as the arithmetic sees it: the model, and how each role caches it.
type setup struct {
	pool     manifest.Pool
	resolved pdpool.Resolved
	model    kvlayout.Model
	known    bool // the model is
	prefill  caching
	decode   caching
}

// caching is one role of a setup.
type caching struct {
	side  *pdpool.Side
	cache kvlayout.Cache
	// memory is bytes of KV cache per rank, blocks their number; at most one is above 0.
	memory, blocks int64
}

// memoryFlags say how much memory there is where the manifest doesn't.
type memoryFlags struct {
	memory string
	blocks int64
}

func (o Options) setup(pool manifest.Pool, f memoryFlags) (setup, error) {
	s := setup{pool: pool, resolved: pdpool.Resolve(pool.PDPool, pdpool.Defaults{})}
	s.model, s.known = modelOf(&s.resolved)
	s.prefill = cachingOf(&s.resolved, &s.resolved.Prefill)
	s.decode = cachingOf(&s.resolved, &s.resolved.Decode)
	bytes, err := f.bytes()
	if err != nil {
		return setup{}, err
	}
	for _, c := range []*caching{&s.prefill, &s.decode} {
		if bytes > 0 || f.blocks > 0 {
			c.memory, c.blocks = bytes, f.blocks
		}
	}
	return s, nil
}

func (f memoryFlags) bytes() (int64, error) {
	switch {
	case f.blocks < 0:
		return 0, fmt.Errorf("%d blocks", f.blocks)
	case f.memory != "" && f.blocks > 0:
		return 0, errors.New("give --kv-memory or --blocks, not both")
	case f.memory == "":
		return 0, nil
	}
	return parseBytes(f.memory)
}

// modelOf is the model that a pool serves: the geometry of its spec, else that of the
// catalog.
func modelOf(r *pdpool.Resolved) (kvlayout.Model, bool) {
	switch {
	case r.KnownModel != nil:
		return *r.KnownModel, true
	case !r.HasGeometry:
		return kvlayout.Model{}, false
	}
	return kvlayout.ModelOf(r.Geometry), true
}

// cachingOf reads what the user's own arguments say of the cache beside the spec.
func cachingOf(r *pdpool.Resolved, s *pdpool.Side) caching {
	in := r.Instance(s.Role)
	c := caching{side: s, cache: in.Cache(), memory: r.KVMemory}
	if c.memory == 0 {
		c.blocks = int64(in.KVBlocks)
	}
	return c
}

// capacity is what a replica holds.
func (c caching) capacity(m kvlayout.Model) (kvlayout.Capacity, error) {
	switch {
	case c.blocks > 0:
		return m.CapacityOfBlocks(c.cache, c.blocks)
	case c.memory > 0:
		return m.Capacity(c.cache, c.memory)
	}
	return kvlayout.Capacity{}, errNoMemory
}

var errNoMemory = errors.New("the memory for KV cache is not known: give --kv-memory or --blocks, or set engine.kvCacheMemory")

// geometryText tells what a model caches.
func geometryText(m kvlayout.Model) string {
	parts := make([]string, 0, len(m.Groups))
	for _, g := range m.Groups {
		parts = append(parts, groupText(g))
	}
	return strings.Join(parts, ", ")
}

func groupText(g kvlayout.LayerGroup) string {
	a := g.Attention
	layers := count(g.Layers, "layer")
	switch {
	case g.Kind == kvlayout.Recurrent:
		return fmt.Sprintf("%s of %s state", layers, g.State.Kind)
	case g.Kind == kvlayout.Indexer:
		return fmt.Sprintf("%s of indexer keys, %d values", layers, a.Key)
	case a.Kind == kvlayout.MLA:
		return fmt.Sprintf("%s of MLA, %d values", layers, a.Key)
	}
	text := fmt.Sprintf("%s of GQA, %d KV heads of %d values", layers, a.KVHeads, a.Key)
	if a.Key != a.Value {
		text += fmt.Sprintf(" and %d", a.Value)
	}
	if a.Window > 0 {
		text += fmt.Sprintf(", window %d", a.Window)
	}
	return text
}

// shapeOf is the shape of the layers that keep every token, nil where they have
// several; alike says that there are no layers but those.
func shapeOf(m kvlayout.Model) (shape *kvlayout.Geometry, alike bool) {
	if g, ok := m.Geometry(); ok {
		return &g, true
	}
	for _, group := range m.Groups {
		a := group.Attention
		if group.Kind == kvlayout.Recurrent || group.Kind == kvlayout.Indexer {
			continue
		}
		g := kvlayout.Geometry{Kind: a.Kind, KVHeads: a.KVHeads, HeadValues: a.Key}
		if shape != nil && (shape.Kind != g.Kind || shape.KVHeads != g.KVHeads) {
			return nil, false
		}
		shape = &g
	}
	return shape, false
}
