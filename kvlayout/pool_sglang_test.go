package kvlayout

import "testing"

// TestSGLangStates holds how SGLang shares memory out to recurrent states and tokens,
// by its own formulas worked out by hand: Kimi-Linear has 20 KDA layers of 32 heads of
// 128 x 128 values of four bytes, three rows of three projections of 4,096 values of
// two, and 7 MLA layers of 576 values of two.
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
		"its own ratio": {tp: 1, memory: 190 * state, states: 90, tokens: 100 * state / cell, requests: 30},
		"a ratio of 1":  {func(c *Cache) { c.StateRatio = 1 }, 1, 1, 100*state + 3, 50, (50*state + 3) / cell, 16},
		"cut by tp":     {tp: 4, memory: 190 * tp4, states: 90, tokens: 100 * tp4 / cell, requests: 30},
		"a number":      {func(c *Cache) { c.States = 30 }, 1, 1, 100 * state, 30, 70 * state / cell, 10},
		"no prefixes":   {func(c *Cache) { c.NoPrefixCaching = true }, 1, 1, 190 * state, 90, 100 * state / cell, 90},
		"no prefixes, so many requests": {
			func(c *Cache) { c.NoPrefixCaching, c.Sequences = true, 40 }, 1, 1, 100 * state, 40, 60 * state / cell, 40,
		},
		"shared out to dp ranks": {
			func(c *Cache) { c.NoPrefixCaching, c.Sequences = true, 40 }, 4, 4, 100 * state, 10, 4 * (90 * state / cell), 40,
		},
		"with drafts": {
			func(c *Cache) { c.NoPrefixCaching, c.Sequences, c.DraftTokens = true, 10, 3 }, 1, 1, 100 * state, 10, 60 * state / cell, 10,
		},
		"no memory": {tp: 1},
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
		if rest := c.memory - got.Memory(); rest < 0 || rest >= max(cell, 1) {
			t.Errorf("%s: %d of %d bytes are not used", name, rest, c.memory)
		}
		again, _ := m.CapacityOfBlocks(cache, got.Blocks)
		if d := got.States - again.States; d < 0 || d > 1 {
			t.Errorf("%s: %d states beside %d blocks, want %d", name, again.States, got.Blocks, got.States)
		}
	}
}
