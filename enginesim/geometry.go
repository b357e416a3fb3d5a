package enginesim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Kinds of attention, as --sim-geometry spells them.
const (
	mla = "MLA" // one latent vector per token, the same on every rank of a TP group
	gqa = "GQA" // a key and a value vector per KV head, heads split over ranks
)

// Geometry is the shape of a model's KV cache. Its JSON is the value of --sim-geometry.
type Geometry struct {
	Model          string `json:"model"`
	Kind           string `json:"kind"`
	Layers         int    `json:"layers"`
	AttentionHeads int    `json:"attentionHeads"`
	KVHeads        int    `json:"kvHeads"`
	// HeadValues is the number of values of one head, plane and token.
	HeadValues int `json:"headValues"`
	// ValueBytes is the size of a value; it comes from --kv-cache-dtype.
	ValueBytes int `json:"-"`
}

// models are the shapes known by name, from the models' own configurations:
// layers, attention heads, KV heads, and kv_lora_rank + qk_rope_head_dim or head_dim.
var models = []Geometry{
	{Model: "deepseek-ai/DeepSeek-R1", Kind: mla, Layers: 61, AttentionHeads: 128, KVHeads: 1, HeadValues: 576},
	{Model: "deepseek-ai/DeepSeek-V3", Kind: mla, Layers: 61, AttentionHeads: 128, KVHeads: 1, HeadValues: 576},
	{Model: "deepseek-ai/DeepSeek-V2-Lite", Kind: mla, Layers: 27, AttentionHeads: 16, KVHeads: 1, HeadValues: 576},
	{Model: "moonshotai/Kimi-K2-Instruct", Kind: mla, Layers: 61, AttentionHeads: 64, KVHeads: 1, HeadValues: 576},
	{Model: "meta-llama/Llama-3.3-70B-Instruct", Kind: gqa, Layers: 80, AttentionHeads: 64, KVHeads: 8, HeadValues: 128},
	{Model: "Qwen/Qwen3-32B", Kind: gqa, Layers: 64, AttentionHeads: 64, KVHeads: 8, HeadValues: 128},
	{Model: "Qwen/Qwen3-235B-A22B", Kind: gqa, Layers: 94, AttentionHeads: 64, KVHeads: 4, HeadValues: 128},
}

// Limits that keep sizes within what one machine can hold.
const (
	maxLayers = 1024
	maxHeads  = 1024
	maxValues = 1 << 16
)

// geometryOf finds the shape of a model: the JSON of --sim-geometry, or the table.
func geometryOf(model string, spec []byte) (Geometry, error) {
	if spec == nil {
		for _, g := range models {
			if strings.EqualFold(g.Model, model) {
				return g, nil
			}
		}
		return Geometry{}, fmt.Errorf("the KV geometry of %q is unknown: give it by --sim-geometry", model)
	}
	var g Geometry
	if err := json.Unmarshal(spec, &g); err != nil {
		return Geometry{}, fmt.Errorf("--sim-geometry: %w", err)
	}
	return g, nil
}

func (g Geometry) check() error {
	switch {
	case g.Kind != mla && g.Kind != gqa:
		return fmt.Errorf("geometry: kind %q is neither %s nor %s", g.Kind, mla, gqa)
	case !within(g.Layers, maxLayers):
		return fmt.Errorf("geometry: %d layers, not 1 to %d", g.Layers, maxLayers)
	case !within(g.KVHeads, maxHeads) || g.Kind == mla && g.KVHeads != 1:
		return fmt.Errorf("geometry: %d KV heads for %s", g.KVHeads, g.Kind)
	case !within(g.AttentionHeads, maxHeads) || g.AttentionHeads%g.KVHeads != 0:
		return fmt.Errorf("geometry: %d attention heads over %d KV heads", g.AttentionHeads, g.KVHeads)
	case !within(g.HeadValues, maxValues):
		return fmt.Errorf("geometry: %d values per head, not 1 to %d", g.HeadValues, maxValues)
	case g.HeadValues*g.ValueBytes%wordBytes != 0:
		return fmt.Errorf("geometry: %d values of %d bytes are not whole words of %d bytes", g.HeadValues, g.ValueBytes, wordBytes)
	}
	return nil
}

func within(n, limit int) bool { return n >= 1 && n <= limit }

// planes is the number of vectors of a row: the latent, or key and value.
func (g Geometry) planes() int {
	if g.Kind == mla {
		return 1
	}
	return 2
}

// planeWords and rowWords are sizes in words of 8 bytes: of one vector, and of
// all vectors of one head and token, side by side.
func (g Geometry) planeWords() int { return g.HeadValues * g.ValueBytes / wordBytes }
func (g Geometry) rowWords() int   { return g.planeWords() * g.planes() }
