package cli

import (
	"cmp"
	"slices"

	"github.com/pdpool/pdpool/kvlayout"
)

// TransferPlan is what a new prompt costs on its way: who writes what to whom.
type TransferPlan struct {
	Tokens int   `json:"tokens"`
	Bytes  int64 `json:"bytesTotal"`
	// Writers are the pairs of ranks of one prefill and one decode group of TP ranks.
	Writers []Flow `json:"writers"`
	// Unknown says why there are no writers.
	Unknown string `json:"unknown,omitempty"`
	// BlockTokens are the tokens of a block on both sides.
	BlockTokens int `json:"blockTokens,omitempty"`
}

// Flow is what one prefill rank writes to one decode rank.
type Flow struct {
	kvlayout.Flow
	// Copies are the strided copies over all layers, Pieces their contiguous runs: of
	// MLA in all layers, as elsewhere they depend on how an engine orders heads; else 0.
	Copies int64 `json:"copies,omitempty"`
	Pieces int64 `json:"pieces,omitempty"`
	// States are the bytes of recurrent states among Bytes.
	States int64 `json:"stateBytes,omitempty"`
}

// maxPlanned bounds the blocks whose copies are counted, over all flows.
const maxPlanned = 1 << 17

func (s setup) transfer(tokens int) TransferPlan {
	t := TransferPlan{Tokens: tokens, Writers: []Flow{}}
	if !s.known {
		t.Unknown = "the KV geometry of " + s.loads + " is not known"
		return t
	}
	x := s.prompt(tokens)
	t.BlockTokens = x.BlockTokens
	flows := s.model.Written(x)
	if len(flows) == 0 {
		t.Unknown = "between these layouts nothing can be written"
		return t
	}
	g, alike := s.model.Geometry()
	ofTokens := s.withoutStates(x)
	for _, f := range flows {
		t.Bytes += f.Bytes
		flow := Flow{Flow: f}
		if s.model.HasState() {
			flow.States = f.Bytes - ofTokens[[2]int{f.Writer, f.Reader}]
		}
		if alike && g.Kind == kvlayout.MLA && tokens/max(t.BlockTokens, 1)*len(flows) <= maxPlanned {
			flow.Copies, flow.Pieces = copies(g, x, f)
		}
		t.Writers = append(t.Writers, flow)
	}
	return t
}

// prompt is a new prompt on its way.
func (s setup) prompt(tokens int) kvlayout.Transfer {
	return kvlayout.Transfer{
		KVType: s.decode.kvType, Prefill: rankLayout(s.prefill), Decode: rankLayout(s.decode),
		BlockTokens: s.blockTokens(), Tokens: tokens, OwnDrafts: s.decode.cache.OwnDrafts, DraftTokens: s.decode.cache.DraftTokens,
	}
}

// withoutStates are the bytes of tokens, by writer and reader, of a model with states.
func (s setup) withoutStates(x kvlayout.Transfer) map[[2]int]int64 {
	if !s.model.HasState() {
		return nil
	}
	m := s.model
	m.Groups = slices.DeleteFunc(slices.Clone(m.Groups), func(g kvlayout.LayerGroup) bool { return g.Kind == kvlayout.Recurrent })
	out := map[[2]int]int64{}
	for _, f := range m.Written(x) {
		out[[2]int{f.Writer, f.Reader}] = f.Bytes
	}
	return out
}

// blockTokens is the block after an engine has raised it to hold a state.
func (s setup) blockTokens() int {
	if p, err := s.model.Pool(s.decode.cache); err == nil {
		return p.BlockTokens
	}
	return s.decode.blockSize
}

// rankLayout is the layout of one group of TP ranks.
func rankLayout(c caching) kvlayout.Layout {
	l := c.layout
	if c.cache.Engine == kvlayout.SGLang {
		l.TP = max(l.TP/max(l.DP, 1), 1)
	}
	l.DP, l.DPLocal = 1, 1
	return l
}

// copies counts the copies of a flow by planning those of a layer.
func copies(g kvlayout.Geometry, x kvlayout.Transfer, f kvlayout.Flow) (whole, pieces int64) {
	p, d := x.Prefill.Defaulted(), x.Decode.Defaulted()
	place := kvlayout.Placement{DCP: d.DCP, Interleave: d.Interleave, BlockTokens: x.BlockTokens}
	spec := kvlayout.WriteSpec{
		Source: region(g, x, p, f.Writer), Target: region(g, x, d, f.Reader), SourceDCP: p.DCP, Placement: place,
		TargetRank: kvlayout.DCPRank(f.Reader, d), Tokens: x.Tokens,
	}
	sources := place
	sources.DCP = p.DCP
	spec.SourceBlocks = blockList(sources.BlocksFor(x.Tokens))
	spec.TargetBlocks = blockList(place.BlocksFor(x.Tokens))
	spec.Source.Blocks, spec.Target.Blocks = len(spec.SourceBlocks), len(spec.TargetBlocks)
	for _, w := range kvlayout.Writers(g, p, d, f.Reader) {
		if w.Rank != f.Writer {
			continue
		}
		spec.Heads = w.Heads
		plan, err := kvlayout.WritePlan(nil, spec)
		if err != nil {
			return 0, 0
		}
		whole += int64(len(plan))
		for _, c := range plan {
			pieces += int64(c.Count)
		}
	}
	return whole * int64(g.Layers), pieces * int64(g.Layers)
}

// region is one layer on a rank: blocks, tokens in them, heads in those.
func region(g kvlayout.Geometry, x kvlayout.Transfer, l kvlayout.Layout, rank int) kvlayout.Region {
	heads := kvlayout.HeadsOf(g, l, rank)
	row := kvlayout.RowBytes(g, cmp.Or(x.KVType, kvlayout.Auto))
	token := row * int64(max(heads.Count, 1))
	return kvlayout.Region{
		BlockStride: token * int64(x.BlockTokens), BlockTokens: x.BlockTokens, Heads: heads, HeadStride: row, TokenStride: token, RowBytes: row,
	}
}

func blockList(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}
