package kvlayout

// sglangStateRatio is the default of SGLang's --mamba-full-memory-ratio, from 0.5.20 to
// 0.5.23.
const sglangStateRatio = 0.9

// sglangStates is the number of states that SGLang counts for a request where it keeps
// prefixes: the running one and two that the radix cache holds at a time, and two that track
// it while the next step is scheduled (--mamba-radix-cache-strategy auto, which is
// extra_buffer for all kinds of state from 0.5.20 to 0.5.23). With no_buffer there are three.
const sglangStates = 5

// sglangPool follows SGLang 0.5.23 (pool_configurator): every token has one cell
// over all layers; windowed layers keep WindowRatio tokens per token of full
// ones; with DCP every rank holds all keys of an indexer.
func (m Model) sglangPool(c Cache) (Pool, error) {
	l, t, tp := c.Layout.Defaulted(), c.kvType(m), c.attentionTP()
	p := Pool{BlockTokens: max(c.BlockTokens, 1), dcp: l.DCP}
	var full, windowed int64
	layers := 0
	for _, g := range m.Caches(c.OwnDrafts) {
		g = c.promoted(g, m)
		bytes := mulSat(g.Attention.rankRowBytes(t, tp), int64(g.rankLayers(l)))
		switch g.Kind {
		case Recurrent:
			continue
		case SlidingWindow, ChunkedLocal:
			windowed = addSat(windowed, bytes)
			layers += g.rankLayers(l)
			continue
		case Indexer:
			bytes = mulSat(bytes, int64(l.DCP))
		case FullAttention:
			layers += g.rankLayers(l)
		}
		full = addSat(full, bytes)
	}
	cell := full
	switch {
	case full == 0:
		cell = windowed
	case windowed > 0 && c.WindowRatio <= 0:
		return Pool{}, poolErrorf("SGLang's swa-full-tokens-ratio is not known")
	case windowed > 0:
		cell = addSat(full, int64(c.WindowRatio*float64(windowed)))
	}
	p.BlockBytes = mulSat(cell, int64(p.BlockTokens))
	p.Groups = []PoolGroup{{Kind: FullAttention, Layers: layers, BlockTokens: p.BlockTokens, Dealt: true}}
	if m.HasState() {
		states, err := m.sglangSlots(c)
		if err != nil {
			return Pool{}, err
		}
		p.states = states
	}
	return p, nil
}

// stateSlots is the memory of a rank that SGLang keeps apart for recurrent states.
type stateSlots struct {
	// bytes is one state, over all layers of the rank; 0 without such layers.
	bytes int64
	// fixed is the number of states, where it does not follow from ratio, the bytes of
	// states for each byte of tokens.
	fixed int64
	ratio float64
	// each is the number of states that a request takes, and drafts what beside fixed
	// is kept for drafts, in states.
	each, drafts int64
}

// sglangSlots follows SGLang's KVCacheConfigurator (_handle_max_mamba_cache of 0.5.20 to
// 0.5.23): so many states as are asked for, or as there may be requests where no prefixes
// are kept, or a share of the memory. The convolution keeps two bytes a value, the matrices
// four. What it keeps for drafts is decode's: prefill from 0.5.22 on keeps none.
func (m Model) sglangSlots(c Cache) (stateSlots, error) {
	l, tp := c.Layout.Defaulted(), c.attentionTP()
	s := stateSlots{ratio: c.StateRatio, each: sglangStates}
	if s.ratio <= 0 {
		s.ratio = sglangStateRatio
	}
	for _, g := range m.States() {
		if !g.State.FitsTP(tp) {
			return s, poolErrorf("%d ranks cannot split the states of %d heads", tp, g.State.Heads)
		}
		g.State.ValueBytes = 4
		s.bytes = addSat(s.bytes, mulSat(g.State.Bytes(tp, 0), int64(g.rankLayers(l))))
	}
	if c.States > 0 && c.States < l.DP {
		return s, poolErrorf("%d states cannot be shared out to %d data-parallel ranks", c.States, l.DP)
	}
	var requests int64
	if c.Sequences > 0 {
		requests = int64(max(c.Sequences/l.DP, 1))
	}
	s.fixed = int64(c.States / l.DP)
	if c.NoPrefixCaching {
		s.each = 1
		if s.fixed == 0 {
			s.fixed = requests
		}
	}
	if c.DraftTokens > 0 {
		if s.fixed == 0 || requests == 0 || !c.NoPrefixCaching {
			return s, poolErrorf("with speculation SGLang keeps a state for each draft token of the requests that run, " +
				"and how many run is known only with max-running-requests and without a radix cache")
		}
		s.drafts = mulSat(addSat(min(requests, s.fixed), sglangPadding), int64(c.DraftTokens))
	}
	return s, nil
}

// sglangPadding is the number of states that SGLang keeps for what pads a batch.
const sglangPadding = 1

// of is the number of states where memory bytes are for them and for tokens.
func (s stateSlots) of(memory int64) int64 {
	switch {
	case s.bytes == 0 || memory < 1:
		return 0
	case s.fixed > 0:
		return s.fixed
	}
	return s.within(float64(memory) * s.ratio / (1 + s.ratio))
}

// beside is the number of states where tokens alone take memory bytes.
func (s stateSlots) beside(memory int64) int64 {
	if s.bytes == 0 || s.fixed > 0 {
		return s.fixed
	}
	return s.within(float64(memory) * s.ratio)
}

// within is the number of states for which there are bytes.
func (s stateSlots) within(bytes float64) int64 {
	return max(int64(bytes/float64(s.bytes))-sglangPadding, 0)
}

// memory is what a number of states takes, in bytes, with those for padding and drafts.
func (s stateSlots) memory(states int64) int64 {
	if states < 1 {
		return 0
	}
	return mulSat(addSat(addSat(states, s.drafts), sglangPadding), s.bytes)
}
