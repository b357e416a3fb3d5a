package kvlayout

import (
	"fmt"
	"strings"
)

// Model is the KV geometry of a real model: what each of its layers caches. It
// says more than Geometry, which travels between agents and names one group of
// equal attention layers; see Model.Geometry and Model.Beyond.
//
// A Model holds numbers of the model alone. What they cost depends on the layout,
// the engine and the cache type: see Cache and Pool.
type Model struct {
	Name         string `json:"name,omitempty"` // Hugging Face name as the catalog spells it; "" from a config
	Architecture string `json:"architecture"`   // architectures[0] of the config, or its model_type
	// AttentionHeads is the number of query heads, which TP splits.
	AttentionHeads int `json:"attentionHeads"`
	Experts        int `json:"experts,omitempty"`   // routed experts of an MoE layer; 0 for a dense model
	MaxLength      int `json:"maxLength,omitempty"` // max_position_embeddings; 0 unknown
	// Checkpoint is the cache type that the checkpoint asks its engine for (FP8 of
	// a checkpoint with KV scales), "" if it says nothing: then Auto is the model's
	// own type of two bytes.
	Checkpoint KVType `json:"checkpointKVType,omitempty"`
	// Groups are the layers of the model, one group per shape, in the order in which
	// a shape first appears; an indexer follows the attention that it serves.
	Groups []LayerGroup `json:"groups"`
	// Drafts are the layers that predict further tokens (MTP, next-token layers) and
	// come with the checkpoint. An engine caches them only when it speculates with
	// them.
	Drafts []LayerGroup `json:"drafts,omitempty"`
}

// LayerKind says what a layer keeps of the tokens that it has seen.
type LayerKind string

// The kinds of layers. FullAttention keeps every token. SlidingWindow and
// ChunkedLocal need the last Window tokens, or those of the current chunk of
// Window tokens. Indexer is the key cache by which sparse attention chooses
// tokens; engines move and shard it in whole blocks. Recurrent keeps one state
// per sequence, however long it is.
const (
	FullAttention LayerKind = "FullAttention"
	SlidingWindow LayerKind = "SlidingWindow"
	ChunkedLocal  LayerKind = "ChunkedLocal"
	Indexer       LayerKind = "Indexer"
	Recurrent     LayerKind = "Recurrent"
)

// LayerGroup is a number of layers that cache the same. Of the two shapes, State
// is set for Recurrent and Attention for every other kind.
type LayerGroup struct {
	Kind      LayerKind `json:"kind"`
	Layers    int       `json:"layers"`
	Attention Attention `json:"attention,omitzero"`
	State     State     `json:"state,omitzero"`
}

// Attention is the shape of one token in an attention layer or indexer.
type Attention struct {
	// Kind is MLA for one vector per token that every TP rank holds whole: the
	// latent, and the keys of an indexer. GQA is sharded by heads.
	Kind    Kind `json:"kind"`
	KVHeads int  `json:"kvHeads"` // of the whole model; 1 for MLA
	// Key and Value are the values per head and token: Key alone for MLA.
	Key   int `json:"keyValues"`
	Value int `json:"valueValues,omitempty"`
	// RowBytes fixes the bytes per head and token whatever the cache type is, as
	// for indexers, whose keys have a type and scales of their own; else 0.
	RowBytes int `json:"rowBytes,omitempty"`
	Window   int `json:"window,omitempty"` // tokens, of SlidingWindow and ChunkedLocal
}

// StateKind names the recurrence, which decides how TP cuts the state.
type StateKind string

// The recurrent layers that engines serve beside attention.
const (
	Mamba2        StateKind = "Mamba2"
	GatedDeltaNet StateKind = "GatedDeltaNet"
	KDA           StateKind = "KDA" // Kimi delta attention
)

// State is the recurrent state of one layer and sequence: the last inputs of a
// short convolution, and a matrix per head.
type State struct {
	Kind StateKind `json:"kind"`
	// ConvRows is the number of inputs that the convolution keeps: its kernel less
	// one. Speculation adds one per draft token.
	ConvRows int `json:"convRows"`
	// ConvParts are the widths, over the whole model, of the projections that the
	// convolution sees side by side: q, k, v, or x, B, C of Mamba2. TP cuts each of
	// them, so ranks of another TP degree cannot take one flat piece.
	ConvParts []int `json:"convParts"`
	Groups    int   `json:"groups,omitempty"` // of B and C in Mamba2, which are copied where TP exceeds them; else 0
	// Heads matrices of Rows x Columns values; TP splits the heads.
	Heads   int `json:"heads"`
	Rows    int `json:"rows"`
	Columns int `json:"columns"`
	// ValueBytes is the size of a value of the matrices: 4 where the model asks for
	// single precision, 2 else. The convolution keeps the model's own two bytes.
	ValueBytes int `json:"valueBytes"`
}

// ModelOf is a model of equal attention layers.
func ModelOf(g Geometry) Model {
	a := Attention{Kind: g.Kind, KVHeads: g.KVHeads, Key: g.HeadValues}
	if g.Kind != MLA {
		a.Value = g.HeadValues
	}
	m := Model{Name: g.Model, AttentionHeads: g.AttentionHeads, Groups: []LayerGroup{{Kind: FullAttention, Layers: g.Layers, Attention: a}}}
	if g.MoE {
		m.Experts = 1
	}
	return m
}

// Geometry returns the part of the model that Geometry can say, and whether that
// is all of it. Where it is not, Beyond says why.
func (m Model) Geometry() (Geometry, bool) {
	if m.Beyond() != "" {
		return Geometry{}, false
	}
	g := m.Groups[0]
	return Geometry{
		Model: m.Name, Kind: g.Attention.Kind, Layers: g.Layers, AttentionHeads: m.AttentionHeads,
		KVHeads: g.Attention.KVHeads, HeadValues: g.Attention.Key, MoE: m.Experts > 0,
	}, true
}

// Beyond says in a clause why one group of equal attention layers does not
// describe the model, such as "36 of its layers keep a recurrent state". It is ""
// where Geometry does. Drafts are left out: without speculation nothing caches
// them.
func (m Model) Beyond() string {
	if len(m.Groups) == 0 {
		return "it has no layer that caches anything"
	}
	var parts []string
	for _, g := range m.Groups {
		switch g.Kind {
		case Recurrent:
			parts = append(parts, fmt.Sprintf("%d of its layers keep a recurrent state (%s)", g.Layers, g.State.Kind))
		case Indexer:
			parts = append(parts, fmt.Sprintf("%d of its layers have an indexer with a cache of its own", g.Layers))
		case SlidingWindow:
			parts = append(parts, fmt.Sprintf("%d of its layers keep the last %d tokens only", g.Layers, g.Attention.Window))
		case ChunkedLocal:
			parts = append(parts, fmt.Sprintf("%d of its layers keep chunks of %d tokens only", g.Layers, g.Attention.Window))
		case FullAttention:
			if g.Attention.Kind != MLA && g.Attention.Key != g.Attention.Value {
				parts = append(parts, fmt.Sprintf("its keys have %d values and its values %d", g.Attention.Key, g.Attention.Value))
			}
		}
	}
	if len(parts) == 0 && len(m.Groups) > 1 {
		parts = append(parts, fmt.Sprintf("its attention layers have %d shapes", len(m.Groups)))
	}
	return strings.Join(parts, ", and ")
}

// Caches returns the groups that an engine caches: the model's own, and with
// speculation by its own draft layers those too.
func (m Model) Caches(speculates bool) []LayerGroup {
	if !speculates || len(m.Drafts) == 0 {
		return m.Groups
	}
	all := make([]LayerGroup, 0, len(m.Groups)+len(m.Drafts))
	return append(append(all, m.Groups...), m.Drafts...)
}

// Validate returns an error for a model that cannot be: a number that is missing,
// negative or beyond what any model has. ParseConfig and the catalog return none
// such.
func (m Model) Validate() error {
	if m.AttentionHeads < 1 || m.AttentionHeads > maxModelNumber {
		return fmt.Errorf("%d attention heads", m.AttentionHeads)
	}
	if len(m.Groups) == 0 {
		return fmt.Errorf("no layers")
	}
	for _, g := range m.Caches(true) {
		if err := g.validate(); err != nil {
			return fmt.Errorf("%d layers of %s: %w", g.Layers, g.Kind, err)
		}
	}
	return nil
}

// maxModelNumber bounds every number of a model, so that no product of a few of
// them overflows.
const maxModelNumber = 1 << 24

func (g LayerGroup) validate() error {
	numbers := []int{g.Layers}
	switch g.Kind {
	case Recurrent:
		s := g.State
		numbers = append(numbers, s.Heads, s.Rows, s.Columns, s.ValueBytes, s.ConvRows)
		numbers = append(numbers, s.ConvParts...)
		if len(s.ConvParts) == 0 {
			return fmt.Errorf("no projections before the convolution")
		}
	case FullAttention, SlidingWindow, ChunkedLocal, Indexer:
		numbers = append(numbers, g.Attention.KVHeads, g.Attention.Key)
		if windowed := g.Kind == SlidingWindow || g.Kind == ChunkedLocal; windowed {
			numbers = append(numbers, g.Attention.Window)
		}
		if g.Attention.Value < 0 || g.Attention.Value > maxModelNumber {
			return fmt.Errorf("values of %d", g.Attention.Value)
		}
	default:
		return fmt.Errorf("unknown kind")
	}
	for _, n := range numbers {
		if n < 1 || n > maxModelNumber {
			return fmt.Errorf("the number %d", n)
		}
	}
	return nil
}
