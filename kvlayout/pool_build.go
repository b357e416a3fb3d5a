package kvlayout

import (
	"cmp"
	"slices"
)

// poolSpec is what layers of one shape ask of the pool.
type poolSpec struct {
	kind   LayerKind
	window int
	dealt  bool
	mla    bool
	layers int
	block  int   // tokens per block
	page   int64 // bytes of a block of one layer
}

// Pool lays the model's cache out as the engine would. The error is a *PoolError:
// a layout that the engine cannot lay out, or a number that is not known.
func (m Model) Pool(c Cache) (Pool, error) {
	l := c.Layout.Defaulted()
	for _, n := range []int{l.TP, l.PP, l.DP, l.DCP} {
		if n < 1 || n > maxDegree {
			return Pool{}, poolErrorf("a degree is %d", n)
		}
	}
	if c.kvType(m).Bytes() == 0 {
		return Pool{}, poolErrorf("the size of cache type %q is not known", c.KVType)
	}
	if c.BlockTokens < 0 || c.BlockTokens > maxModelNumber {
		return Pool{}, poolErrorf("a block of %d tokens", c.BlockTokens)
	}
	if err := m.Validate(); err != nil {
		return Pool{}, poolErrorf("the model has %v", err)
	}
	if c.Engine == SGLang {
		return m.sglangPool(c)
	}
	return m.vllmPool(c)
}

// vllmPool follows vLLM 0.33.0: get_kv_cache_groups and
// get_kv_cache_config_from_groups, with the layers' pages of kv_cache_interface.
func (m Model) vllmPool(c Cache) (Pool, error) {
	l := c.Layout.Defaulted()
	p := Pool{dcp: l.DCP}
	var err error
	if p.maxLength, err = m.longest(c); err != nil {
		return Pool{}, err
	}
	specs, err := m.poolSpecs(c, &p)
	if err != nil {
		return Pool{}, err
	}
	if p.maxLength == 0 {
		// Where all layers keep every token, the length decides about a rounding only.
		p.maxLength = p.BlockTokens * p.dcp
	}
	switch {
	case uniform(specs):
		p.oneGroup(specs)
	case dealtUnlike(specs):
		p.pack(specs)
	default:
		if err := p.group(specs); err != nil {
			return Pool{}, err
		}
	}
	var recurrence StateKind
	for _, g := range m.States() {
		recurrence = g.State.Kind
	}
	for i := range p.Groups {
		p.bound(&p.Groups[i], c, recurrence)
	}
	for _, g := range p.Groups {
		n := g.Most
		if n == 0 {
			n = p.tokenBlocks(g, p.maxLength)
		}
		p.longest += int64(n)
	}
	return p, nil
}

// longest is the longest sequence of the engine, 0 where it is not known and decides
// about nothing.
func (m Model) longest(c Cache) (int, error) {
	n := cmp.Or(c.MaxLength, m.MaxLength)
	switch {
	case n < 0 || n > maxModelNumber:
		return 0, poolErrorf("model.maxLength is %d tokens", n)
	case n == 0 && (m.Windowed() || m.HasState()):
		return 0, poolErrorf("the longest sequence is not known, and how many fit depends on it: set model.maxLength (--max-model-len)")
	}
	return n, nil
}

// poolSpecs returns what the layers ask for, once the block is raised to hold a
// state.
func (m Model) poolSpecs(c Cache, p *Pool) ([]poolSpec, error) {
	l, t, tp := c.Layout.Defaulted(), c.kvType(m), c.attentionTP()
	p.BlockTokens = c.BlockTokens
	if p.BlockTokens == 0 {
		p.BlockTokens = 16
	}
	if m.HasState() {
		if c.NoHybrid {
			return nil, poolErrorf("recurrent layers need the hybrid KV cache manager")
		}
		if err := m.raise(c, p); err != nil {
			return nil, err
		}
	}
	if err := m.promotes(c); err != nil {
		return nil, err
	}
	var specs []poolSpec
	for _, g := range m.Caches(c.OwnDrafts) {
		g = c.promoted(g, m)
		if g.windowed() && l.DCP > 1 {
			return nil, poolErrorf("DCP cannot deal the tokens of %d layers with a window", g.Layers)
		}
		s := poolSpec{
			kind: g.Kind, window: g.Attention.Window, dealt: c.deals(g, m), mla: g.Attention.Kind == MLA,
			layers: g.rankLayers(l), block: p.BlockTokens,
		}
		s.page = mulSat(g.Attention.rankRowBytes(t, tp), int64(s.block))
		if g.Kind == Recurrent {
			s.block, s.page = 0, mulSat(m.fullRowBytes(t, tp), int64(p.BlockTokens))
		}
		specs = append(specs, s)
	}
	return specs, nil
}

// fullRowBytes is what a token costs in a layer of full attention on one rank, 0
// without such layers.
func (m Model) fullRowBytes(t KVType, tp int) int64 {
	for _, g := range m.Groups {
		if g.Kind == FullAttention {
			return g.Attention.rankRowBytes(t, tp)
		}
	}
	return 0
}

// raise sets the block to the smallest multiple of the alignment whose page of
// attention holds a state (vLLM's _align_hybrid_block_size): the alignment is what
// was asked for, or the backend's kernel block, and at least 128 with MLA. The
// states are padded to that page.
func (m Model) raise(c Cache, p *Pool) error {
	tp := c.attentionTP()
	row := m.fullRowBytes(c.kvType(m), tp)
	if row < 1 {
		return poolErrorf("there are recurrent layers and no layer of full attention")
	}
	for _, g := range m.States() {
		if !g.State.FitsTP(tp) {
			return poolErrorf("%d ranks cannot split the states of %d heads", tp, g.State.Heads)
		}
		p.StateBytes = max(p.StateBytes, g.State.Bytes(tp, max(c.DraftTokens, 0)))
	}
	kernel := c.KernelBlock
	if kernel < 1 {
		kernel = 16
		if m.AllMLA(false) {
			kernel = 1
		}
	}
	align := max(kernel, p.BlockTokens)
	if m.AllMLA(false) {
		align = max(align, 128)
	}
	block := mulSat(int64(align), ceilDiv64(p.StateBytes, mulSat(int64(align), row)))
	block = mulSat(ceilDiv64(block, int64(kernel)), int64(kernel))
	if block > maxModelNumber {
		return poolErrorf("a state of %d bytes needs blocks of %d tokens", p.StateBytes, block)
	}
	if int(block) > p.BlockTokens {
		p.BlockTokens, p.Raised = int(block), true
	}
	return nil
}

// class puts layers that need the same tokens into one: all full attention with
// its indexers, and layers of the same window.
func (s poolSpec) class() poolSpec {
	kind := s.kind
	if kind == Indexer {
		kind = FullAttention
	}
	return poolSpec{kind: kind, window: s.window, dealt: s.dealt, block: s.block}
}

func (s poolSpec) pooled(layers int) PoolGroup {
	return PoolGroup{Kind: s.class().kind, Layers: layers, BlockTokens: s.block, Dealt: s.dealt, Window: s.window}
}

// uniform says whether all layers share one block list.
func uniform(specs []poolSpec) bool {
	for _, s := range specs[1:] {
		if s.class() != specs[0].class() {
			return false
		}
	}
	return specs[0].kind != Recurrent
}

// oneGroup: pages of unequal size lie side by side in a block.
func (p *Pool) oneGroup(specs []poolSpec) {
	g := specs[0].pooled(0)
	for _, s := range specs {
		g.Layers += s.layers
	}
	p.BlockBytes, p.Groups = pagesOf(specs), []PoolGroup{g}
}

// group makes the pages of all layers equal and deals the layers of each shape to
// groups of about as many layers (_get_kv_cache_groups_uniform_page_size): as many
// as the rarest shape has, or as the most frequent if that is less than half as
// many again.
func (p *Pool) group(specs []poolSpec) error {
	page := slices.MaxFunc(specs, func(a, b poolSpec) int { return cmp.Compare(a.page, b.page) }).page
	var buckets, asked []poolSpec
	for _, s := range specs {
		i := slices.IndexFunc(asked, func(o poolSpec) bool { return o.kind == s.kind && o.class() == s.class() && o.page == s.page })
		if i >= 0 {
			buckets[i].layers += s.layers
			continue
		}
		asked = append(asked, s)
		if err := s.enlarge(page); err != nil {
			return err
		}
		buckets = append(buckets, s)
	}
	byLayers := func(a, b poolSpec) int { return a.layers - b.layers }
	size, most := slices.MinFunc(buckets, byLayers).layers, slices.MaxFunc(buckets, byLayers).layers
	if 2*most < 3*size {
		size = most
	}
	widest := 0
	for _, b := range buckets {
		n := ceilDiv(b.layers, size)
		for i := range n {
			layers := ceilDiv(b.layers-i, n)
			widest = max(widest, layers)
			p.Groups = append(p.Groups, b.pooled(layers))
		}
	}
	p.BlockBytes = mulSat(page, int64(widest))
	return nil
}

// dealtUnlike says whether DCP deals some full attention and not other, of unequal
// pages.
func dealtUnlike(specs []poolSpec) bool {
	var first *poolSpec
	for i, s := range specs {
		switch {
		case s.class().kind != FullAttention:
		case first == nil:
			first = &specs[i]
		case s.dealt != first.dealt && s.page != first.page:
			return true
		}
	}
	return false
}

// pack makes one group of each kind of attention, whose pages lie side by side in
// blocks as large as the largest, and of states as many as fit into such a block
// (_get_packed_kv_cache_groups).
func (p *Pool) pack(specs []poolSpec) {
	var buckets [][]poolSpec
	for _, s := range specs {
		i := slices.IndexFunc(buckets, func(b []poolSpec) bool { return b[0].class() == s.class() })
		if i < 0 {
			i, buckets = len(buckets), append(buckets, nil)
		}
		buckets[i] = append(buckets[i], s)
	}
	for _, b := range buckets {
		bytes := b[0].page // Of one state: as many more go into a block as fit.
		if b[0].kind != Recurrent {
			bytes = pagesOf(b)
		}
		p.BlockBytes = max(p.BlockBytes, bytes)
	}
	for _, b := range buckets {
		layers, n := 0, 1
		for _, s := range b {
			layers += s.layers
		}
		if b[0].kind == Recurrent {
			n = int(ceilDiv64(int64(layers), max(p.BlockBytes/b[0].page, 1)))
		}
		for i := range n {
			p.Groups = append(p.Groups, b[0].pooled(ceilDiv(layers-i, n)))
		}
	}
}

// pagesOf is what a block of all of the layers takes, in bytes.
func pagesOf(specs []poolSpec) int64 {
	var sum int64
	for _, s := range specs {
		sum = addSat(sum, mulSat(s.page, int64(s.layers)))
	}
	return sum
}

// enlarge brings the layers' page to page bytes: it takes more tokens where they fit, and
// else is padded, as states are, but for MLA.
func (s *poolSpec) enlarge(page int64) error {
	switch {
	case page%s.page == 0 && page/s.page <= maxModelNumber:
		s.block *= int(page / s.page)
	case s.mla:
		return poolErrorf("pages of %d bytes cannot be made %d bytes long", s.page, page)
	}
	return nil
}

// bound sets the largest number of blocks that a sequence takes of the group: a
// window's tokens but one and those in flight, from any slot of a block on; a
// chunk's and those in flight; the states, all of one recurrence.
func (p *Pool) bound(g *PoolGroup, c Cache, recurrence StateKind) {
	inFlight := max(c.InFlight, 1)
	switch g.Kind {
	case SlidingWindow:
		g.Most = ceilDiv(min(g.Window-1+inFlight, p.maxLength), g.BlockTokens) + 1
	case ChunkedLocal:
		g.Most = ceilDiv(min(g.Window+inFlight, p.maxLength), g.BlockTokens)
	case Recurrent:
		g.Most = c.stateSlots(recurrence)
	case FullAttention, Indexer:
	}
}
