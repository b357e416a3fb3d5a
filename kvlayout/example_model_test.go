package kvlayout_test

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// A config.json of a model that the catalog does not know.
func ExampleParseConfig() {
	m, err := kvlayout.ParseConfig([]byte(`{
		"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
		"num_hidden_layers": 12, "num_attention_heads": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	g, ok := m.Geometry()
	fmt.Println(g.Kind, g.Layers, g.HeadValues, ok)

	_, err = kvlayout.ParseConfig([]byte(`{"architectures": ["AcmeForCausalLM"], "model_type": "acme", "num_hidden_layers": 12}`))
	fmt.Println(err)
	// Output:
	// MLA 12 576 true
	// the config of architecture "AcmeForCausalLM" gives no KV geometry: model_type "acme" is not known, and what its layers cache cannot be told from its fields; if every layer caches alike, set model.geometry to {kind: MLA or GQA, layers: 12, attentionHeads: ?, kvHeads: ?, headValues: ?, experts: 0 for a dense model}
}

// What DCP gives DeepSeek-R1 on the same four GPUs: the tokens of a replica, and
// how many requests of 8,192 tokens in and 4,096 out it holds at once.
func ExampleModel_Capacity() {
	r1, _ := kvlayout.LookupModel("deepseek-ai/DeepSeek-R1")
	for _, l := range r1.Layouts(kvlayout.VLLM, 4) {
		c, err := r1.Capacity(kvlayout.Cache{Layout: l, BlockTokens: 64, MaxLength: 65536}, 101_713_379_328)
		if err != nil || l.DP > 1 {
			continue
		}
		fmt.Printf("TP%d DCP%d: %d tokens, %d requests\n", l.TP, l.DCP, c.Tokens, c.Requests(8192+4096))
	}
	// Output:
	// TP4 DCP1: 1447424 tokens, 117 requests
	// TP4 DCP2: 2894848 tokens, 235 requests
	// TP4 DCP4: 5789696 tokens, 471 requests
}
