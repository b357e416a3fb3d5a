package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/pdpool"
)

// setup is a pool, or a pair of command lines, as the arithmetic sees it: the model,
// and how each role caches it.
type setup struct {
	name    string
	loads   string // the model's name
	engine  kvlayout.Engine
	version string
	cost    Cost // of which the bytes are not counted yet
	model   kvlayout.Model
	known   bool // the model is
	prefill caching
	decode  caching
	// verdict is what the rules say of it, pods what a pool becomes, and with is the
	// same with other layouts.
	verdict func() Verdict
	pods    func() map[kvlayout.Role][]PodPlan
	with    func(prefill, decode kvlayout.Layout) relaid
}

// relaid is a setup with other layouts, and what the rules say of it then.
type relaid struct {
	setup
	problems    []kvlayout.Problem
	unavailable string // why this version can't run it, though the layouts fit
}

// caching is one role of a setup.
type caching struct {
	layout kvlayout.Layout // all degrees set
	// blockSize is that which is asked for.
	blockSize            int
	kvType               kvlayout.KVType
	maxLength            int
	image                string
	replicas, pods, gpus int  // gpus of a pod
	experts              bool // are spread over ranks
	cache                kvlayout.Cache
	// memory is bytes of KV cache per rank, blocks their number; at most one is above 0.
	memory, blocks int64
}

// memoryFlags say how much memory there is where the manifest doesn't.
type memoryFlags struct {
	memory string
	blocks int64
}

// target says which pool or pair of command lines a command is about.
type target struct {
	files    []string
	name     string
	commands commandFlags
	memory   memoryFlags
}

func (t *target) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&t.files, "filename", "f", nil, filenameHelp)
	cmd.Flags().StringVar(&t.name, "name", "", "the pool, where there are several")
	t.commands.add(cmd)
	t.memory.add(cmd)
	cmd.MarkFlagsOneRequired("filename", "prefill-cmd")
	cmd.MarkFlagsMutuallyExclusive("filename", "prefill-cmd")
}

// setup reads the target. One that nothing can be computed with has its verdict only,
// and beyond says so.
func (o Options) setup(t target, gpus string) (s setup, beyond bool, err error) {
	if err := t.commands.validate(); err != nil {
		return s, false, err
	}
	if t.commands.given() {
		pair, err := o.readPair(t.commands)
		if err != nil {
			return s, false, err
		}
		if err := pair.onGPUs(gpus); err != nil {
			return s, false, err
		}
		s = setupOfPair(pair)
		if s.verdict().Unread {
			return s, true, nil
		}
		return s, false, s.remember(t.memory)
	}
	pool, err := o.onePool(t.files, t.name)
	if err != nil {
		return s, false, err
	}
	if v, beyond := beyondSchema(pool); beyond {
		return setup{verdict: func() Verdict { return v }}, true, nil
	}
	if err := onGPUs(pool.PDPool, gpus); err != nil {
		return s, false, err
	}
	s, _ = setupOf(pool)
	return s, false, s.remember(t.memory)
}

// setupOf is a pool whose values are all known, and what the rules find in it.
func setupOf(pool manifest.Pool) (setup, []kvlayout.Problem) {
	r, found := pdpool.Judge(pool.PDPool)
	s := setup{
		name: pool.Identity(), loads: r.Model, engine: r.Engine, version: r.Version,
		cost:    Cost{Mode: string(r.Mode), Mover: string(r.Mover), Backend: string(r.Backend), Reason: r.MoverReason},
		prefill: cachingOf(&r, &r.Prefill), decode: cachingOf(&r, &r.Decode),
		verdict: func() Verdict { return verdictOf(pool, found) },
		pods:    func() map[kvlayout.Role][]PodPlan { return podsOf(pool) },
	}
	s.model, s.known = modelOf(&r)
	s.with = func(prefill, decode kvlayout.Layout) relaid { return s.poolWith(pool, prefill, decode) }
	return s, found
}

// poolWith is a pool with other layouts.
func (s setup) poolWith(from manifest.Pool, prefill, decode kvlayout.Layout) relaid {
	pool := manifest.Pool{PDPool: from.DeepCopy()}
	for _, to := range []struct {
		spec   *v1alpha1.LayoutSpec
		before kvlayout.Layout
		l      kvlayout.Layout
	}{{&pool.Spec.Prefill.Layout, s.prefill.layout, prefill}, {&pool.Spec.Decode.Layout, s.decode.layout, decode}} {
		if to.l == to.before {
			continue
		}
		local := to.spec.DPLocal
		*to.spec = v1alpha1.LayoutSpec{TP: int32(to.l.TP), DP: int32(to.l.DP), DCP: int32(to.l.DCP), Interleave: int32(to.l.Interleave)}
		if to.l.DP == to.before.DP {
			to.spec.DPLocal = local
		}
		if to.l.DCP == 1 {
			to.spec.Interleave = 0
		}
	}
	var out relaid
	var found []kvlayout.Problem
	out.setup, found = setupOf(pool)
	for _, p := range found {
		if p.Rule == "mover-unavailable" {
			out.unavailable = p.Message
			continue
		}
		out.problems = append(out.problems, p)
	}
	return out
}

// remember takes the memory of flags, and refuses what holds not even a block.
func (s *setup) remember(f memoryFlags) error {
	bytes, err := f.bytes()
	if err != nil {
		return err
	}
	for _, c := range []*caching{&s.prefill, &s.decode} {
		if bytes == 0 && f.blocks == 0 {
			continue
		}
		c.memory, c.blocks = bytes, f.blocks
		if held, err := c.capacity(s.model); s.known && err == nil && held.Blocks < 1 {
			return fmt.Errorf("--kv-memory %s holds no block, which takes %s bytes: give it a unit, such as 90Gi", f.memory, grouped(held.Pool.BlockBytes))
		}
	}
	return nil
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
	c := caching{
		layout: s.Layout, blockSize: s.BlockSize, kvType: s.KVType, maxLength: s.MaxLength, image: s.Image,
		replicas: s.Replicas, pods: s.Pods, gpus: s.GPUs, experts: in.Experts != 0,
		cache: in.Cache(), memory: r.KVMemory,
	}
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
