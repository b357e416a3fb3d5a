package kvlayout

import (
	"math/rand/v2"
	"testing"
)

// Every pair of a real model that is admitted, whoever moves it, has bytes for each decode
// rank: of every group of layers what it keeps of the prompt, once.
func TestAdmittedModelsAreWritten(t *testing.T) {
	r := random(t)
	kinds := map[LayerKind]int{}
	for range 8000 {
		p := servedPair(r)
		if Refused(found(p)) {
			continue
		}
		v := newView(p, MoverAgent)
		x := Transfer{
			KVType: BF16, Prefill: v.prefill, Decode: v.decode, BlockTokens: max(v.blockTokens(Prefill), 1), Tokens: r.IntN(20000) + 1,
		}
		x.Prefill.TP, x.Decode.TP = v.attentionTP(Prefill), v.attentionTP(Decode)
		got := map[int]int64{}
		for _, f := range p.Model.Written(x) {
			got[f.Reader] += f.Bytes
		}
		for rank := range x.Decode.TP {
			if want := kept(*p.Model, x, rank); got[rank] != want {
				t.Fatalf("%s, %+v %+v: rank %d gets %d bytes, and keeps %d", p.Model.Name, p, x, rank, got[rank], want)
			}
		}
		for _, g := range p.Model.Groups {
			kinds[g.Kind]++
		}
	}
	for _, kind := range []LayerKind{FullAttention, SlidingWindow, ChunkedLocal, Indexer, Recurrent} {
		if kinds[kind] < 5 {
			t.Errorf("only %d admitted pairs have layers of %s: %v", kinds[kind], kind, kinds)
		}
	}
}

// servedPair is a pair of a model of the catalog, of SGLang and of vLLM with either mover.
func servedPair(r *rand.Rand) Pair {
	m := pick(r, models()...)
	side := func() Side {
		return Side{
			Layout: Layout{
				TP: pick(r, 1, 2, 3, 4, 6, 8), PP: pick(r, 1, 1, 1, 2), DP: pick(r, 1, 1, 1, 2),
				DCP: pick(r, 1, 1, 1, 2, 4), Interleave: pick(r, 1, 1, 16),
			},
			BlockSize: 64, ConvLayout: pick(r, "DS", "DS", "SD"), NoHybrid: false,
		}
	}
	p := Pair{
		Engine: pick(r, VLLM, VLLM, SGLang, Simulator), Version: pick(r, "", "0.33.0"), Mover: pick(r, MoverEngine, MoverAgent),
		Model: &m, Prefill: side(), Decode: side(),
	}
	if p.Engine == SGLang {
		p.Mover, p.Version = MoverEngine, "0.5.23"
	}
	if m.HasState() {
		p.Prefill.BlockSize, p.Decode.BlockSize = 8192, 8192 // more than states raise it to
	}
	return p
}

// kept is what a decode rank keeps of a prompt, counted slot by slot where it is dealt.
func kept(m Model, x Transfer, rank int) int64 {
	var sum int64
	place := Placement{DCP: x.Decode.DCP, Interleave: x.Decode.Interleave, BlockTokens: x.BlockTokens}
	for _, g := range m.Groups {
		if g.Kind == Recurrent {
			sum += g.State.Bytes(x.Decode.TP, 0) * int64(g.Layers)
			continue
		}
		whole := ceilDiv(g.keptTokens(x), x.BlockTokens) * x.BlockTokens
		var slots int64
		for token := range whole {
			if at, _, _ := place.Locate(token); x.Prefill.DCP == 1 && at == rank%x.Decode.DCP {
				slots++
			}
		}
		if x.Prefill.DCP > 1 {
			slots = int64(place.BlocksFor(g.keptTokens(x)) * x.BlockTokens)
		}
		heads := int64(1)
		if g.Attention.Kind != MLA {
			heads = int64(ceilDiv(g.Attention.KVHeads, x.Decode.TP))
		}
		row := int64(g.Attention.Key+g.Attention.Value) * 2
		if g.Attention.RowBytes > 0 {
			row = int64(g.Attention.RowBytes)
		}
		sum += slots * heads * row * int64(g.Layers)
	}
	return sum
}
