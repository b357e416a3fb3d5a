package kvlayout

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// configs returns the configs in testdata by Hugging Face name.
func configs(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/configs/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configs: %v", err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		all[strings.Replace(name, "--", "/", 1)] = b
	}
	return all
}

// Every config is a model of the catalog, with the catalog's numbers.
func TestParseConfigAgreesWithTheCatalog(t *testing.T) {
	for name, b := range configs(t) {
		want, ok := LookupModel(name)
		if !ok {
			t.Errorf("%s is not in the catalog", name)
			continue
		}
		want.Name = ""
		if got, err := ParseConfig(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, got, want)
		}
	}
}

// Every family of the catalog has a config.
func TestEveryFamilyHasAConfig(t *testing.T) {
	read := configs(t)
	for _, f := range families() {
		if !slices.ContainsFunc(f.names, func(n string) bool { return read[n] != nil }) {
			t.Errorf("none of %v has a config in testdata", f.names)
		}
	}
}

func TestParseConfigSpellings(t *testing.T) {
	latent := Attention{Kind: MLA, KVHeads: 1, Key: 576}
	mla := `"model_type":"deepseek_v3","num_hidden_layers":4,"num_attention_heads":8,"kv_lora_rank":512,"qk_rope_head_dim":64`
	full := func(layers int, a Attention) LayerGroup {
		return LayerGroup{Kind: FullAttention, Layers: layers, Attention: a}
	}
	window := func(layers, w int) LayerGroup {
		return LayerGroup{Kind: SlidingWindow, Layers: layers, Attention: headSharded(2, 8, w)}
	}
	for name, c := range map[string]struct {
		config string
		want   []LayerGroup
	}{
		"language_config": {`{"model_type":"deepseek_vl_v2","language_config":{` + mla + `}}`, []LayerGroup{full(4, latent)}},
		"a nested model without a type": {
			`{"model_type":"deepseek_v3","text_config":{` + strings.TrimPrefix(mla, `"model_type":"deepseek_v3",`) + `}}`, []LayerGroup{full(4, latent)},
		},
		"llm_config": {`{"llm_config":{` + mla + `}}`, []LayerGroup{full(4, latent)}},
		"no KV heads means as many as heads": {
			`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32}`,
			[]LayerGroup{full(2, headSharded(4, 8, 0))},
		},
		"null head_dim": {
			`{"model_type":"mixtral","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":null,"hidden_size":32}`,
			[]LayerGroup{full(2, headSharded(2, 8, 0))},
		},
		"a window of every layer": {
			`{"model_type":"mistral","num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"hidden_size":32,"sliding_window":16}`,
			[]LayerGroup{window(3, 16)},
		},
		"Qwen's window is off by default": {
			`{"model_type":"qwen3","num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,"sliding_window":16}`,
			[]LayerGroup{full(3, headSharded(2, 8, 0))},
		},
		"Qwen's window from a layer on": {
			`{"model_type":"qwen2","num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,` +
				`"sliding_window":16,"use_sliding_window":true,"max_window_layers":1}`,
			[]LayerGroup{full(1, headSharded(2, 8, 0)), window(2, 16)},
		},
		"a pattern of its own": {
			`{"model_type":"gemma3_text","num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,` +
				`"sliding_window":16,"sliding_window_pattern":2}`,
			[]LayerGroup{window(2, 16), full(2, headSharded(2, 8, 0))},
		},
		"Gemma's defaults": {
			`{"model_type":"gemma3_text","num_hidden_layers":1,"sliding_window":16}`,
			[]LayerGroup{{Kind: SlidingWindow, Layers: 1, Attention: headSharded(4, 256, 16)}},
		},
		"layers without rope": {
			`{"model_type":"llama4_text","num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,` +
				`"attention_chunk_size":64,"no_rope_layers":[0,1,1]}`,
			[]LayerGroup{full(1, headSharded(2, 8, 0)), {Kind: ChunkedLocal, Layers: 2, Attention: headSharded(2, 8, 64)}},
		},
		"an indexer by pattern": {
			`{"model_type":"glm_moe_dsa",` + strings.TrimPrefix(mla, `"model_type":"deepseek_v3",`) + `,"index_head_dim":128,"index_topk_pattern":"FSSF"}`,
			[]LayerGroup{full(4, latent), {Kind: Indexer, Layers: 2, Attention: Attention{Kind: MLA, KVHeads: 1, Key: 128, RowBytes: 132}}},
		},
		"a number as 4.0, null, 0, and a field of another form": {
			`{"model_type":"llama","num_hidden_layers":2.0,"num_attention_heads":4,"hidden_size":32,"num_experts":null,"kv_lora_rank":0,` +
				`"model_max_length":1e30,"hybrid_override_pattern":7}`,
			[]LayerGroup{full(2, headSharded(4, 8, 0))},
		},
		"layers of a Mamba hybrid by name": {
			`{"model_type":"nemotron_h","layers_block_type":["mamba","moe","attention","mlp"],"num_attention_heads":4,"num_key_value_heads":2,` +
				`"attention_head_dim":8,"mamba_num_heads":4,"mamba_head_dim":8,"ssm_state_size":16,"n_groups":2,"conv_kernel":4,` +
				`"mamba_ssm_cache_dtype":"bfloat16","time_step_limit":[0.0,Infinity],"x":-Infinity,"y":"NaN \"Infinity"}`,
			[]LayerGroup{{Kind: Recurrent, Layers: 1, State: State{
				Kind: Mamba2, ConvRows: 3, ConvParts: []int{32, 32, 32}, Groups: 2, Heads: 4, Rows: 8, Columns: 16, ValueBytes: 2,
			}}, full(1, headSharded(2, 8, 0))},
		},
		"Granite's spelling": {
			`{"model_type":"granitemoehybrid","layer_types":["mamba","attention"],"num_hidden_layers":2,"num_attention_heads":4,` +
				`"num_key_value_heads":2,"hidden_size":32,"mamba_n_heads":4,"mamba_d_head":8,"mamba_d_state":16,"mamba_n_groups":1,"mamba_d_conv":4}`,
			[]LayerGroup{{Kind: Recurrent, Layers: 1, State: State{
				Kind: Mamba2, ConvRows: 3, ConvParts: []int{32, 16, 16}, Groups: 1, Heads: 4, Rows: 8, Columns: 16, ValueBytes: 2,
			}}, full(1, headSharded(2, 8, 0))},
		},
		"a window where layer_types says so": {
			`{"model_type":"exaone4","layer_types":["sliding_attention","full_attention"],"num_hidden_layers":2,"num_attention_heads":4,` +
				`"num_key_value_heads":2,"hidden_size":32,"sliding_window":16,"sliding_window_pattern":"LLLG"}`,
			[]LayerGroup{window(1, 16), full(1, headSharded(2, 8, 0))},
		},
	} {
		if m, err := ParseConfig([]byte(c.config)); err != nil || !reflect.DeepEqual(m.Groups, c.want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, m.Groups, c.want)
		}
	}
}

func TestParseConfigReadsTheCacheType(t *testing.T) {
	const model = `"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32`
	for config, want := range map[string]KVType{
		`{` + model + `}`: "",
		`{` + model + `,"quantization_config":{"kv_cache_scheme":{"num_bits":8,"type":"float"}}}`:  FP8,
		`{` + model + `,"quantization_config":{"kv_cache_scheme":{"num_bits":8,"type":"int"}}}`:    "",
		`{` + model + `,"quantization_config":{"kv_cache_quant_algo":"FP8"}}`:                      FP8,
		`{` + model + `,"quantization_config":{"kv_cache_quant_algo":null,"kv_cache_scheme":"x"}}`: "",
		`{"text_config":{` + model + `},"quantization_config":{"kv_cache_quant_algo":"FP8"}}`:      FP8,
	} {
		if m, err := ParseConfig([]byte(config)); err != nil || m.Checkpoint != want {
			t.Errorf("%s: %q (%v), want %q", config, m.Checkpoint, err, want)
		}
	}
}

func TestParseConfigRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		config  string
		missing []string
		says    string
	}{
		"unknown": {
			`{"architectures":["AcmeForCausalLM"],"model_type":"acme","num_hidden_layers":12,"num_attention_heads":8,"hidden_size":512}`, nil,
			`"AcmeForCausalLM" gives no KV geometry: model_type "acme" is not known, and what its layers cache cannot be told from its ` +
				`fields; if every layer caches alike, set model.geometry to {kind: MLA or GQA, layers: 12, attentionHeads: 8, kvHeads: 8, headValues: 64,`,
		},
		"nothing":  {`{}`, nil, `model_type "" is not known`},
		"no rank":  {`{"model_type":"deepseek_v3","num_hidden_layers":2,"num_attention_heads":4}`, []string{"kv_lora_rank", "qk_rope_head_dim"}, "lacks kv_lora_rank, qk_rope_head_dim"},
		"no heads": {`{"model_type":"llama","num_hidden_layers":2}`, []string{"head_dim", "hidden_size", "num_attention_heads"}, "lacks"},
		"own head dimension": {
			`{"model_type":"qwen3","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32}`, []string{"head_dim"}, "lacks head_dim",
		},
		"KV heads": {
			`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":3,"head_dim":8}`,
			[]string{"num_key_value_heads"},
			"3 KV heads do not divide 4",
		},
		"short list": {
			`{"model_type":"gpt_oss","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8,"layer_types":["full_attention"]}`,
			[]string{"layer_types"},
			"does not list its 2 layers",
		},
		"odd layer": {
			`{"model_type":"llama","num_hidden_layers":1,"num_attention_heads":4,"head_dim":8,"layer_types":["wobbly"]}`,
			[]string{"layer_types"},
			`"wobbly"`,
		},
		"state where none is known": {
			`{"model_type":"llama","num_hidden_layers":1,"num_attention_heads":4,"head_dim":8,"layer_types":["linear_attention"]}`,
			[]string{"layer_types"},
			"a kind of layer that its architecture does not",
		},
		"lightning attention": {
			`{"model_type":"minimax_m2","num_hidden_layers":1,"num_attention_heads":4,"head_dim":8,"attn_type_list":[0]}`,
			[]string{"attn_type_list"},
			"type 0",
		},
		"window without length": {
			`{"model_type":"gpt_oss","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8}`, []string{"sliding_window"}, "lacks sliding_window",
		},
		"layers in neither list": {
			`{"model_type":"kimi_linear","num_hidden_layers":3,"num_attention_heads":4,"kv_lora_rank":8,"qk_rope_head_dim":8,` +
				`"linear_attn_config":{"head_dim":8,"num_heads":4,"short_conv_kernel_size":4,"full_attn_layers":[1],"kda_layers":[2]}}`,
			[]string{"linear_attn_config.full_attn_layers", "linear_attn_config.kda_layers"},
			"name 2 of its 3 layers",
		},
		"windows of layers that are not listed": {
			`{"model_type":"exaone4","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32,"sliding_window":16}`,
			[]string{"layer_types"},
			"does not list the layers that have it",
		},
		"no layers of a Mamba hybrid": {`{"model_type":"nemotron_h"}`, []string{"layer_types"}, "which of its layers are Mamba"},
		"letters": {
			`{"model_type":"nemotron_h","hybrid_override_pattern":"MX"}`, []string{"hybrid_override_pattern"}, "letters other than",
		},
		"no Mamba heads": {
			`{"model_type":"nemotron_h","hybrid_override_pattern":"M*","num_attention_heads":4,"head_dim":8,"mamba_head_dim":8,` +
				`"ssm_state_size":8,"n_groups":1,"conv_kernel":4}`,
			[]string{"mamba_num_heads"},
			"lacks mamba_num_heads",
		},
		"Mamba alone":         {`{"model_type":"nemotron_h","layers_block_type":["rnn"]}`, []string{"layers_block_type"}, `names the kind "rnn"`},
		"Mamba without heads": {`{"model_type":"nemotron_h","hybrid_override_pattern":"M"}`, []string{"attention_head_dim", "num_attention_heads"}, "lacks"},
		"no delta net": {
			`{"model_type":"qwen3_next","num_hidden_layers":4,"num_attention_heads":4,"head_dim":8,"linear_num_key_heads":2,` +
				`"linear_num_value_heads":2,"linear_key_head_dim":8,"linear_value_head_dim":8}`,
			[]string{"linear_conv_kernel_dim"},
			"lacks linear_conv_kernel_dim",
		},
		"a window in a delta net": {
			`{"model_type":"qwen3_next","num_hidden_layers":1,"num_attention_heads":4,"head_dim":8,"linear_num_key_heads":2,"linear_num_value_heads":2,` +
				`"linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":4,"layer_types":["sliding_attention"]}`,
			[]string{"layer_types"},
			"a kind of layer that its architecture does not",
		},
		"no list of layers": {
			`{"model_type":"qwen3_next","num_hidden_layers":4,"num_attention_heads":4,"head_dim":8,"linear_num_key_heads":2,"linear_num_value_heads":2,` +
				`"linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":4,"layer_types":7}`,
			[]string{"layer_types"},
			"does not list its 4 layers",
		},
		"no KDA": {
			`{"model_type":"kimi_linear","num_hidden_layers":3,"num_attention_heads":4,"kv_lora_rank":8,"qk_rope_head_dim":8}`,
			[]string{"linear_attn_config.head_dim", "linear_attn_config.num_heads", "linear_attn_config.short_conv_kernel_size"},
			"lacks",
		},
		"no index of MiniMax": {
			`{"model_type":"minimax_m3","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8,"sparse_attention_config":{"use_sparse_attention":true}}`,
			[]string{"sparse_attention_config.sparse_index_dim"},
			"lacks",
		},
		"no sparse layers of MiniMax": {
			`{"model_type":"minimax_m3","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8,` +
				`"sparse_attention_config":{"use_sparse_attention":true,"sparse_index_dim":8,"sparse_attention_freq":[1]}}`,
			[]string{"sparse_attention_config.sparse_attention_freq"},
			"does not mark its 2 layers",
		},
		"a chunk without length": {
			`{"model_type":"llama4_text","num_hidden_layers":2,"num_attention_heads":4,"head_dim":8}`,
			[]string{"attention_chunk_size"},
			"lacks attention_chunk_size",
		},
		"a thousand layers": {
			`{"model_type":"llama","num_hidden_layers":5000,"num_attention_heads":4,"head_dim":8}`, []string{"num_hidden_layers"}, "5000 layers",
		},
		"heads that do not divide": {
			`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":3,"hidden_size":32}`, []string{"head_dim"}, "3 heads do not divide",
		},
		"pooled keys": {`{"model_type":"glm5_next"}`, nil, "index_kpool"},
		"no global heads": {
			`{"model_type":"gemma4_text","num_hidden_layers":1,"num_attention_heads":4,"head_dim":8,"attention_k_eq_v":true,"layer_types":["full_attention"]}`,
			[]string{"global_head_dim", "num_global_key_value_heads"},
			"lacks",
		},
		"key and value apart": {
			`{"model_type":"gemma4_text","num_hidden_layers":1,"num_attention_heads":4,"head_dim":8,"layer_types":["full_attention"]}`,
			[]string{"attention_k_eq_v", "layer_types"},
			"share key and value",
		},
		"others' cache": {`{"model_type":"gemma3n_text"}`, nil, "the cache of others"},
		"other heads":   {`{"model_type":"mimo_v2_flash"}`, nil, "other heads"},
		"compressed":    {`{"model_type":"deepseek_v4"}`, nil, "compress_ratios), which has no geometry here; its layers do not cache alike"},
		"shared":        {`{"model_type":"llama","num_kv_shared_layers":4}`, nil, "4 of its layers use the cache of others"},
		"huge": {
			`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":999999999,"head_dim":8}`,
			[]string{"num_attention_heads"},
			"its num_attention_heads is 999999999, which is no whole number from 0 to 16777216",
		},
	} {
		m, err := ParseConfig([]byte(c.config))
		var refusal *ConfigError
		if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.says) || !slices.Equal(refusal.Missing, c.missing) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	for _, text := range []string{"", "null", "[]", "{", `"a"`, `{"model_type":NaN`, strings.Repeat(" ", MaxConfigBytes+1)} {
		var refusal *ConfigError
		if _, err := ParseConfig([]byte(text)); err == nil || errors.As(err, &refusal) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// A hostile text of 64 KiB allocates less than 1 MiB, whatever it repeats.
func TestParseConfigMemory(t *testing.T) {
	for _, c := range []struct{ start, repeat, end string }{
		{`{"layer_types":[`, `"",`, `""]}`},
		{`{"no_rope_layers":[`, `0,`, `0]}`},
		{`{`, `"architectures":["a"],`, `"x":0}`},
		{`{`, `"text_config":{},"text_config":null,`, `"x":0}`},
		{`{"model_type":"`, `\u0041`, `"}`},
		{`{`, `"use_sliding_window":true,"use_sliding_window":null,`, `"x":0}`},
		{`{"x":`, `[`, ``},
		{`{"x":Infinity,`, `"layer_types":["full_attention"],`, `"y":0}`},
		{`{`, `"num_experts":1.5,`, `"x":0}`},
		{`{"model_type":"nemotron_h","hybrid_override_pattern":"`, `M`, `"}`},
	} {
		boundedConfig(t, filled(c.start, c.repeat, c.end))
	}
}

// filled repeats a piece until the text has about 64 KiB.
func filled(start, repeat, end string) []byte {
	return []byte(start + strings.Repeat(repeat, (64<<10-len(start)-len(end))/len(repeat)) + end)
}

// boundedConfig holds that reading a text of at most 64 KiB allocates less than 1 MiB.
func boundedConfig(t *testing.T, text []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _ = ParseConfig(text)
	runtime.ReadMemStats(&after)
	if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 1<<20 {
		t.Errorf("%.200s: %d bytes for a text of %d", text, bytes, len(text))
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, b := range configs(f) {
		f.Add(b)
	}
	f.Add([]byte(`{"model_type":"nemotron_h","time_step_limit":[0.0, Infinity]}`))
	f.Add([]byte("{\"" + strings.Repeat("\xd1", 6900) + "\":0}")) // Each such byte would become three.
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(b); n > 2 && n <= 64<<10 {
			boundedConfig(t, b)
			boundedConfig(t, filled("{", string(b[1:n-1])+",", `"x":0}`)) // The same fields again and again.
		}
		m, err := ParseConfig(b)
		if err != nil {
			return
		}
		if err := m.Validate(); err != nil {
			t.Fatalf("%s: accepted %+v: %v", b, m, err)
		}
		if _, ok := m.Geometry(); ok != (m.Beyond() == "") {
			t.Fatalf("%s: a geometry, and beyond it: %s", b, m.Beyond())
		}
		for _, tp := range []int{1, 2, 8} {
			c := Cache{Layout: Layout{TP: tp}, MaxLength: 4096, OwnDrafts: true}
			if p, err := m.Pool(c); err == nil && (p.BlockBytes < 1 || p.RequestBlocks(4096) < 1) {
				t.Fatalf("%s: the pool %+v", b, p)
			}
		}
	})
}
