package kvlayout

import (
	"reflect"
	"testing"
)

// Of a model that a Geometry describes, the prompt costs what Written says, which
// is checked against WritePlan.
func TestModelWrittenAgreesWithWritten(t *testing.T) {
	for _, m := range Models() {
		g, ok := m.Geometry()
		if !ok {
			continue
		}
		for _, pair := range [][2]Layout{
			{{TP: 4}, {TP: 4}},
			{{TP: 8}, {TP: 4}},
			{{TP: 2}, {TP: 4}},
			{{TP: 4}, {TP: 4, DCP: 4, Interleave: 16}},
			{{TP: 4, DCP: 2}, {TP: 4, DCP: 2}},
			{{TP: 4, DCP: 2}, {TP: 4, DCP: 4}},
		} {
			for _, kv := range []KVType{BF16, FP8} {
				x := Transfer{KVType: kv, Prefill: pair[0], Decode: pair[1], BlockTokens: 64, Tokens: 1000}
				want := Written(g, kv, pair[0], pair[1], 64, 1000)
				if got := m.Written(x); !reflect.DeepEqual(got, want) {
					t.Fatalf("%s, %+v:\n got %v\nwant %v", m.Name, x, got, want)
				}
			}
		}
	}
}

func TestModelWritten(t *testing.T) {
	rows := func(tokens, bytes int) int64 { return int64(tokens) * int64(bytes) }
	kdaOf2 := int64(20 * (3*3*2048*2 + 16*128*128*4))
	kdaOf4 := int64(20 * (3*3*1024*2 + 8*128*128*4))
	for name, c := range map[string]struct {
		model string
		x     Transfer
		want  []Flow
	}{
		"latent and indexer": {
			"deepseek-ai/DeepSeek-V3.2",
			Transfer{Prefill: Layout{TP: 2}, Decode: Layout{TP: 2, DCP: 2, Interleave: 64}, BlockTokens: 64, Tokens: 200},
			[]Flow{{0, 0, 61 * rows(128, 1152+132)}, {1, 1, 61 * rows(128, 1152+132)}},
		},
		"the indexer keeps its bytes with FP8": {
			"deepseek-ai/DeepSeek-V3.2",
			Transfer{KVType: FP8, Prefill: Layout{TP: 1}, Decode: Layout{TP: 1}, BlockTokens: 64, Tokens: 64},
			[]Flow{{0, 0, 61 * rows(64, 576+132)}},
		},
		"states go whole to each rank of a DCP group": {
			"moonshotai/Kimi-Linear-48B-A3B-Instruct",
			Transfer{Prefill: Layout{TP: 2}, Decode: Layout{TP: 2, DCP: 2, Interleave: 1}, BlockTokens: 2048, Tokens: 3000},
			[]Flow{{0, 0, 7*rows(2048, 1152) + kdaOf2}, {1, 1, 7*rows(2048, 1152) + kdaOf2}},
		},
		"states of fewer ranks": {
			"moonshotai/Kimi-Linear-48B-A3B-Instruct",
			Transfer{Prefill: Layout{TP: 4}, Decode: Layout{TP: 2}, BlockTokens: 2048, Tokens: 10},
			[]Flow{
				{0, 0, 7*rows(2048, 1152) + kdaOf4},
				{1, 0, kdaOf4},
				{2, 1, 7*rows(2048, 1152) + kdaOf4},
				{3, 1, kdaOf4},
			},
		},
		"states of more ranks": {
			"moonshotai/Kimi-Linear-48B-A3B-Instruct",
			Transfer{Prefill: Layout{TP: 1}, Decode: Layout{TP: 2}, BlockTokens: 2048, Tokens: 10},
			[]Flow{{0, 0, 7*rows(2048, 1152) + kdaOf2}, {0, 1, 7*rows(2048, 1152) + kdaOf2}},
		},
		"the window's blocks and one more": {
			"openai/gpt-oss-20b",
			Transfer{Prefill: Layout{TP: 8}, Decode: Layout{TP: 8}, BlockTokens: 16, Tokens: 1000},
			[]Flow{
				{0, 0, 12 * rows(1008+144, 256)},
				{1, 1, 12 * rows(1008+144, 256)},
				{2, 2, 12 * rows(1008+144, 256)},
				{3, 3, 12 * rows(1008+144, 256)},
				{4, 4, 12 * rows(1008+144, 256)},
				{5, 5, 12 * rows(1008+144, 256)},
				{6, 6, 12 * rows(1008+144, 256)},
				{7, 7, 12 * rows(1008+144, 256)},
			},
		},
		"the chunk of the next token": {
			"meta-llama/Llama-4-Scout-17B-16E-Instruct",
			Transfer{Prefill: Layout{TP: 1}, Decode: Layout{TP: 1}, BlockTokens: 16, Tokens: 8192 + 100},
			[]Flow{{0, 0, 12*rows(8304, 4096) + 36*rows(112, 4096)}},
		},
		"a chunk that ends": {
			"meta-llama/Llama-4-Scout-17B-16E-Instruct",
			Transfer{Prefill: Layout{TP: 1}, Decode: Layout{TP: 1}, BlockTokens: 16, Tokens: 8192},
			[]Flow{{0, 0, 12*rows(8192, 4096) + 36*rows(16, 4096)}},
		},
		"states with drafts keep more rows": {
			"moonshotai/Kimi-Linear-48B-A3B-Instruct",
			Transfer{Prefill: Layout{TP: 2}, Decode: Layout{TP: 2}, BlockTokens: 2048, Tokens: 10, DraftTokens: 2},
			[]Flow{{0, 0, 7*rows(2048, 1152) + kdaOf2 + 20*2*3*2048*2}, {1, 1, 7*rows(2048, 1152) + kdaOf2 + 20*2*3*2048*2}},
		},
		"states of more ranks than heads": {
			"moonshotai/Kimi-Linear-48B-A3B-Instruct", Transfer{Prefill: Layout{TP: 64}, Decode: Layout{TP: 64}, BlockTokens: 2048, Tokens: 10}, nil,
		},
		"states from more ranks than heads": {
			"moonshotai/Kimi-Linear-48B-A3B-Instruct", Transfer{Prefill: Layout{TP: 64}, Decode: Layout{TP: 32}, BlockTokens: 2048, Tokens: 10}, nil,
		},
		"states to more ranks than heads": {
			"moonshotai/Kimi-Linear-48B-A3B-Instruct", Transfer{Prefill: Layout{TP: 32}, Decode: Layout{TP: 64}, BlockTokens: 2048, Tokens: 10}, nil,
		},
		"drafts": {
			"deepseek-ai/DeepSeek-R1",
			Transfer{Prefill: Layout{TP: 1}, Decode: Layout{TP: 1}, BlockTokens: 64, Tokens: 64, OwnDrafts: true},
			[]Flow{{0, 0, 62 * rows(64, 1152)}},
		},
		"windows under DCP": {
			"openai/gpt-oss-20b", Transfer{Prefill: Layout{TP: 8}, Decode: Layout{TP: 8, DCP: 2}, BlockTokens: 16, Tokens: 1000}, nil,
		},
		"states of no multiple": {
			"moonshotai/Kimi-K3", Transfer{Prefill: Layout{TP: 3}, Decode: Layout{TP: 2}, BlockTokens: 2048, Tokens: 10}, nil,
		},
		"no block":  {"openai/gpt-oss-20b", Transfer{Prefill: Layout{TP: 1}, Decode: Layout{TP: 1}, Tokens: 10}, nil},
		"no ranks":  {"moonshotai/Kimi-K3", Transfer{Prefill: Layout{TP: -1}, Decode: Layout{TP: -1}, BlockTokens: 2048, Tokens: 10}, nil},
		"no tokens": {"moonshotai/Kimi-K3", Transfer{Prefill: Layout{TP: 2}, Decode: Layout{TP: 2}, BlockTokens: 2048}, nil},
	} {
		if got := mustModel(t, c.model).Written(c.x); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, c.want)
		}
	}
}
