package kvlayout

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// What is lacking is told by what the count is of: a pool of as many blocks as a
// sequence takes has one that no sequence gets.
func TestCapacityLengthTellsWhatIsLacking(t *testing.T) {
	r1, k3 := mustModel(t, "deepseek-ai/DeepSeek-R1"), mustModel(t, "moonshotai/Kimi-K3")
	pair := func(e Engine, m *Model, blocks int64, dcp int) Pair {
		side := Side{Layout: Layout{TP: 8, DCP: dcp, Interleave: 64}, BlockSize: 64, MaxLength: 64 * 100, KVBlocks: blocks}
		return Pair{Engine: e, Version: "0.33.0", Mover: MoverAgent, Model: m, Prefill: side, Decode: side}
	}
	for name, c := range map[string]struct {
		pair Pair
		says []string
	}{
		"too few blocks": {pair(VLLM, &r1, 50, 1), []string{"takes 100 blocks of a rank of decode, which has 50;", "set model.maxLength to 3136, or raise engine.kvCacheMemory"}},
		"the null block": {pair(VLLM, &r1, 100, 1), []string{"which has 100, one of them vLLM's null block, which no sequence gets;", "to 6336"}},
		"no room at all": {pair(VLLM, &r1, 1, 8), []string{"which has 1;", "; raise engine.kvCacheMemory"}},
		"SGLang":         {pair(SGLang, &r1, 99, 8), nil},
		"enough":         {pair(VLLM, &r1, 101, 1), nil},
		"states":         {pair(SGLang, &k3, 101, 1), []string{"takes 5 recurrent states of a rank of decode, which has 1;", "; raise engine.kvCacheMemory"}},
	} {
		var told string
		for _, p := range Check(c.pair, Decode) {
			if p.Rule == "capacity-length" {
				told = p.String()
			}
		}
		if told != "" != (c.says != nil) {
			t.Errorf("%s: %q", name, told)
		}
		for _, s := range c.says {
			if !strings.Contains(told, s) {
				t.Errorf("%s: %q does not say %q", name, told, s)
			}
		}
	}
	for _, p := range Check(pair(VLLM, &r1, 50, 1), Prefill) {
		if p.Rule == "capacity-length" && strings.Contains(p.Fix, "dcp") {
			t.Errorf("prefill is told to have DCP: %s", p)
		}
	}
}

// What is told to be set is what no rule refuses, and what both sides hold where both
// have the length.
func TestCapacityFixes(t *testing.T) {
	r1, v32, llama := mustModel(t, "deepseek-ai/DeepSeek-R1"), mustModel(t, "deepseek-ai/DeepSeek-V3.2"), mustModel(t, llama)
	pair := func(m *Model, change func(p *Pair)) Pair {
		side := Side{Layout: Layout{TP: 8}, BlockSize: 64, MaxLength: 6400, KVBlocks: 50}
		p := Pair{Engine: VLLM, Version: "0.33.0", Mover: MoverAgent, Model: m, Prefill: side, Decode: side}
		p.Prefill.KVBlocks = 1000
		change(&p)
		return p
	}
	load := func(replicas int) func(p *Pair) {
		return func(p *Pair) {
			p.Load, p.Decode.KVBlocks = Load{Input: 4096, Output: 2304, Concurrency: 32}, 1000
			p.Decode.Replicas = replicas
		}
	}
	for name, c := range map[string]struct {
		pair Pair
		fix  string
	}{
		"alike": {pair(&r1, func(*Pair) {}), "set model.maxLength to 3136, or decode.layout.dcp to 8, or raise engine.kvCacheMemory"},
		"prefill holds less": {
			pair(&r1, func(p *Pair) { p.Prefill.KVBlocks = 40 }),
			"set model.maxLength to 2496, or raise engine.kvCacheMemory",
		},
		"of decode alone": {
			pair(&r1, func(p *Pair) { p.Prefill.MaxLength = 4096 }),
			"set decode.maxLength to 3136, or decode.layout.dcp to 8, or raise engine.kvCacheMemory",
		},
		"dcp that is not enough": {pair(&r1, func(p *Pair) { p.Decode.KVBlocks = 10 }), "set model.maxLength to 576, or raise engine.kvCacheMemory"},
		"dcp that the connector has not": {
			pair(&r1, func(p *Pair) { p.Mover = MoverEngine }),
			"set model.maxLength to 3136, or decode.layout.dcp to 8 and transfer.mover to Agent, or raise engine.kvCacheMemory",
		},
		"the same, and no agent": {
			pair(&r1, func(p *Pair) { p.Mover, p.NoAgent = MoverEngine, true }),
			"set model.maxLength to 3136, or raise engine.kvCacheMemory",
		},
		"dcp that no backend has": {pair(&v32, func(*Pair) {}), "set model.maxLength to 3136, or raise engine.kvCacheMemory"},
		"an indexer, simulated": {
			pair(&v32, func(p *Pair) { load(1)(p); p.Engine, p.Decode.MaxLength = Simulator, 0 }),
			"set decode.layout.dcp to 8 and decode.layout.interleave to 64, or raise decode.replicas to 4",
		},
		"heads": {pair(&llama, func(*Pair) {}), "set model.maxLength to 3136, or raise engine.kvCacheMemory"},

		"load":                        {pair(&r1, load(1)), "set decode.layout.dcp to 8, or raise decode.replicas to 4"},
		"load, by the engine":         {pair(&r1, func(p *Pair) { load(1)(p); p.Mover = MoverEngine }), "set decode.layout.dcp to 8 and transfer.mover to Agent, or raise decode.replicas to 4"},
		"load on few blocks":          {pair(&r1, func(p *Pair) { load(2)(p); p.Decode.KVBlocks = 150 }), "set decode.replicas to 3 and decode.layout.dcp to 8, or raise decode.replicas to 22"},
		"load that dcp does not help": {pair(&llama, load(1)), "raise decode.replicas to 4"},
	} {
		var told []string
		for _, p := range Compatible(c.pair) {
			if strings.HasPrefix(p.Rule, "capacity-") {
				told = append(told, p.Fix)
			}
		}
		if len(told) == 0 || slices.ContainsFunc(told, func(fix string) bool { return fix != c.fix }) {
			t.Errorf("%s: %q, want %q", name, told, c.fix)
		}
	}
}

// What is known of a side's memory and of the load decides, and numbers that fit are told of
// nowhere.
func TestCapacityIsTold(t *testing.T) {
	r1, copies := mustModel(t, "deepseek-ai/DeepSeek-R1"), mustModel(t, qwen)
	block := int64(61 * 1152 * 64)
	pair := func(change func(p *Pair)) Pair {
		side := Side{Layout: Layout{TP: 8}, BlockSize: 64, MaxLength: 6400, KVBlocks: 101}
		p := Pair{Engine: VLLM, Version: "0.33.0", Mover: MoverAgent, Model: &r1, Prefill: side, Decode: side}
		change(&p)
		return p
	}
	load := func(in, out, at int, change func(p *Pair)) Pair {
		return pair(func(p *Pair) {
			p.Load, p.Decode.KVBlocks = Load{Input: in, Output: out, Concurrency: at}, 1000
			change(p)
		})
	}
	none := func(*Pair) {}
	for name, c := range map[string]struct {
		pair Pair
		want string // the message of the first
	}{
		"fits":                  {pair(none), ""},
		"bytes":                 {pair(func(p *Pair) { p.Decode.KVBlocks, p.Decode.KVMemory = 0, 101*block }), ""},
		"a byte less":           {pair(func(p *Pair) { p.Decode.KVBlocks, p.Decode.KVMemory = 0, 101*block-1 }), "a sequence of 6400 tokens takes 100 blocks of a rank of decode, which has 100, one of them vLLM's null block, which no sequence gets"},
		"blocks before bytes":   {pair(func(p *Pair) { p.Decode.KVMemory = block }), ""},
		"no memory known":       {pair(func(p *Pair) { p.Decode.KVBlocks, p.Decode.MaxLength = 0, 1<<20 }), ""},
		"no length known":       {pair(func(p *Pair) { p.Prefill.MaxLength, p.Decode.MaxLength, p.Decode.KVBlocks = 0, 0, 1 }), ""},
		"a length of one":       {pair(func(p *Pair) { p.Decode.MaxLength, p.Decode.KVBlocks = 1, 1 }), "a sequence of 1 tokens takes 1 blocks of a rank of decode, which has 1, one of them vLLM's null block, which no sequence gets"},
		"no model known":        {pair(func(p *Pair) { p.Model, p.Decode.KVBlocks = nil, 1 }), ""},
		"the simulator":         {pair(func(p *Pair) { p.Engine, p.Decode.KVBlocks = Simulator, 1 }), ""},
		"a load that fits":      {load(999, 1, 64, none), ""},
		"a load of one more":    {load(1000, 1, 64, none), "64 requests of 1000 and 1 tokens are 64064 tokens in flight, and decode holds 64000, or 492307 with dcp 8"},
		"answers alone":         {load(0, 64001, 1, none), "1 requests of 0 and 64001 tokens are 64001 tokens in flight, and decode holds 64000, or 492307 with dcp 8"},
		"nobody at a time":      {load(64001, 0, 0, none), ""},
		"requests of nothing":   {load(0, 0, 1<<40, none), ""},
		"a load on dcp":         {load(64001, 0, 8, func(p *Pair) { p.Decode.Layout.DCP = 8 }), "8 requests of 64001 and 0 tokens are 512008 tokens in flight, and decode holds 492307"},
		"a load on equal dcp":   {load(64001, 0, 8, func(p *Pair) { p.Prefill.Layout.DCP, p.Decode.Layout.DCP = 8, 8 }), "8 requests of 64001 and 0 tokens are 512008 tokens in flight, and decode holds 492307"},
		"a load on many":        {load(64001, 0, 2, func(p *Pair) { p.Decode.Replicas = 2 }), "2 requests of 64001 and 0 tokens are 128002 tokens in flight, and decode holds 128000, or 984614 with dcp 8"},
		"copies of heads":       {load(64001, 0, 1, func(p *Pair) { p.Model = &copies }), "1 requests of 64001 and 0 tokens are 64001 tokens in flight, and decode holds 64000"},
		"a load, of SGLang's":   {load(8001, 0, 8, func(p *Pair) { p.Engine, p.Version, p.Decode.Layout.DP = SGLang, "0.5.23", 2 }), ""},
		"no blocks of decode's": {load(64001, 0, 1, func(p *Pair) { p.Decode.KVBlocks = 0 }), ""},
	} {
		var told string
		for _, p := range Compatible(c.pair) {
			if strings.HasPrefix(p.Rule, "capacity-") {
				told = p.Message
				break
			}
		}
		if told != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, told, c.want)
		}
	}
}

// SGLang counts pages, of all ranks of a DCP group; vLLM sequences of the longest
// length; both over the DP ranks of a replica.
func TestCapacityPerReplica(t *testing.T) {
	r1 := mustModel(t, "deepseek-ai/DeepSeek-R1")
	for _, c := range []struct {
		cache Cache
		want  int64
	}{
		{Cache{Engine: SGLang, Layout: Layout{TP: 8}, BlockTokens: 64}, 1000 * 64},
		{Cache{Engine: SGLang, Layout: Layout{TP: 8, DCP: 4}, BlockTokens: 64}, 4 * 1000 * 64},
		{Cache{Engine: SGLang, Layout: Layout{TP: 8, DP: 8}, BlockTokens: 64}, 8 * 1000 * 64},
		{Cache{Layout: Layout{TP: 1, DP: 8}, BlockTokens: 64, MaxLength: 4096}, 8 * 1000 * 64},
		// 16 blocks of a request hold 1,000 tokens.
		{Cache{Layout: Layout{TP: 1}, BlockTokens: 64, MaxLength: 1000}, 1000 * 1000 / 16},
	} {
		if got, err := r1.CapacityOfBlocks(c.cache, 1000); err != nil || got.Tokens != c.want {
			t.Errorf("%+v: %d tokens (%v), want %d", c.cache, got.Tokens, err, c.want)
		}
	}
	empty, _ := r1.Capacity(Cache{}, 0)
	if empty.Tokens != 0 || empty.Requests(1000) != 0 {
		t.Errorf("no memory holds %+v", empty)
	}
}

// SGLang gives out all of its pages, vLLM all blocks but one.
func TestRequestsAtOnce(t *testing.T) {
	r1 := mustModel(t, "deepseek-ai/DeepSeek-R1")
	for engine, want := range map[Engine]int64{VLLM: 9, Simulator: 9, SGLang: 10} {
		c, err := r1.CapacityOfBlocks(Cache{Engine: engine, BlockTokens: 64}, 10)
		if err != nil || c.Requests(64) != want || c.Requests(65) != want/2 || c.Requests(0) != 0 {
			t.Errorf("%s: %d of 64 tokens, %d of 65, %v", engine, c.Requests(64), c.Requests(65), err)
		}
	}
}

// What a token costs on a rank: the whole of what a window does not end, and a
// share of what DCP deals.
func TestTokenBytes(t *testing.T) {
	draft := mustModel(t, "deepseek-ai/DeepSeek-R1")
	draft.Drafts = grouped(1, 8, 128)
	fp8 := mustModel(t, "deepseek-ai/DeepSeek-R1")
	fp8.Checkpoint = FP8
	for name, c := range map[string]struct {
		m     Model
		cache Cache
		want  int64
	}{
		"heads of a rank":          {mustModel(t, "Qwen/Qwen3-32B"), Cache{Layout: Layout{TP: 4}}, 64 * 2 * 512},
		"a head on several ranks":  {mustModel(t, "Qwen/Qwen3-32B"), Cache{Layout: Layout{TP: 16}}, 64 * 512},
		"pipeline stages":          {mustModel(t, "Qwen/Qwen3-32B"), Cache{Layout: Layout{TP: 8, PP: 3}}, 22 * 512},
		"no window":                {mustModel(t, "openai/gpt-oss-20b"), Cache{}, 12 * 2048},
		"windows kept whole":       {mustModel(t, "openai/gpt-oss-20b"), Cache{NoHybrid: true}, 24 * 2048},
		"no state":                 {mustModel(t, "moonshotai/Kimi-K3"), Cache{Layout: Layout{TP: 8}}, 24 * 1152},
		"an indexer is dealt":      {mustModel(t, "deepseek-ai/DeepSeek-V3.2"), Cache{Layout: Layout{TP: 8, DCP: 4}}, 61 * (1152 + 132) / 4},
		"not in SGLang":            {mustModel(t, "deepseek-ai/DeepSeek-V3.2"), Cache{Engine: SGLang, Layout: Layout{TP: 8, DCP: 4}}, 61*288 + 61*132},
		"SGLang's attention ranks": {mustModel(t, "Qwen/Qwen3-32B"), Cache{Engine: SGLang, Layout: Layout{TP: 8, DP: 4}}, 64 * 4 * 512},
		"drafts":                   {mustModel(t, "deepseek-ai/DeepSeek-R1"), Cache{OwnDrafts: true}, 62 * 1152},
		"a draft that is not MLA":  {draft, Cache{Layout: Layout{TP: 8, DCP: 8}, OwnDrafts: true}, 61*1152/8 + 512},
		"what the checkpoint asks": {fp8, Cache{}, 61 * 576},
		"and Auto":                 {fp8, Cache{KVType: Auto}, 61 * 576},
		"and the user overrules":   {fp8, Cache{KVType: BF16}, 61 * 1152},
	} {
		if got := c.m.TokenBytes(c.cache); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

func TestLayouts(t *testing.T) {
	for _, c := range []struct {
		model  string
		engine Engine
		gpus   int
		want   []Layout
	}{
		{"meta-llama/Llama-3.3-70B-Instruct", VLLM, 4, []Layout{{4, 1, 1, 1, 1, 1}}},
		{"microsoft/phi-4", VLLM, 8, nil},
		{"Qwen/Qwen3-32B", VLLM, 16, []Layout{{16, 1, 1, 1, 1, 1}, {16, 1, 1, 1, 2, 1}}},
		{"deepseek-ai/DeepSeek-R1", VLLM, 4, []Layout{
			{4, 1, 1, 1, 1, 1}, {4, 1, 1, 1, 2, 1}, {4, 1, 1, 1, 4, 1}, {2, 1, 2, 2, 1, 1}, {2, 1, 2, 2, 2, 1}, {1, 1, 4, 4, 1, 1},
		}},
		{"deepseek-ai/DeepSeek-R1", SGLang, 2, []Layout{{2, 1, 1, 1, 1, 1}, {2, 1, 1, 1, 2, 1}, {2, 1, 2, 2, 1, 1}}},
		{"openai/gpt-oss-120b", VLLM, 2, []Layout{{2, 1, 1, 1, 1, 1}, {1, 1, 2, 2, 1, 1}}},
		{"openai/gpt-oss-120b", VLLM, 16, []Layout{{16, 1, 1, 1, 1, 1}, {8, 1, 2, 2, 1, 1}, {4, 1, 4, 4, 1, 1}, {2, 1, 8, 8, 1, 1}, {1, 1, 16, 16, 1, 1}}},
		{"deepseek-ai/DeepSeek-R1", VLLM, 0, nil},
		{"deepseek-ai/DeepSeek-R1", VLLM, maxDegree + 1, nil},
	} {
		if got := mustModel(t, c.model).Layouts(c.engine, c.gpus); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s on %d GPUs of %s:\n got %v\nwant %v", c.model, c.gpus, c.engine, got, c.want)
		}
	}
	// What is listed is not refused by the rules on one side.
	for _, m := range Models() {
		for _, l := range m.Layouts(VLLM, 8) {
			g, ok := m.Geometry()
			pair := Pair{Engine: VLLM, Mover: MoverAgent, Geometry: g, HasGeometry: ok, Prefill: Side{Layout: l}, Decode: Side{Layout: l}}
			if problems := Check(pair, Decode); Refused(problems) {
				t.Errorf("%s, %+v: %v", m.Name, l, problems)
			}
		}
	}
}
