package kvlayout

import "testing"

// TestSGLangStates holds how SGLang shares memory out to recurrent states and tokens,
// by its own formulas worked out by hand: Kimi-Linear has 20 KDA layers of 32 heads of
// 128 x 128 values of four bytes, three rows of three projections of 4,096 values of
// two, and 7 MLA layers of 576 values of two. A state more than requests may take is
// kept for what pads a batch, and of drafts one for each of their tokens.
func TestSGLangStates(t *testing.T) {
	const (
		state = 20 * (32*128*128*4 + 3*3*4096*2) // bytes of a sequence at tp 1
		cell  = 7 * 576 * 2
		tp4   = state / 4
	)
	m := mustModel(t, "moonshotai/Kimi-Linear-48B-A3B-Instruct")
	on := func(tp, dp int) Cache { return Cache{Engine: SGLang, Layout: Layout{TP: tp, DP: dp}} }
	for name, c := range map[string]struct {
		change         func(*Cache)
		tp, dp         int
		memory         int64
		states, tokens int64
		requests       int64 // of 1,000 tokens
	}{
		"its own ratio": {tp: 1, memory: 190 * state, states: 89, tokens: 100 * state / cell, requests: 17},
		"a ratio of 1":  {func(c *Cache) { c.StateRatio = 1 }, 1, 1, 100*state + 3, 49, (50*state + 3) / cell, 9},
		"cut by tp":     {tp: 4, memory: 190 * tp4, states: 89, tokens: 100 * tp4 / cell, requests: 17},
		"a number":      {func(c *Cache) { c.States = 30 }, 1, 1, 100 * state, 30, 69 * state / cell, 6},
		"no prefixes":   {func(c *Cache) { c.NoPrefixCaching = true }, 1, 1, 190 * state, 89, 100 * state / cell, 89},
		"no prefixes, so many requests": {
			func(c *Cache) { c.NoPrefixCaching, c.Sequences = true, 40 }, 1, 1, 100 * state, 40, 59 * state / cell, 40,
		},
		"shared out to dp ranks": {
			func(c *Cache) { c.NoPrefixCaching, c.Sequences = true, 40 }, 4, 4, 100 * state, 10, 4 * (89 * state / cell), 40,
		},
		"fewer requests than dp ranks": {
			func(c *Cache) { c.NoPrefixCaching, c.Sequences = true, 2 }, 4, 4, 100 * state, 1, 4 * (98 * state / cell), 4,
		},
		"with drafts": {
			func(c *Cache) { c.NoPrefixCaching, c.Sequences, c.DraftTokens = true, 10, 3 }, 1, 1, 100 * state, 10, 56 * state / cell, 10,
		},
		"with drafts of fewer states than requests": {
			func(c *Cache) { c.NoPrefixCaching, c.States, c.Sequences, c.DraftTokens = true, 4, 10, 3 }, 1, 1, 100 * state, 4, 80 * state / cell, 4,
		},
		"no memory":          {tp: 1},
		"no more than one":   {tp: 1, memory: 2 * state},
		"two, and no prefix": {func(c *Cache) { c.NoPrefixCaching = true }, 1, 1, 5 * state, 1, 3 * state / cell, 1},
	} {
		cache := on(c.tp, c.dp)
		if c.change != nil {
			c.change(&cache)
		}
		got, err := m.Capacity(cache, c.memory)
		if err != nil || got.States != c.states || got.Tokens != c.tokens || got.Requests(1000) != c.requests {
			t.Errorf("%s: %d states, %d tokens, %d requests (%v), want %d, %d and %d", name, got.States, got.Tokens, got.Requests(1000), err, c.states, c.tokens, c.requests)
			continue
		}
		if rest := c.memory - got.Memory(); c.tokens > 0 && (rest < 0 || rest >= cell) {
			t.Errorf("%s: %d of %d bytes are not used", name, rest, c.memory)
		}
		again, _ := m.CapacityOfBlocks(cache, got.Blocks)
		if d := got.States - again.States; d < 0 || d > 1 {
			t.Errorf("%s: %d states beside %d blocks, want %d", name, again.States, got.Blocks, got.States)
		}
	}
}

func TestSGLangStatesOfTooFew(t *testing.T) {
	m := mustModel(t, "moonshotai/Kimi-Linear-48B-A3B-Instruct")
	for name, c := range map[string]Cache{
		"fewer than dp ranks":           {Engine: SGLang, Layout: Layout{TP: 4, DP: 4}, States: 3},
		"drafts of unknown requests":    {Engine: SGLang, DraftTokens: 2, NoPrefixCaching: true, States: 8},
		"drafts beside a radix cache":   {Engine: SGLang, DraftTokens: 2, States: 8, Sequences: 4},
		"ranks that cannot split heads": {Engine: SGLang, Layout: Layout{TP: 3}},
	} {
		if _, err := m.Pool(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := m.Pool(Cache{Engine: SGLang, Layout: Layout{TP: 4, DP: 4}, States: 4}); err != nil {
		t.Errorf("a state for each dp rank: %v", err)
	}
}

// A value of the matrices has four bytes where the model says nothing, which vLLM takes
// for its own two.
func TestSGLangStatesOfFourBytes(t *testing.T) {
	m := mustModel(t, "Qwen/Qwen3-Next-80B-A3B-Instruct")
	p := mustPool(t, m, Cache{Engine: SGLang, Layout: Layout{TP: 2, DP: 2}, States: 9})
	if p.states.bytes != 36*(32*128*128*4+3*(2*2048+4096)*2) || p.states.fixed != 4 {
		t.Errorf("%d states of %d bytes", p.states.fixed, p.states.bytes)
	}
	if n := p.Blocks(0); n != 0 {
		t.Errorf("%d blocks in no memory", n)
	}
	none, err := m.Capacity(Cache{Engine: SGLang}, 0)
	if err != nil || none.Memory() != 0 {
		t.Errorf("no memory takes %d bytes, %v", none.Memory(), err)
	}
}
