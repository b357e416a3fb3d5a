package kvlayout

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestPoolRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		model string
		cache Cache
	}{
		"a window under DCP":       {"openai/gpt-oss-20b", Cache{Layout: Layout{TP: 8, DCP: 2}}},
		"an unknown type":          {"Qwen/Qwen3-8B", Cache{KVType: "INT4"}},
		"a degree":                 {"Qwen/Qwen3-8B", Cache{Layout: Layout{TP: -1}}},
		"too many ranks":           {"Qwen/Qwen3-8B", Cache{Layout: Layout{DP: maxDegree + 1}}},
		"a huge block":             {"Qwen/Qwen3-8B", Cache{BlockTokens: maxModelNumber + 1}},
		"a longest sequence":       {"google/gemma-3-27b-it", Cache{MaxLength: -1}},
		"a huge longest sequence":  {"google/gemma-3-27b-it", Cache{MaxLength: maxModelNumber + 1}},
		"heads of the state":       {"moonshotai/Kimi-Linear-48B-A3B-Instruct", Cache{Layout: Layout{TP: 64}}},
		"states without groups":    {"moonshotai/Kimi-K3", Cache{NoHybrid: true}},
		"SGLang's drafts":          {"moonshotai/Kimi-K3", Cache{Engine: SGLang, DraftTokens: 2}},
		"SGLang's states":          {"moonshotai/Kimi-Linear-48B-A3B-Instruct", Cache{Engine: SGLang, Layout: Layout{TP: 64}}},
		"SGLang without its ratio": {"openai/gpt-oss-20b", Cache{Engine: SGLang}},
		"a block":                  {"Qwen/Qwen3-8B", Cache{BlockTokens: -16}},
	} {
		var refusal *PoolError
		if _, err := mustModel(t, c.model).Capacity(c.cache, 1<<40); !errors.As(err, &refusal) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := mustModel(t, c.model).CapacityOfBlocks(c.cache, 1000); !errors.As(err, &refusal) {
			t.Errorf("%s, in blocks: %v", name, err)
		}
	}
	of := func(groups ...LayerGroup) Model { return Model{AttentionHeads: 8, MaxLength: 4096, Groups: groups} }
	layer := func(kind LayerKind, window int) LayerGroup {
		return LayerGroup{Kind: kind, Layers: 1, Attention: headSharded(8, 64, window)}
	}
	state := LayerGroup{Kind: Recurrent, Layers: 1, State: State{Kind: KDA, ConvRows: 3, ConvParts: []int{8}, Heads: 8, Rows: 8, Columns: 8, ValueBytes: 4}}
	vast := state
	vast.State.Heads, vast.State.Rows, vast.State.Columns = 1<<20, 1<<20, 1<<10
	latent := LayerGroup{Kind: FullAttention, Layers: 1, Attention: Attention{Kind: MLA, KVHeads: 1, Key: 192}}
	for name, c := range map[string]struct {
		model Model
		cache Cache
	}{
		"no model":                         {},
		"two windows as one":               {of(layer(SlidingWindow, 64), layer(SlidingWindow, 128)), Cache{NoHybrid: true}},
		"windows and chunks as one":        {of(layer(SlidingWindow, 64), layer(ChunkedLocal, 64)), Cache{NoHybrid: true}},
		"states alone":                     {of(state), Cache{}},
		"a state of no block":              {of(layer(FullAttention, 0), vast), Cache{}},
		"pages of latents as long as keys": {of(latent, layer(SlidingWindow, 64)), Cache{}},
	} {
		var refusal *PoolError
		if p, err := c.model.Pool(c.cache); !errors.As(err, &refusal) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	for name, c := range map[string]struct {
		model Model
		cache Cache
	}{
		"one window":   {of(layer(SlidingWindow, 64), layer(FullAttention, 0)), Cache{NoHybrid: true}},
		"equal pages":  {of(latent, LayerGroup{Kind: SlidingWindow, Layers: 1, Attention: Attention{Kind: MLA, KVHeads: 1, Key: 192, Window: 64}}), Cache{}},
		"SGLang's own": {mustModel(t, "deepseek-ai/DeepSeek-R1"), Cache{Engine: SGLang, DraftTokens: 2}},
	} {
		if _, err := c.model.Pool(c.cache); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pool of nothing, and less than nothing, hold nothing.
func TestPoolOfNothing(t *testing.T) {
	if p := (Pool{}); p.Blocks(1<<40) != 0 || p.Tokens(1000) != 0 || p.Requests(1000, 5) != 0 || p.RequestBlocks(5) != 0 {
		t.Errorf("no groups: %d blocks, %d tokens, %d requests", p.Blocks(1<<40), p.Tokens(1000), p.Requests(1000, 5))
	}
	for _, c := range []Cache{{}, {Engine: SGLang}} {
		p := mustPool(t, mustModel(t, "Qwen/Qwen3-8B"), c)
		if n := p.Blocks(-5 * p.BlockBytes); n != 0 {
			t.Errorf("%+v: %d blocks in less than no bytes", c, n)
		}
		if n := p.Requests(-5, 16); n != 0 {
			t.Errorf("%+v: %d requests in less than no blocks", c, n)
		}
		if n := p.Tokens(-5); n != 0 {
			t.Errorf("%+v: %d tokens in less than no blocks", c, n)
		}
	}
	for a, want := range map[int64]int64{-5: 0, 0: 0, 1: 1, 2: 1, 3: 2} {
		if got := ceilDiv64(a, 2); got != want {
			t.Errorf("%d / 2 is %d, want %d", a, got, want)
		}
	}
}

// Of a geometry by hand nobody may say the longest sequence. Where layers keep a window
// or a state, how many sequences fit depends on it, and the error names the field; else
// the capacity is that of the blocks.
func TestPoolWithoutALongestSequence(t *testing.T) {
	for name, g := range map[string]Geometry{
		"GQA": {Kind: GQA, Layers: 32, AttentionHeads: 32, KVHeads: 8, HeadValues: 128},
		"MLA": {Kind: MLA, Layers: 61, AttentionHeads: 128, KVHeads: 1, HeadValues: 576},
	} {
		for _, c := range []Cache{{}, {BlockTokens: 64}, {Layout: Layout{TP: 16, DCP: 2}}, {Layout: Layout{TP: 8, DP: 2}}, {Engine: SGLang}} {
			got, err := ModelOf(g).CapacityOfBlocks(c, 1000)
			if err != nil {
				t.Errorf("%s, %+v: %v", name, c, err)
				continue
			}
			l := c.Layout.Defaulted()
			if want := int64(1000 * got.Pool.BlockTokens * l.DCP * l.DP); got.Tokens != want {
				t.Errorf("%s, %+v: %d tokens, want %d", name, c, got.Tokens, want)
			}
			c.MaxLength = 131072
			if all := int64(1000 * got.Pool.BlockTokens); c.Engine != SGLang && got.Requests(int(all)*l.DCP) != 0 {
				t.Errorf("%s, %+v: a sequence gets vLLM's null block", name, c)
			}
			if long, err := ModelOf(g).CapacityOfBlocks(c, 1000); err != nil || long.Tokens != got.Tokens || long.Requests(5000) != got.Requests(5000) {
				t.Errorf("%s, %+v: %d tokens of a known length, %d without it", name, c, long.Tokens, got.Tokens)
			}
		}
	}
	for _, name := range []string{"openai/gpt-oss-20b", "moonshotai/Kimi-K3"} {
		m := mustModel(t, name)
		m.MaxLength = 0
		if _, err := m.Pool(Cache{}); err == nil || !strings.Contains(err.Error(), "set model.maxLength") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Layers that all have a window cost what they keep: SGLang has one cell for them.
func TestSGLangPoolOfWindows(t *testing.T) {
	m := Model{AttentionHeads: 8, Groups: []LayerGroup{{Kind: SlidingWindow, Layers: 3, Attention: headSharded(8, 64, 128)}}}
	if p := mustPool(t, m, Cache{Engine: SGLang}); p.BlockBytes != 3*8*64*2*2 {
		t.Errorf("a token of %d bytes", p.BlockBytes)
	}
}

// SGLang's pages of one token are blocks of one, and models without states have none.
func TestSGLangRequestsOfTokens(t *testing.T) {
	c, err := mustModel(t, "deepseek-ai/DeepSeek-R1").CapacityOfBlocks(Cache{Engine: SGLang, Layout: Layout{TP: 8}}, 1000)
	if err != nil || c.Requests(100) != 10 || c.States != 0 {
		t.Errorf("%d requests of 100 tokens in 1,000, %d states, %v", c.Requests(100), c.States, err)
	}
}

// A pool of one block holds no sequence in vLLM, whose null block it is.
func TestRequestsBesideTheNullBlock(t *testing.T) {
	p := mustPool(t, mustModel(t, "Qwen/Qwen3-8B"), Cache{MaxLength: 16})
	for blocks, want := range map[int64]int64{0: 0, 1: 0, 2: 1, 3: 2} {
		if got := p.Requests(blocks, 16); got != want {
			t.Errorf("%d blocks: %d requests, want %d", blocks, got, want)
		}
	}
}

// Layers half as many again as the rarest are dealt to groups of its size, fewer are one.
func TestPoolGroupsOfHalfAsManyAgain(t *testing.T) {
	for full, want := range map[int][]int{5: {4, 5}, 6: {4, 3, 3}} {
		p := mustPool(t, Model{AttentionHeads: 8, MaxLength: 4096, Groups: []LayerGroup{
			{Kind: SlidingWindow, Layers: 4, Attention: headSharded(8, 64, 128)},
			{Kind: FullAttention, Layers: full, Attention: headSharded(8, 64, 0)},
		}}, Cache{})
		var got []int
		for _, g := range p.Groups {
			got = append(got, g.Layers)
		}
		if !slices.Equal(got, want) {
			t.Errorf("4 windows and %d full layers: groups of %v, want %v", full, got, want)
		}
	}
}

// An indexer shares the blocks of its latents also beside a draft that is not dealt.
func TestPoolOfAnIndexerBesideADraft(t *testing.T) {
	m := mustModel(t, "deepseek-ai/DeepSeek-V3.2")
	m.Drafts = grouped(1, 8, 128)
	p := mustPool(t, m, Cache{Layout: Layout{TP: 8, DCP: 8}, BlockTokens: 64, OwnDrafts: true, MaxLength: 4096})
	if len(p.Groups) != 2 || p.Groups[0].Layers != 2*61 || p.Groups[1].Layers != 1 || p.BlockBytes != 61*64*(1152+132) {
		t.Errorf("%+v", p)
	}
}
