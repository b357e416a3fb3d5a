// Package kvlayout describes what a paged KV cache looks like, where a token of
// it lives, which prefill and decode layouts fit together, and which bytes a
// prefill rank writes to which decode rank.
//
// It is pure: it imports the standard library only, reads no clock and does no
// I/O, so that the admission webhook, the controller, the transfer agent, the
// router and the command line decide by the same functions.
//
// Terms: a rank is one GPU of an engine instance. TP splits attention heads over
// ranks. DCP (decode context parallel) deals the tokens of a sequence to the
// ranks of consecutive runs of DCP ranks of the TP group; it adds no GPU. A block
// holds BlockTokens tokens on each rank; with DCP N one scheduler block covers
// N x BlockTokens tokens of the sequence, under the same block id on every rank.
package kvlayout

// Role is the side of a prefill/decode pair.
type Role string

// The two roles.
const (
	Prefill Role = "prefill"
	Decode  Role = "decode"
)

func (r Role) other() Role {
	if r == Prefill {
		return Decode
	}
	return Prefill
}

// Layout holds the parallel degrees of one engine instance. The zero value of a
// degree means "not said"; Defaulted replaces it.
type Layout struct {
	TP         int `json:"tp"`                   // tensor parallel degree
	PP         int `json:"pp,omitempty"`         // pipeline parallel degree
	DP         int `json:"dp,omitempty"`         // data parallel degree over all pods of the instance
	DPLocal    int `json:"dpLocal,omitempty"`    // data parallel ranks of one pod
	DCP        int `json:"dcp,omitempty"`        // decode context parallel degree, a divisor of TP
	Interleave int `json:"interleave,omitempty"` // consecutive tokens dealt to one DCP rank
}

// Defaulted returns l with every unset degree replaced: 1, and DPLocal by DP.
func (l Layout) Defaulted() Layout {
	for _, p := range []*int{&l.TP, &l.PP, &l.DP, &l.DCP, &l.Interleave} {
		if *p == 0 {
			*p = 1
		}
	}
	if l.DPLocal == 0 {
		l.DPLocal = l.DP
	}
	return l
}

// Kind says how attention stores its keys and values.
type Kind string

// MLA keeps one latent vector per token, replicated on every TP rank. GQA (also
// MHA and MQA) keeps a key and a value vector per KV head, sharded by heads.
const (
	MLA Kind = "MLA"
	GQA Kind = "GQA"
)

// Geometry is the shape of a model's KV cache, independent of any layout.
type Geometry struct {
	Model          string `json:"model"`
	Kind           Kind   `json:"kind"`
	Layers         int    `json:"layers"`
	AttentionHeads int    `json:"attentionHeads"`
	KVHeads        int    `json:"kvHeads"` // 1 for MLA
	// HeadValues is the number of values of one head, plane and token: the latent
	// width (kv_lora_rank + qk_rope_head_dim) for MLA, the head dimension for GQA.
	HeadValues int `json:"headValues"`
	// MoE says that the model has experts; dense models take no DP group.
	MoE bool `json:"moe,omitempty"`
}

// Planes is the number of vectors per head and token: 1 (latent) for MLA, 2
// (key, value) for GQA. vLLM packs them side by side: a row is K then V.
func (g Geometry) Planes() int {
	if g.Kind == MLA {
		return 1
	}
	return 2
}

// KVType is the element type of the cache.
type KVType string

// Known element types. Auto is the engine's own choice, bf16 for the catalog.
const (
	Auto KVType = "Auto"
	BF16 KVType = "BF16"
	FP16 KVType = "FP16"
	FP8  KVType = "FP8" // e4m3
	// FP8E5M2 has the size of FP8, and other numbers for the same bytes.
	FP8E5M2 KVType = "FP8E5M2"
)

// Bytes is the size of one element; 0 for an unknown type.
func (t KVType) Bytes() int {
	switch t {
	case Auto, BF16, FP16, "":
		return 2
	case FP8, FP8E5M2:
		return 1
	}
	return 0
}

// HeadRange is the half-open range [First, First+Count) of global KV heads.
type HeadRange struct {
	First int `json:"first"`
	Count int `json:"count"`
}

// Region describes one layer's cache in the memory of one rank. All strides,
// offsets and sizes are bytes. The row of (block, head, slot) starts at
//
//	Offset + block*BlockStride + (head-Heads.First)*HeadStride + slot*TokenStride
//
// and is RowBytes long (all planes of the head, packed).
type Region struct {
	Layer       int       // global layer index
	Offset      int64     // of block 0 in the rank's memory
	BlockStride int64     // from a block to the next
	Blocks      int       // number of blocks
	BlockTokens int       // tokens per block on this rank
	Heads       HeadRange // global KV heads held here
	HeadStride  int64     // from a head to the next inside a block
	TokenStride int64     // from a token to the next inside a head
	RowBytes    int64     // of one head and token
}

// Copy is a strided copy: Count pieces of Length bytes, piece i from
// Src+i*SrcStride in the source rank's memory to Dst+i*DstStride in the target
// rank's memory. With Count 1 the strides are 0.
type Copy struct {
	Src, SrcStride int64
	Dst, DstStride int64
	Length         int64
	Count          int
}

// Bytes is what the copy moves.
func (c Copy) Bytes() int64 { return c.Length * int64(c.Count) }
