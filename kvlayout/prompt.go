package kvlayout

import (
	"cmp"
	"slices"
)

// Transfer asks what a prompt costs on its way from prefill to decode.
type Transfer struct {
	KVType KVType // "" and Auto take what the checkpoint asks for, else two bytes
	// Prefill and Decode are the layouts of a DP rank. SGLang's DP attention lies
	// inside TP: its TP there is tp / dp.
	Prefill, Decode Layout
	// BlockTokens is the block of full attention on both sides, after raising. Windows
	// are counted in it too, also where the pool gives them larger blocks.
	BlockTokens int
	Tokens      int // of a new prompt, none of which decode has
	// OwnDrafts says that both sides cache the model's own draft layers, DraftTokens
	// how many tokens they speculate per step.
	OwnDrafts   bool
	DraftTokens int
}

// Written predicts what each prefill rank writes to each decode rank, over all of
// the model's groups, ordered by writer and reader. Attention follows the package's
// Written, with each group's own rows: of a window only the blocks that the next
// token can need (vLLM's connector: those of the window and one more; of a chunk,
// those since its start). A recurrent state is one slot per layer, not padded, and
// goes whole to every rank of a DCP group.
//
// It is nil where the layouts cannot be written. Prefill of a model with states
// leaves the last token to decode, which is not taken off here.
func (m Model) Written(x Transfer) []Flow {
	t := Cache{KVType: x.KVType}.kvType(m)
	sums := map[[2]int]int64{}
	for _, g := range m.Caches(x.OwnDrafts) {
		flows := g.written(x, t)
		if flows == nil {
			return nil
		}
		for _, f := range flows {
			key := [2]int{f.Writer, f.Reader}
			sums[key] = addSat(sums[key], f.Bytes)
		}
	}
	flows := make([]Flow, 0, len(sums))
	for key, bytes := range sums {
		flows = append(flows, Flow{Writer: key[0], Reader: key[1], Bytes: bytes})
	}
	slices.SortFunc(flows, func(a, b Flow) int {
		return cmp.Or(cmp.Compare(a.Writer, b.Writer), cmp.Compare(a.Reader, b.Reader))
	})
	return flows
}

func (g LayerGroup) written(x Transfer, t KVType) []Flow {
	if g.Kind == Recurrent {
		return g.stateWritten(x)
	}
	if g.windowed() && max(x.Prefill.DCP, x.Decode.DCP) > 1 {
		return nil
	}
	a := g.Attention
	row := int64(a.RowBytes)
	if row == 0 {
		row = mulSat(int64(a.Key+a.Value), int64(t.Bytes()))
	}
	// Rows of one byte per plane: the flows then count planes of rows.
	unit := Geometry{Kind: a.Kind, Layers: 1, KVHeads: a.KVHeads, HeadValues: 1}
	flows := Written(unit, FP8, x.Prefill, x.Decode, x.BlockTokens, g.keptTokens(x))
	for i := range flows {
		flows[i].Bytes = mulSat(flows[i].Bytes/int64(unit.Planes()), row, int64(g.Layers))
	}
	return flows
}

// keptTokens is the length of the prompt, or what of it in whole blocks lies in the
// window or chunk of the next token.
func (g LayerGroup) keptTokens(x Transfer) int {
	if x.BlockTokens < 1 || x.Tokens < 1 {
		return 0
	}
	blocks := ceilDiv(x.Tokens, x.BlockTokens)
	switch g.Kind {
	case SlidingWindow:
		blocks = min(blocks, ceilDiv(g.Attention.Window, x.BlockTokens)+1)
	case ChunkedLocal:
		first := x.Tokens / g.Attention.Window * g.Attention.Window / x.BlockTokens
		blocks = max(blocks-first, 1)
	case FullAttention, Indexer, Recurrent:
		return x.Tokens
	}
	return blocks * x.BlockTokens
}

// stateWritten: equal TP copies rank to rank; of unequal TP the larger degree's
// rank holds the piece that is moved.
func (g LayerGroup) stateWritten(x Transfer) []Flow {
	p, d := x.Prefill.Defaulted().TP, x.Decode.Defaulted().TP
	if x.Tokens < 1 || p < 1 || d < 1 || max(p, d)%min(p, d) != 0 || !g.State.FitsTP(p) || !g.State.FitsTP(d) {
		return nil
	}
	most := max(p, d)
	bytes := mulSat(g.State.Bytes(most, max(x.DraftTokens, 0)), int64(g.Layers))
	flows := make([]Flow, 0, most)
	for piece := range most {
		flows = append(flows, Flow{Writer: piece * p / most, Reader: piece * d / most, Bytes: bytes})
	}
	return flows
}
