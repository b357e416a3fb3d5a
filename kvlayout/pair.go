package kvlayout

import "cmp"

// Side is what the rules need to know of one role. Layout may have unset degrees.
// Of all else the zero value means that it is not known: rules that need it say
// nothing, or warn where it decides.
type Side struct {
	Layout    Layout `json:"layout"`
	BlockSize int    `json:"blockSize,omitempty"` // tokens per block of a rank, as asked for
	KVType    KVType `json:"kvType,omitempty"`    // "" is Auto
	ModelType KVType `json:"modelType,omitempty"` // of the weights and activations, which vLLM's Auto takes (--dtype)
	// KVFormat is how a model with several forms of cache stores it (SGLang's
	// --dsv4-attn-backend); "" is the engine's own choice.
	KVFormat       string `json:"kvFormat,omitempty"`
	DevicesPerNode int    `json:"devicesPerNode,omitempty"` // GPUs of a node

	Model    string `json:"model,omitempty"` // where the sides name one each
	Revision string `json:"revision,omitempty"`
	Version  string `json:"version,omitempty"` // of the engine; "" is the pair's
	// EP is the degree of expert parallelism; -1 is vLLM's switch, which takes all
	// ranks of tp and dp.
	EP int `json:"ep,omitempty"`
	// PCP is the prefill context parallel degree: vLLM's, or SGLang's attention CP.
	PCP int `json:"pcp,omitempty"`
	// Nodes is the number of hosts that one TP group is spread over.
	Nodes int `json:"nodes,omitempty"`
	// Attention is the attention backend as the engine spells it.
	Attention string `json:"attention,omitempty"`
	// Speculation is the method of speculative decoding as the engine spells it; ""
	// is none. OwnDrafts: the draft layers of the model do it, and are cached.
	Speculation string `json:"speculation,omitempty"`
	OwnDrafts   bool   `json:"ownDrafts,omitempty"`
	// DraftTokens is the number of tokens speculated per step.
	DraftTokens int `json:"draftTokens,omitempty"`
	// AllToAll is vLLM's all-to-all backend of expert parallelism as it spells it.
	AllToAll string `json:"allToAll,omitempty"`
	// ConvLayout is VLLM_SSM_CONV_STATE_LAYOUT; SD is the engine's own choice.
	ConvLayout string `json:"convLayout,omitempty"`
	// MambaAlign: recurrent states are kept at the ends of blocks (vLLM's mamba cache
	// mode align).
	MambaAlign bool `json:"mambaAlign,omitempty"`
	// NoHybrid: windowed layers keep every token (--disable-hybrid-kv-cache-manager,
	// SGLang's --disable-hybrid-swa-memory).
	NoHybrid        bool  `json:"noHybrid,omitempty"`
	NoPrefixCaching bool  `json:"noPrefixCaching,omitempty"`
	BatchTokens     int   `json:"batchTokens,omitempty"` // most tokens of a step
	MaxLength       int   `json:"maxLength,omitempty"`   // tokens of the longest sequence
	KVMemory        int64 `json:"kvMemory,omitempty"`    // bytes of KV cache of a rank
	KVBlocks        int64 `json:"kvBlocks,omitempty"`    // blocks of a rank, where they are known rather than bytes
	Replicas        int   `json:"replicas,omitempty"`
	// WindowRatio, StateRatio, States and Sequences say how SGLang divides its memory;
	// see Cache.
	WindowRatio float64 `json:"windowRatio,omitempty"`
	StateRatio  float64 `json:"stateRatio,omitempty"`
	States      int     `json:"states,omitempty"`
	Sequences   int     `json:"sequences,omitempty"`
}

// Cache is how an engine caches a model on the side.
func (s Side) Cache(e Engine) Cache {
	return Cache{
		Engine: e, Version: s.Version, Layout: s.Layout, KVType: s.KVType, BlockTokens: s.BlockSize, MaxLength: s.MaxLength,
		InFlight: s.BatchTokens, NoPrefixCaching: s.NoPrefixCaching, NoHybrid: s.NoHybrid,
		DraftTokens: s.DraftTokens, OwnDrafts: s.OwnDrafts,
		WindowRatio: s.WindowRatio, StateRatio: s.StateRatio, States: s.States, Sequences: s.Sequences,
	}
}

// Backend is how bytes get to the other side.
type Backend string

// The backends on which rules depend.
const (
	RDMA Backend = "RDMA"
	XGMI Backend = "XGMI"
)

// Load is what a pool has to serve at a time; the zero value is not known.
type Load struct {
	Input       int `json:"in,omitempty"`          // tokens of a prompt
	Output      int `json:"out,omitempty"`         // tokens of an answer
	Concurrency int `json:"concurrency,omitempty"` // requests at a time
}

// Pair is what the rules need to know of a pool. See Side for what the zero value
// of the optional fields means.
type Pair struct {
	Engine  Engine `json:"engine,omitempty"`  // "" is vLLM
	Version string `json:"version,omitempty"` // of the engine, such as 0.33.0; "" unknown
	Mover   Mover  `json:"mover,omitempty"`   // "" is Auto
	Mode    Mode   `json:"mode,omitempty"`    // "" is Write
	// NoAgent and NoRead say that the operator has no way to let the agent move the
	// engine's bytes, or to let decode read them, so that no fix names it.
	NoAgent  bool     `json:"noAgent,omitempty"`
	NoRead   bool     `json:"noRead,omitempty"`
	Geometry Geometry `json:"geometry,omitzero"`
	// HasGeometry says that Geometry is known. Rules that need it don't refuse
	// without; model-geometry warns instead.
	HasGeometry bool `json:"hasGeometry,omitempty"`
	// Model says more than Geometry, and counts instead of it where both are there.
	// Models with windows, indexers or recurrent states have a Model only.
	Model   *Model  `json:"kvModel,omitempty"`
	Backend Backend `json:"backend,omitempty"`
	Load    Load    `json:"load,omitzero"`
	Prefill Side    `json:"prefill"`
	Decode  Side    `json:"decode"`
}

// heads is what the rules need of the heads of a model.
type heads struct {
	known  bool
	query  int
	moe    bool
	latent bool // MLA somewhere
	// kv are the numbers of KV heads of the layers that split them over ranks.
	kv []int
}

func headsOf(p Pair) heads {
	if p.Model == nil {
		g := p.Geometry
		h := heads{known: p.HasGeometry, query: g.AttentionHeads, moe: g.MoE, latent: g.Kind == MLA}
		if h.known && !h.latent && g.KVHeads > 0 {
			h.kv = []int{g.KVHeads}
		}
		return h
	}
	m := p.Model
	h := heads{known: true, query: m.AttentionHeads, moe: m.Experts > 0}
	for _, g := range m.Groups {
		switch {
		case g.Kind == Recurrent, g.Kind == Indexer: // whose keys say nothing of the attention's
		case g.Attention.Kind == MLA:
			h.latent = true
		case g.Attention.KVHeads < 1:
		case len(h.kv) == 0 || h.kv[len(h.kv)-1] != g.Attention.KVHeads:
			h.kv = append(h.kv, g.Attention.KVHeads)
		}
	}
	return h
}

// model is the pair's model, or what its geometry says of it.
func (v *view) model() (Model, bool) {
	if v.fitted == nil {
		return Model{}, false
	}
	return *v.fitted, true
}

// cache is how a side caches the model.
func (v *view) cache(role Role) Cache {
	c := v.side(role).Cache(v.Engine)
	c.Layout, c.Version = v.layout(role), v.version(role)
	return c
}

func (v *view) version(role Role) string { return cmp.Or(v.side(role).Version, v.Version) }

// states, windowed, indexed: facts of a model that only Model can say.
func (v *view) states() bool   { return v.Model != nil && v.Model.HasState() }
func (v *view) windowed() bool { return v.Model != nil && v.Model.Windowed() }
func (v *view) indexed() bool  { return v.Model != nil && v.Model.WholeBlockIndexer() }
