package kvlayout

import (
	"errors"
	"strings"
	"testing"
)

// With the least memory a replica holds a sequence of one token, and with a byte less
// it doesn't.
func TestLeastMemory(t *testing.T) {
	for _, m := range Models() {
		for _, c := range []Cache{
			{Layout: Layout{TP: 4}},
			{Layout: Layout{TP: 4}, BlockTokens: 64, KVType: FP8, NoPrefixCaching: true},
			{Layout: Layout{TP: 4}, InFlight: 8192, DraftTokens: 1, OwnDrafts: true, MaxLength: 4096},
			{Engine: SGLang, Layout: Layout{TP: 4}, WindowRatio: 0.8},
			{Engine: SGLang, Layout: Layout{TP: 4}, BlockTokens: 64, WindowRatio: 0.8, StateRatio: 0.1},
			{Engine: SGLang, Layout: Layout{TP: 4}, WindowRatio: 0.8, States: 7},
		} {
			if !m.FitsTP(4) {
				continue
			}
			least, err := m.LeastMemory(c)
			if err != nil {
				t.Errorf("%s, %+v: %v", m.Name, c, err)
				continue
			}
			held, err := m.Capacity(c, least)
			if err != nil || held.Requests(1) < 1 {
				t.Errorf("%s, %+v: %d bytes hold %d blocks and %d states, %v", m.Name, c, least, held.Blocks, held.States, err)
			}
			if less, err := m.Capacity(c, least-1); err != nil || less.Requests(1) > 0 {
				t.Errorf("%s, %+v: %d bytes less one hold %d requests, %v", m.Name, c, least, less.Requests(1), err)
			}
		}
	}
}

// Two blocks of 16 tokens: 8 KV heads on 2 ranks are 4 of 128 values, twice, in 64
// layers, of 2 bytes.
func TestLeastMemoryOfAGeometry(t *testing.T) {
	g := Geometry{Kind: GQA, Layers: 64, AttentionHeads: 64, KVHeads: 8, HeadValues: 128}
	if got, err := ModelOf(g).LeastMemory(Cache{Layout: Layout{TP: 2}}); err != nil || got != 2*16*4*128*2*64*2 {
		t.Errorf("%d, %v", got, err)
	}
	m := mustModel(t, "openai/gpt-oss-20b")
	m.MaxLength = 0
	if got, err := m.LeastMemory(Cache{}); err != nil || got < 1 {
		t.Errorf("a window without a longest sequence: %d, %v", got, err)
	}
	for name, c := range map[string]Cache{
		"a degree":       {Layout: Layout{TP: -1}},
		"too few states": {Engine: SGLang, States: 1},
	} {
		var refusal *PoolError
		if got, err := mustModel(t, "moonshotai/Kimi-K3").LeastMemory(c); !errors.As(err, &refusal) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
}

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
		"too few blocks": {pair(VLLM, &r1, 50, 1), []string{"takes 100 blocks of a rank of decode, which has 50;", "to 3136, or raise engine.kvCacheMemory or decode.layout.dcp to 8"}},
		"the null block": {pair(VLLM, &r1, 100, 1), []string{"which has 100, one of them vLLM's null block, which no sequence gets;", "to 6336"}},
		"no room at all": {pair(VLLM, &r1, 1, 8), []string{"which has 1;", "where that is set), or raise engine.kvCacheMemory"}},
		"SGLang":         {pair(SGLang, &r1, 99, 8), nil},
		"enough":         {pair(VLLM, &r1, 101, 1), nil},
		"states":         {pair(SGLang, &k3, 101, 1), []string{"takes 3 recurrent states of a rank of decode, which has 2;", "where that is set), or raise engine.kvCacheMemory"}},
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
