package kvlayout

import (
	"reflect"
	"slices"
	"testing"
)

func mustModel(t testing.TB, name string) Model {
	t.Helper()
	m, ok := LookupModel(name)
	if !ok {
		t.Fatalf("%s is not in the catalog", name)
	}
	return m
}

func mustPool(t *testing.T, m Model, c Cache) Pool {
	t.Helper()
	p, err := m.Pool(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The public figures of DeepSeek-R1 in blocks of 64, from bytes and from blocks.
func TestCapacityFixedPointsOfR1(t *testing.T) {
	r1 := mustModel(t, "deepseek-ai/DeepSeek-R1")
	tp4 := Cache{Layout: Layout{TP: 4}, BlockTokens: 64, MaxLength: 65536}
	dcp4 := tp4
	dcp4.Layout.DCP = 4
	for _, c := range []struct {
		cache                                    Cache
		blocks, memory, tokens, perToken, atOnce int64
	}{
		// atOnce is of the seed's load, 8,192 tokens in and 4,096 out: 256 don't fit.
		{tp4, 22_616, 101_713_379_328, 1_447_424, 61 * 576 * 2, 117},
		{dcp4, 22_127, 22_127 * 61 * 64 * 576 * 2, 5_664_512, 61 * 576 * 2 / 4, 460},
	} {
		for _, memory := range []int64{c.memory, c.memory + 61*64*576*2 - 1} {
			if got, err := r1.Capacity(c.cache, memory); err != nil || got.Blocks != c.blocks || got.Tokens != c.tokens || got.Memory() != c.memory {
				t.Errorf("%+v, %d bytes: %+v, %v", c.cache.Layout, memory, got, err)
			}
		}
		got, err := r1.CapacityOfBlocks(c.cache, c.blocks)
		if err != nil || got.Tokens != c.tokens || got.BytesPerToken != c.perToken || got.Requests(8192+4096) != c.atOnce {
			t.Errorf("%+v: %+v, %d at once, %v", c.cache.Layout, got, got.Requests(8192+4096), err)
		}
	}
}

// The public figures of Kimi-Linear in blocks of 2,048: a request takes 16 (8) of
// attention and 2 of each of three groups of states.
func TestCapacityFixedPointsOfKimiLinear(t *testing.T) {
	kimi := mustModel(t, "moonshotai/Kimi-Linear-48B-A3B-Instruct")
	for _, c := range []struct {
		dcp        int
		perRequest int64
		blocks     int64
		tokens     int64
	}{{1, 22, 3243, 4_830_301}, {2, 14, 3177, 7_435_995}} {
		cache := Cache{Layout: Layout{TP: 2, DCP: c.dcp}, BlockTokens: 2048, MaxLength: 32768}
		got, err := kimi.CapacityOfBlocks(cache, c.blocks)
		if err != nil || got.Tokens != c.tokens || got.Pool.RequestBlocks(32768) != c.perRequest || got.Pool.Raised {
			t.Errorf("DCP %d: %+v, %v", c.dcp, got, err)
		}
		groups := []PoolGroup{
			{Kind: Recurrent, Layers: 7, Most: 2},
			{Kind: Recurrent, Layers: 7, Most: 2},
			{Kind: Recurrent, Layers: 6, Most: 2},
			{Kind: FullAttention, Layers: 7, BlockTokens: 2048, Dealt: true},
		}
		if !reflect.DeepEqual(got.Pool.Groups, groups) {
			t.Errorf("DCP %d: groups %+v", c.dcp, got.Pool.Groups)
		}
		const page = 2048 * 576 * 2
		if got.Pool.BlockBytes != 7*page {
			t.Errorf("DCP %d: blocks of %d bytes, want 7 pages of %d", c.dcp, got.Pool.BlockBytes, page)
		}
		if again, err := kimi.Capacity(cache, c.blocks*7*page+page); err != nil || again.Tokens != c.tokens {
			t.Errorf("DCP %d from bytes: %+v, %v", c.dcp, again, err)
		}
	}
}

// States of Kimi-Linear on 2 ranks: 3 rows of 3 x 2,048 values in bf16 and 16
// matrices of 128 x 128 in single precision.
func TestStateBytes(t *testing.T) {
	for _, c := range []struct {
		model      string
		tp, drafts int
		want       int64
	}{
		{"moonshotai/Kimi-Linear-48B-A3B-Instruct", 2, 0, 3*3*2048*2 + 16*128*128*4},
		{"moonshotai/Kimi-Linear-48B-A3B-Instruct", 1, 2, 5*3*4096*2 + 32*128*128*4},
		{"Qwen/Qwen3-Next-80B-A3B-Instruct", 4, 0, 3*2048*2 + 8*128*128*2},
		{"Qwen/Qwen3.5-397B-A17B", 4, 0, 3*3072*2 + 16*128*128*4},
		{"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 2, 0, 3*3072*2 + 32*64*128*4},
		// 8 groups on 16 ranks: each rank has one of its own.
		{"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", 16, 0, 3*(512+2*128)*2 + 8*64*128*4},
	} {
		s := mustModel(t, c.model).States()[0].State
		if got := s.Bytes(c.tp, c.drafts); got != c.want || !s.FitsTP(c.tp) {
			t.Errorf("%s on %d ranks: %d bytes, want %d; fits: %v", c.model, c.tp, got, c.want, s.FitsTP(c.tp))
		}
	}
	kda := mustModel(t, "moonshotai/Kimi-Linear-48B-A3B-Instruct").States()[0].State
	if kda.FitsTP(3) || kda.FitsTP(64) || kda.FitsTP(0) {
		t.Error("32 heads are split over 3, 64 or no ranks")
	}
}

// MambaSpec.max_memory_usage_bytes of vLLM 0.33.0, in pages: in mode align (with
// prefix caching) 2, one per draft token, and the checkpoint block of Mamba2; else 1
// and one per draft token.
func TestStatesOfASequence(t *testing.T) {
	for model, want := range map[string][5]int{
		"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {3, 6, 1, 4, 2},
		"Qwen/Qwen3.5-397B-A17B":                     {2, 5, 1, 4, 2},
		"moonshotai/Kimi-K3":                         {2, 5, 1, 4, 2},
	} {
		var got [5]int
		for i, c := range []Cache{{}, {DraftTokens: 3}, {NoPrefixCaching: true}, {NoPrefixCaching: true, DraftTokens: 3}, {Version: "0.29.0"}} {
			for _, g := range mustPool(t, mustModel(t, model), c).Groups {
				if g.Kind == Recurrent {
					got[i] = g.Most
				}
			}
		}
		if got != want {
			t.Errorf("%s: %v, want %v", model, got, want)
		}
	}
}

// vLLM raises a hybrid's block so that a page of attention holds a state, to the
// size that depends on TP (Qwen3.5 from TP4 to TP1).
func TestPoolRaisesBlocks(t *testing.T) {
	for _, c := range []struct {
		model string
		cache Cache
		want  int
	}{
		// A state of 1,085,440 bytes; a token of 1,152; multiples of 128.
		{"moonshotai/Kimi-Linear-48B-A3B-Instruct", Cache{Layout: Layout{TP: 2}}, 1024},
		{"moonshotai/Kimi-Linear-48B-A3B-Instruct", Cache{Layout: Layout{TP: 1}}, 1920},
		{"moonshotai/Kimi-Linear-48B-A3B-Instruct", Cache{Layout: Layout{TP: 2}, BlockTokens: 2048}, 2048},
		{"moonshotai/Kimi-Linear-48B-A3B-Instruct", Cache{Layout: Layout{TP: 2}, BlockTokens: 600}, 1200},
		// As engines have logged it: Qwen3-Next 544 (with 1.49 % of padding), the same
		// on two ranks, Qwen3.5-27B 784, and Qwen3.5-35B-A3B 1,056 on two and 528 on four.
		{"Qwen/Qwen3-Next-80B-A3B-Instruct", Cache{Layout: Layout{TP: 1}}, 544},
		// What is asked for and is no multiple of the kernel's block: 16, and 1 of MLA.
		{"Qwen/Qwen3-Next-80B-A3B-Instruct", Cache{Layout: Layout{TP: 1}, BlockTokens: 100}, 608},
		{"moonshotai/Kimi-Linear-48B-A3B-Instruct", Cache{Layout: Layout{TP: 2}, BlockTokens: 250}, 1000},
		{"Qwen/Qwen3-Next-80B-A3B-Instruct", Cache{Layout: Layout{TP: 2}}, 544},
		{"Qwen/Qwen3.5-27B", Cache{Layout: Layout{TP: 1}}, 784},
		{"Qwen/Qwen3.5-35B-A3B", Cache{Layout: Layout{TP: 2}}, 1056},
		{"Qwen/Qwen3.5-35B-A3B", Cache{Layout: Layout{TP: 4}}, 528},
		// 4 ranks: 1,067,008 bytes and 1,024 a token; 1 rank: 4,268,032 and 2,048.
		{"Qwen/Qwen3.5-397B-A17B", Cache{Layout: Layout{TP: 4}}, 1056},
		{"Qwen/Qwen3.5-397B-A17B", Cache{Layout: Layout{TP: 1, DP: 8}}, 2096},
		{"Qwen/Qwen3.5-397B-A17B", Cache{Layout: Layout{TP: 4}, KVType: FP8}, 2096},
		{"Qwen/Qwen3.5-397B-A17B", Cache{Layout: Layout{TP: 4}, KernelBlock: 64}, 1088},
	} {
		p := mustPool(t, mustModel(t, c.model), c.cache)
		if p.BlockTokens != c.want || p.Raised != (c.want > c.cache.BlockTokens) {
			t.Errorf("%s, %+v: blocks of %d tokens (raised: %v), want %d", c.model, c.cache.Layout, p.BlockTokens, p.Raised, c.want)
		}
		row := mustModel(t, c.model).fullRowBytes(c.cache.kvType(mustModel(t, c.model)), c.cache.attentionTP())
		if page := row * int64(p.BlockTokens); page < p.StateBytes {
			t.Errorf("%s: a page of %d bytes does not hold a state of %d", c.model, page, p.StateBytes)
		}
	}
}

func TestPoolGroups(t *testing.T) {
	type groups []PoolGroup
	full := func(layers, block int) PoolGroup {
		return PoolGroup{Kind: FullAttention, Layers: layers, BlockTokens: block, Dealt: true}
	}
	for _, c := range []struct {
		model string
		cache Cache
		want  groups
		bytes int64 // of a block
	}{
		// Latent and indexer share a block.
		{"deepseek-ai/DeepSeek-V3.2", Cache{Layout: Layout{TP: 8}, BlockTokens: 64}, groups{full(122, 64)}, 61 * 64 * (1152 + 132)},
		{"zai-org/GLM-5.3", Cache{Layout: Layout{TP: 8, DCP: 2}, BlockTokens: 64}, groups{full(99, 64)}, 64 * (78*1152 + 21*132)},
		{"MiniMaxAI/MiniMax-M3", Cache{Layout: Layout{TP: 8}, BlockTokens: 128}, groups{full(117, 128)}, 128 * (60*512 + 57*256)},
		// Equal numbers of windows and full layers: one group each.
		{
			"openai/gpt-oss-20b",
			Cache{Layout: Layout{TP: 1}, InFlight: 8192},
			groups{{Kind: SlidingWindow, Layers: 12, BlockTokens: 16, Window: 128, Most: (127+8192+15)/16 + 1}, full(12, 16)},
			12 * 16 * 2048,
		},
		{"openai/gpt-oss-20b", Cache{Layout: Layout{TP: 1}, NoHybrid: true}, groups{full(24, 16)}, 24 * 16 * 2048},
		// 52 windows beside 10 full layers: six groups, of 9 and 8.
		{
			"google/gemma-3-27b-it",
			Cache{Layout: Layout{TP: 2}, MaxLength: 32768},
			groups{
				{Kind: SlidingWindow, Layers: 9, BlockTokens: 16, Window: 1024, Most: 65},
				{Kind: SlidingWindow, Layers: 9, BlockTokens: 16, Window: 1024, Most: 65},
				{Kind: SlidingWindow, Layers: 9, BlockTokens: 16, Window: 1024, Most: 65},
				{Kind: SlidingWindow, Layers: 9, BlockTokens: 16, Window: 1024, Most: 65},
				{Kind: SlidingWindow, Layers: 8, BlockTokens: 16, Window: 1024, Most: 65},
				{Kind: SlidingWindow, Layers: 8, BlockTokens: 16, Window: 1024, Most: 65},
				full(10, 16),
			},
			10 * 16 * 8 * 512,
		},
		{
			"meta-llama/Llama-4-Scout-17B-16E-Instruct",
			Cache{Layout: Layout{TP: 8}, MaxLength: 131072},
			groups{
				{Kind: ChunkedLocal, Layers: 12, BlockTokens: 16, Window: 8192, Most: 513},
				{Kind: ChunkedLocal, Layers: 12, BlockTokens: 16, Window: 8192, Most: 513},
				{Kind: ChunkedLocal, Layers: 12, BlockTokens: 16, Window: 8192, Most: 513},
				full(12, 16),
			},
			12 * 16 * 512,
		},
		// Speculating with its own layers caches them too, in the same groups.
		{"deepseek-ai/DeepSeek-R1", Cache{Layout: Layout{TP: 8}, BlockTokens: 64, OwnDrafts: true, DraftTokens: 1}, groups{full(62, 64)}, 62 * 64 * 1152},
		{
			"Qwen/Qwen3.5-27B",
			Cache{Layout: Layout{TP: 4}, OwnDrafts: true, DraftTokens: 2, NoPrefixCaching: true},
			groups{
				{Kind: Recurrent, Layers: 16, Most: 3}, {Kind: Recurrent, Layers: 16, Most: 3}, {Kind: Recurrent, Layers: 16, Most: 3}, full(17, 800),
			},
			17 * 800 * 1024,
		},
		// SGLang: a page of cells.
		{"deepseek-ai/DeepSeek-R1", Cache{Engine: SGLang, Layout: Layout{TP: 8}, BlockTokens: 64}, groups{full(61, 64)}, 61 * 64 * 1152},
		{"deepseek-ai/DeepSeek-V3.2", Cache{Engine: SGLang, Layout: Layout{TP: 8, DCP: 8}}, groups{full(61, 1)}, 61 * (1152 + 8*132)},
		{"Qwen/Qwen3-32B", Cache{Engine: SGLang, Layout: Layout{TP: 8, DP: 4}}, groups{full(64, 1)}, 64 * 4 * 512},
		{"openai/gpt-oss-20b", Cache{Engine: SGLang, Layout: Layout{TP: 1}, WindowRatio: 0.5}, groups{full(24, 1)}, 12*2048 + 6*2048},
		{"openai/gpt-oss-20b", Cache{Engine: SGLang, Layout: Layout{TP: 1}, NoHybrid: true}, groups{full(24, 1)}, 24 * 2048},
	} {
		p := mustPool(t, mustModel(t, c.model), c.cache)
		if !reflect.DeepEqual(groups(p.Groups), c.want) || p.BlockBytes != c.bytes {
			t.Errorf("%s, %+v:\n got %+v of %d bytes\nwant %+v of %d", c.model, c.cache, p.Groups, p.BlockBytes, c.want, c.bytes)
		}
	}
}

// How vLLM's own tests group layers of a few shapes.
func TestPoolGroupsAsVLLM(t *testing.T) {
	full := func(layers int, a Attention) LayerGroup {
		return LayerGroup{Kind: FullAttention, Layers: layers, Attention: a}
	}
	window := func(layers int, a Attention) LayerGroup {
		a.Window = 1024
		return LayerGroup{Kind: SlidingWindow, Layers: layers, Attention: a}
	}
	small, wide := headSharded(2, 32, 0), headSharded(2, 64, 0)
	odd := headSharded(2, 96, 0)
	const page = 16 * 2 * 64 * 2 * 2 // of wide
	for name, c := range map[string]struct {
		groups []LayerGroup
		layers []int // of each group
		blocks []int // tokens per block of each group
		bytes  int64 // of a block
	}{
		"one kind":                  {[]LayerGroup{full(2, wide)}, []int{2}, []int{16}, 2 * page},
		"windows alone":             {[]LayerGroup{window(2, wide)}, []int{2}, []int{16}, 2 * page},
		"one of each":               {[]LayerGroup{full(1, wide), window(1, wide)}, []int{1, 1}, []int{16, 16}, page},
		"2 and 4":                   {[]LayerGroup{full(2, wide), window(4, wide)}, []int{2, 2, 2}, []int{16, 16, 16}, 2 * page},
		"3 and 7":                   {[]LayerGroup{full(3, wide), window(7, wide)}, []int{3, 3, 2, 2}, []int{16, 16, 16, 16}, 3 * page},
		"6 and 5":                   {[]LayerGroup{full(6, wide), window(5, wide)}, []int{6, 5}, []int{16, 16}, 6 * page},
		"two shapes of one kind":    {[]LayerGroup{full(1, wide), full(1, small)}, []int{2}, []int{16}, page + page/2},
		"half a page: double block": {[]LayerGroup{full(1, wide), window(1, small)}, []int{1, 1}, []int{16, 32}, page},
		"padded to the larger page": {[]LayerGroup{full(1, wide), window(1, odd)}, []int{1, 1}, []int{16, 16}, page + page/2},
	} {
		m := Model{AttentionHeads: 2, MaxLength: 16384, Groups: c.groups}
		p := mustPool(t, m, Cache{})
		var layers, blocks []int
		for _, g := range p.Groups {
			layers, blocks = append(layers, g.Layers), append(blocks, g.BlockTokens)
		}
		if !slices.Equal(layers, c.layers) || !slices.Equal(blocks, c.blocks) || p.BlockBytes != c.bytes {
			t.Errorf("%s: layers %v in blocks of %v tokens, %d bytes a block; want %v, %v, %d", name, layers, blocks, p.BlockBytes, c.layers, c.blocks, c.bytes)
		}
	}
	// 16,384 tokens take 1,024 blocks of full attention, and 129 of a window of 1,024
	// with 1,024 tokens in flight.
	m := Model{AttentionHeads: 32, MaxLength: 16384, Groups: []LayerGroup{full(32, wide), window(32, wide)}}
	c, err := m.CapacityOfBlocks(Cache{InFlight: 1024}, (1024+129)*3)
	if err != nil || c.Tokens != 3*16384 || c.Requests(16384) != 2 || c.Pool.RequestBlocks(16384) != 1024+129 {
		t.Errorf("%+v, %d at once, %v", c, c.Requests(16384), err)
	}
}

// A draft that DCP does not deal has a block list of its own in blocks as large as
// the model's; states fill such blocks.
func TestPoolOfADraftThatIsNotDealt(t *testing.T) {
	m := mustModel(t, "deepseek-ai/DeepSeek-R1")
	m.Drafts = grouped(1, 8, 128)
	cache := Cache{Layout: Layout{TP: 8, DCP: 8}, BlockTokens: 64, OwnDrafts: true, MaxLength: 4096}
	p := mustPool(t, m, cache)
	want := []PoolGroup{
		{Kind: FullAttention, Layers: 61, BlockTokens: 64, Dealt: true},
		{Kind: FullAttention, Layers: 1, BlockTokens: 64},
	}
	if !reflect.DeepEqual(p.Groups, want) || p.BlockBytes != 61*64*1152 || p.RequestBlocks(4096) != 8+64 {
		t.Errorf("%+v", p)
	}
	m = mustModel(t, "moonshotai/Kimi-Linear-48B-A3B-Instruct")
	m.Drafts = grouped(1, 8, 128)
	cache.BlockTokens = 2048
	p = mustPool(t, m, cache)
	want = []PoolGroup{
		{Kind: Recurrent, Layers: 7, Most: 2},
		{Kind: Recurrent, Layers: 7, Most: 2},
		{Kind: Recurrent, Layers: 6, Most: 2},
		{Kind: FullAttention, Layers: 7, BlockTokens: 2048, Dealt: true},
		{Kind: FullAttention, Layers: 1, BlockTokens: 2048},
	}
	if !reflect.DeepEqual(p.Groups, want) || p.BlockBytes != 7*2048*1152 {
		t.Errorf("%+v", p)
	}
}

// Of every model and layout: the blocks of a sequence hold its tokens, more blocks
// hold no fewer, and every layer is in one group.
func TestPoolProperties(t *testing.T) {
	for _, m := range Models() {
		layers := 0
		for _, g := range m.Groups {
			layers += g.Layers
		}
		for _, l := range m.Layouts(VLLM, 8) {
			c := Cache{Layout: l, MaxLength: 131072, InFlight: 8192}
			p := mustPool(t, m, c)
			pooled := 0
			for _, g := range p.Groups {
				pooled += g.Layers
			}
			if pooled != layers {
				t.Errorf("%s, %+v: %d of %d layers in %+v", m.Name, l, pooled, layers, p.Groups)
			}
			for _, tokens := range []int{1, 1000, 131072} {
				held := p.RequestBlocks(tokens) * p.BlockBytes * int64(l.DCP)
				if token := m.TokenBytes(Cache{Layout: Layout{TP: l.TP}}); held < token*int64(tokens) {
					t.Errorf("%s, %+v: %d bytes for %d tokens of %d", m.Name, l, held, tokens, token)
				}
			}
			last := int64(0)
			for blocks := range int64(200) {
				if n := p.Tokens(blocks); n < last || p.Requests(blocks, 1000) > blocks {
					t.Fatalf("%s, %+v: %d blocks hold %d tokens, one fewer %d", m.Name, l, blocks, n, last)
				} else {
					last = n
				}
			}
		}
	}
}
