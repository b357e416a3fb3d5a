package kvlayout

import (
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
