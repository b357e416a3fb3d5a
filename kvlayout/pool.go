package kvlayout

import "fmt"

// Cache says how one engine instance caches a model.
type Cache struct {
	Engine Engine // "" is vLLM; the Simulator counts as vLLM
	// Version is the engine's release; "", or one that is not known, counts as the newest.
	Version string
	Layout  Layout // unset degrees count as 1
	KVType  KVType // "" and Auto take what the checkpoint asks for, else two bytes
	// BlockTokens is the block (page) size that is asked for; 0 is the engine's own:
	// 16 for vLLM, 1 for SGLang. Models with recurrent layers may get more.
	BlockTokens int
	// KernelBlock is the smallest block of the attention backend, to which vLLM
	// rounds a raised block; 0 is 1 for MLA (ROCM_AITER_MLA) and 16 else.
	KernelBlock int
	// MaxLength is the longest sequence that the engine takes (max-model-len); 0 is
	// the model's. Where neither is known, only models whose layers all keep every token
	// have a capacity.
	MaxLength int
	// InFlight is the number of tokens that are scheduled and not settled:
	// concurrent batches times max-num-batched-tokens. Windowed layers keep that much
	// beside their window; 0 counts as one token.
	InFlight int
	// NoPrefixCaching and NoHybrid are vLLM's --no-enable-prefix-caching (a sequence
	// keeps one recurrent state, not two) and --disable-hybrid-kv-cache-manager
	// (windowed layers keep every token), or SGLang's --disable-radix-cache and
	// --disable-hybrid-swa-memory.
	NoPrefixCaching bool
	NoHybrid        bool
	// DraftTokens is the number of tokens speculated per step, 0 without speculation;
	// with OwnDrafts the model's own draft layers do it and are cached.
	DraftTokens int
	OwnDrafts   bool
	// WindowRatio is SGLang's --swa-full-tokens-ratio, tokens of windowed layers per
	// token of full ones; 0 unknown: then models with both have no capacity.
	WindowRatio float64
	// StateRatio is SGLang's --mamba-full-memory-ratio, memory of recurrent states per
	// memory of tokens; 0 is SGLang's own, 0.9. States, --max-mamba-cache-size, is the
	// number of states instead, over all DP ranks; 0 is not said. So is Sequences,
	// --max-running-requests, without prefix caching.
	StateRatio float64
	States     int
	Sequences  int
}

// Pool is the KV cache of one rank in blocks: an engine draws blocks of BlockBytes
// from one pool for all of its groups.
type Pool struct {
	BlockTokens int   `json:"blockTokens"`      // tokens per block of full attention on one rank
	Raised      bool  `json:"raised,omitempty"` // whether that is more than was asked for, to hold a state
	BlockBytes  int64 `json:"blockBytes"`       // of one block, over all layers of a group
	// StateBytes is the size of one layer's recurrent state on the rank, before it
	// is padded to a page; 0 without recurrent layers.
	StateBytes int64       `json:"stateBytes,omitempty"`
	Groups     []PoolGroup `json:"groups"`

	dcp       int
	maxLength int
	longest   int64 // blocks of a sequence of maxLength, as vLLM counts them; 0 for SGLang
	states    stateSlots
}

// PoolGroup is a group of layers that share a block list.
type PoolGroup struct {
	Kind   LayerKind `json:"kind"`
	Layers int       `json:"layers"`
	// BlockTokens is the number of tokens per block on one rank, 0 for states.
	BlockTokens int `json:"blockTokens,omitempty"`
	// Dealt says that DCP deals its tokens, so that a block of a DCP group covers
	// that many times BlockTokens.
	Dealt bool `json:"dealt,omitempty"`
	// Window is the window or chunk in tokens, 0 without one.
	Window int `json:"window,omitempty"`
	// Most is the largest number of blocks that a sequence takes of it; 0 unbounded.
	Most int `json:"most,omitempty"`
}

// Blocks is the number of blocks in bytes of KV memory of one rank. SGLang keeps
// recurrent states apart, which leave less for them, and starts with none of both.
func (p Pool) Blocks(bytes int64) int64 {
	states := p.states.of(bytes)
	bytes -= p.states.memory(states)
	if p.BlockBytes < 1 || bytes < 1 || (p.states.bytes > 0 && states < 1) {
		return 0
	}
	return bytes / p.BlockBytes
}

// RequestBlocks is the number of blocks that one sequence of tokens takes, over all
// groups: Kimi-Linear at 32,768 tokens and B 2,048 takes 16 and 3 x 2.
func (p Pool) RequestBlocks(tokens int) int64 {
	var sum int64
	for _, g := range p.Groups {
		n := g.Most
		if g.BlockTokens > 0 {
			n = p.tokenBlocks(g, tokens)
			if g.Most > 0 {
				n = min(n, g.Most)
			}
		}
		sum += int64(n)
	}
	return sum
}

func (p Pool) tokenBlocks(g PoolGroup, tokens int) int {
	if g.Dealt {
		tokens = ceilDiv(tokens, max(p.dcp, 1))
	}
	return ceilDiv(tokens, g.BlockTokens)
}

// Tokens is the capacity of one rank's pool, or of a DCP group's, in tokens. For
// vLLM it is what the engine prints as its KV cache size: what fits of sequences
// of the longest length, rounded down. SGLang counts pages.
func (p Pool) Tokens(blocks int64) int64 {
	if p.longest == 0 {
		return mulSat(blocks, int64(p.BlockTokens), int64(max(p.dcp, 1)))
	}
	// Quotient and rest apart, so that no product overflows.
	length := int64(p.maxLength)
	return addSat(mulSat(blocks/p.longest, length), mulSat(blocks%p.longest, length)/p.longest)
}

// Requests is the number of sequences of length tokens that the blocks hold at
// once. vLLM never gives out one of them, its null block.
func (p Pool) Requests(blocks int64, length int) int64 {
	if p.longest > 0 {
		blocks--
	}
	perRequest := p.RequestBlocks(length)
	if blocks < 1 || perRequest < 1 {
		return 0
	}
	return blocks / perRequest
}

// TokenBytes is what a further token of a long sequence costs on one rank, with
// DCP its share: the bytes of the layers that keep every token, over the ranks
// that they are dealt to. Padding of pages does not count.
func (m Model) TokenBytes(c Cache) int64 {
	l := c.Layout.Defaulted()
	var whole, dealt int64
	for _, g := range m.Caches(c.OwnDrafts) {
		if g = c.promoted(g, m); g.Kind == Recurrent || g.windowed() {
			continue
		}
		bytes := mulSat(g.Attention.rankRowBytes(c.kvType(m), c.attentionTP()), int64(g.rankLayers(l)))
		if c.deals(g, m) {
			dealt = addSat(dealt, bytes)
		} else {
			whole = addSat(whole, bytes)
		}
	}
	return addSat(whole, ceilDiv64(dealt, int64(max(l.DCP, 1))))
}

func ceilDiv64(a, b int64) int64 {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}

// rankRowBytes is what a rank of tp keeps of one token in one layer, in bytes.
func (a Attention) rankRowBytes(t KVType, tp int) int64 {
	row := mulSat(int64(a.Key+a.Value), int64(t.Bytes()))
	if a.RowBytes > 0 {
		row = int64(a.RowBytes)
	}
	if a.Kind == MLA {
		return row
	}
	return mulSat(row, int64(ceilDiv(a.KVHeads, max(tp, 1))))
}

// rankLayers is the number of the group's layers on the fullest pipeline stage of
// an even split.
func (g LayerGroup) rankLayers(l Layout) int { return ceilDiv(g.Layers, max(l.PP, 1)) }

// kvType resolves Auto.
func (c Cache) kvType(m Model) KVType {
	switch {
	case c.KVType != "" && c.KVType != Auto:
		return c.KVType
	case m.Checkpoint != "":
		return m.Checkpoint
	}
	return Auto
}

func (c Cache) attentionTP() int { return c.Engine.attentionTP(c.Layout.Defaulted()) }

// attentionTP is the number of ranks that heads are split over: SGLang's DP attention
// lies inside the TP group; vLLM's DP ranks have a TP group each.
func (e Engine) attentionTP(l Layout) int {
	if e == SGLang {
		return max(l.TP/max(l.DP, 1), 1)
	}
	return l.TP
}

func (g LayerGroup) windowed() bool { return g.Kind == SlidingWindow || g.Kind == ChunkedLocal }

// promoted turns a window into full attention where an engine allocates for all tokens:
// without its hybrid manager, beside layers of full attention.
func (c Cache) promoted(g LayerGroup, m Model) LayerGroup {
	if c.NoHybrid && g.windowed() && m.has(FullAttention) {
		g.Kind, g.Attention.Window = FullAttention, 0
	}
	return g
}

// promotes returns a *PoolError where vLLM finds no one kind for all layers.
func (m Model) promotes(c Cache) error {
	windows := m.Windows()
	if c.NoHybrid && (len(windows) > 1 || (m.has(SlidingWindow) && m.has(ChunkedLocal))) {
		return poolErrorf("without the hybrid KV cache manager, windows and chunks of %v tokens cannot be one", windows)
	}
	return nil
}

// deals says whether DCP deals the group's tokens to ranks: every attention that
// keeps all tokens, but drafts that are not MLA beside a model that is, which
// vLLM runs without DCP, and in SGLang indexers, whose keys every rank holds.
func (c Cache) deals(g LayerGroup, m Model) bool {
	switch {
	case g.Kind == Recurrent || g.windowed():
		return false
	case c.Layout.Defaulted().DCP == 1:
		return true
	case c.Engine == SGLang && g.Kind == Indexer:
		return false
	}
	return g.Attention.Kind == MLA || !m.AllMLA(false)
}

// PoolError says why a cache has no pool.
type PoolError struct{ Reason string }

// Error is the reason in a sentence.
func (e *PoolError) Error() string { return "the KV cache cannot be sized: " + e.Reason }

func poolErrorf(format string, args ...any) error {
	return &PoolError{fmt.Sprintf(format, args...)}
}
