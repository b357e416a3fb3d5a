package kvlayout

import (
	"slices"
	"sync"
)

// Models returns the models that the project knows, one per Hugging Face name, in
// a fixed order. The numbers are those of their public config.json; what could not
// be found there is not listed.
func Models() []Model {
	var all []Model
	for _, f := range families() {
		for _, name := range f.names {
			all = append(all, f.named(name))
		}
	}
	return all
}

// Lookup returns the geometry of the model that a name or path stands for, as
// LookupModel finds it. It is not found where LookupModel finds it and a Geometry cannot
// say it. The Model of the result is the name as the catalog spells it.
func Lookup(model string) (Geometry, bool) {
	m, ok := LookupModel(model)
	if !ok {
		return Geometry{}, false
	}
	return m.Geometry()
}

// family is one model with the names of the checkpoints that share its numbers.
type family struct {
	Model
	names []string
}

func (f family) named(name string) Model {
	m := f.Model
	m.Name, m.Groups, m.Drafts = name, slices.Clone(m.Groups), slices.Clone(m.Drafts)
	return m
}

// families builds the catalog once.
var families = sync.OnceValue(func() []family {
	return slices.Concat(mlaFamilies(), indexerFamilies(), denseFamilies(), expertFamilies(), windowFamilies(), stateFamilies())
})

// checkpoints names the checkpoints of m with its groups.
func checkpoints(m Model, groups, drafts []LayerGroup, names ...string) family {
	m.Groups, m.Drafts = groups, drafts
	return family{Model: m, names: names}
}

// latents is MLA with the latent of all models here: kv_lora_rank 512 and
// qk_rope_head_dim 64.
func latents(layers int) []LayerGroup {
	return []LayerGroup{{Kind: FullAttention, Layers: layers, Attention: Attention{Kind: MLA, KVHeads: 1, Key: 512 + 64}}}
}

// indexers is an indexer of index_head_dim 128 with its scale, behind what it
// serves.
func indexers(layers int, attention []LayerGroup) []LayerGroup {
	return append(attention, LayerGroup{
		Kind: Indexer, Layers: layers, Attention: Attention{Kind: MLA, KVHeads: 1, Key: 128, RowBytes: 128 + 4},
	})
}

// grouped is full attention of KV heads (num_key_value_heads) of dim (head_dim)
// values.
func grouped(layers, heads, dim int) []LayerGroup {
	return []LayerGroup{{Kind: FullAttention, Layers: layers, Attention: headSharded(heads, dim, 0)}}
}

func headSharded(heads, dim, window int) Attention {
	return Attention{Kind: GQA, KVHeads: heads, Key: dim, Value: dim, Window: window}
}
