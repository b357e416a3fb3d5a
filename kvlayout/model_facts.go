package kvlayout

import "slices"

// WholeBlockIndexer reports whether the model has indexer caches. An engine deals
// them to DCP ranks in whole blocks, so that with DCP the interleave has to be the
// block size (DeepSeek-V3.2, GLM-5).
func (m Model) WholeBlockIndexer() bool { return m.has(Indexer) }

// HasState reports whether layers keep a recurrent state: their blocks are sized
// by it (see Pool), and it is moved whole to each rank of a DCP group.
func (m Model) HasState() bool { return m.has(Recurrent) }

// Windowed reports whether layers keep a window or chunk of tokens only: their
// cache has block lists of its own, and none is dealt to DCP ranks.
func (m Model) Windowed() bool { return m.has(SlidingWindow) || m.has(ChunkedLocal) }

// AllMLA reports whether every attention layer that DCP would deal is MLA, which is
// what a prefill without DCP needs to feed a decode with it. Recurrent states don't
// count. With speculates the model's own draft layers do: where they are not MLA,
// decode runs them without DCP and the pair is refused.
func (m Model) AllMLA(speculates bool) bool {
	for _, g := range m.Caches(speculates) {
		if g.Kind != Recurrent && g.Attention.Kind != MLA {
			return false
		}
	}
	return true
}

// AttentionGroups counts the groups of attention layers that have block lists of
// their own, as engines group them: layers of a kind and window share one, and an
// indexer shares that of the attention it serves. vLLM's own connector reads at
// most one.
func (m Model) AttentionGroups() int {
	type list struct {
		kind   LayerKind
		window int
	}
	lists := map[list]bool{}
	for _, g := range m.Groups {
		switch g.Kind {
		case FullAttention, SlidingWindow, ChunkedLocal:
			lists[list{g.Kind, g.Attention.Window}] = true
		case Indexer, Recurrent:
		}
	}
	return len(lists)
}

// Windows returns the distinct windows and chunk lengths in tokens, in the order
// of the groups.
func (m Model) Windows() []int {
	var windows []int
	for _, g := range m.Groups {
		if w := g.Attention.Window; w > 0 && !slices.Contains(windows, w) {
			windows = append(windows, w)
		}
	}
	return windows
}

// States returns the recurrent groups.
func (m Model) States() []LayerGroup {
	var states []LayerGroup
	for _, g := range m.Groups {
		if g.Kind == Recurrent {
			states = append(states, g)
		}
	}
	return states
}

// FitsTP reports whether tp ranks can split the model: its attention heads and
// recurrent heads divide evenly, and its KV heads divide tp or are divided by it.
func (m Model) FitsTP(tp int) bool {
	if tp < 1 || m.AttentionHeads%tp != 0 {
		return false
	}
	for _, g := range m.Groups {
		heads := g.Attention.KVHeads
		switch {
		case g.Kind == Recurrent && !g.State.FitsTP(tp):
			return false
		case g.Kind != Recurrent && g.Attention.Kind != MLA && heads%tp != 0 && (heads < 1 || tp%heads != 0):
			return false
		}
	}
	return true
}

// DraftLayers is the number of layers that predict further tokens and come with
// the checkpoint; indexers among them don't count.
func (m Model) DraftLayers() int {
	n := 0
	for _, g := range m.Drafts {
		if g.Kind != Indexer {
			n += g.Layers
		}
	}
	return n
}

func (m Model) has(kind LayerKind) bool {
	for _, g := range m.Groups {
		if g.Kind == kind {
			return true
		}
	}
	return false
}
