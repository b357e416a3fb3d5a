package kvlayout

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// configFields are the fields of a Hugging Face config.json that the KV geometry
// depends on, in the many spellings of its families. What a field means is said
// where it is read.
type configFields struct {
	ModelType     string   `json:"model_type"`
	Architectures textList `json:"architectures"`

	Layers           number `json:"num_hidden_layers"`
	Heads            number `json:"num_attention_heads"`
	KVHeads          number `json:"num_key_value_heads"`
	HeadDim          number `json:"head_dim"`
	AttentionHeadDim number `json:"attention_head_dim"`
	Hidden           number `json:"hidden_size"`
	MaxLength        number `json:"max_position_embeddings"`
	ModelMax         number `json:"model_max_length"`

	KVLoraRank    number `json:"kv_lora_rank"`
	QKRopeHeadDim number `json:"qk_rope_head_dim"`

	IndexHeadDim    number `json:"index_head_dim"`
	IndexTopkFreq   number `json:"index_topk_freq"`
	IndexSkipOffset number `json:"index_skip_topk_offset"`
	IndexPattern    string `json:"index_topk_pattern"`

	LayerTypes           textList   `json:"layer_types"`
	LayersBlockType      textList   `json:"layers_block_type"`
	HybridPattern        string     `json:"hybrid_override_pattern"`
	HybridLayerPattern   numberList `json:"hybrid_layer_pattern"`
	AttnTypeList         numberList `json:"attn_type_list"`
	SlidingWindow        number     `json:"sliding_window"`
	SlidingWindowPattern number     `json:"sliding_window_pattern"`
	UseSlidingWindow     yesNo      `json:"use_sliding_window"`
	MaxWindowLayers      number     `json:"max_window_layers"`
	ChunkSize            number     `json:"attention_chunk_size"`
	GlobalHeadDim        number     `json:"global_head_dim"`
	GlobalKVHeads        number     `json:"num_global_key_value_heads"`
	KeyIsValue           yesNo      `json:"attention_k_eq_v"`
	NoRopeLayers         numberList `json:"no_rope_layers"`
	NoRopeInterval       number     `json:"no_rope_layer_interval"`
	FullInterval         number     `json:"full_attention_interval"`

	LinearAttn       linearFields `json:"linear_attn_config"`
	LinearConvKernel number       `json:"linear_conv_kernel_dim"`
	LinearKeyDim     number       `json:"linear_key_head_dim"`
	LinearValueDim   number       `json:"linear_value_head_dim"`
	LinearKeyHeads   number       `json:"linear_num_key_heads"`
	LinearValueHeads number       `json:"linear_num_value_heads"`
	MambaSSMType     string       `json:"mamba_ssm_dtype"`

	MambaHeads     number `json:"mamba_num_heads"`
	MambaHeadDim   number `json:"mamba_head_dim"`
	SSMStateSize   number `json:"ssm_state_size"`
	MambaGroups    number `json:"n_groups"`
	MambaConv      number `json:"conv_kernel"`
	MambaCacheType string `json:"mamba_ssm_cache_dtype"`
	GraniteHeads   number `json:"mamba_n_heads"`
	GraniteHeadDim number `json:"mamba_d_head"`
	GraniteState   number `json:"mamba_d_state"`
	GraniteGroups  number `json:"mamba_n_groups"`
	GraniteConv    number `json:"mamba_d_conv"`

	RoutedExperts number `json:"n_routed_experts"`
	Experts       number `json:"num_experts"`
	LocalExperts  number `json:"num_local_experts"`
	ErnieExperts  number `json:"moe_num_experts"`

	NextN      number `json:"num_nextn_predict_layers"`
	MTPModules number `json:"num_mtp_modules"`
	MTPLayers  number `json:"mtp_num_hidden_layers"`
	MTPPattern string `json:"mtp_hybrid_override_pattern"`
	MTPDepth   number `json:"mtp_transformer_layers"`
	SparseAttn sparse `json:"sparse_attention_config"`
	Quantized  quant  `json:"quantization_config"`
	KVShared   number `json:"num_kv_shared_layers"`
}

// configRoot is a whole config.json. Multimodal models nest the language model.
type configRoot struct {
	configFields

	Text     configFields `json:"text_config"`
	Language configFields `json:"language_config"`
	LLM      configFields `json:"llm_config"`
}

type linearFields struct {
	HeadDim   number     `json:"head_dim"`
	Heads     number     `json:"num_heads"`
	Conv      number     `json:"short_conv_kernel_size"`
	KDALayers numberList `json:"kda_layers"`
	Full      numberList `json:"full_attn_layers"`
}

type sparse struct {
	Use       yesNo      `json:"use_sparse_attention"`
	IndexDim  number     `json:"sparse_index_dim"`
	Frequency numberList `json:"sparse_attention_freq"`
}

type quant struct {
	Scheme scheme `json:"kv_cache_scheme"`
	Algo   string `json:"kv_cache_quant_algo"`
}

type scheme struct {
	Bits number `json:"num_bits"`
	Type string `json:"type"`
}

// number is a whole number of a config from 0 to maxModelNumber, or absent, as null
// is. What is neither is kept as it is written, for the error.
type number struct {
	value int
	given bool
	wrong string
}

// UnmarshalJSON never fails: what is no such number is wrong.
func (n *number) UnmarshalJSON(b []byte) error {
	*n = number{}
	const longest = 20
	if string(b) == "null" {
		return nil
	}
	if len(b) <= longest {
		v, err := strconv.ParseFloat(string(b), 64)
		if err == nil && v >= 0 && v <= maxModelNumber && v == float64(int(v)) {
			*n = number{value: int(v), given: true}
			return nil
		}
	}
	n.wrong = clipped(b, longestValue)
	return nil
}

// yesNo is true, false or absent, as null is; else wrong, as it is written.
type yesNo struct {
	set   bool
	wrong string
}

// UnmarshalJSON never fails.
func (f *yesNo) UnmarshalJSON(b []byte) error {
	*f = yesNo{set: string(b) == "true"}
	switch string(b) {
	case "true", "false", "null":
	default:
		f.wrong = clipped(b, longestValue)
	}
	return nil
}

// longestValue and longestName bound what is quoted of a config, in bytes.
const (
	longestValue = 40
	longestName  = 100
)

// clipped is a piece of a config on one line, with no more than most bytes of it.
func clipped[T string | []byte](b T, most int) string {
	text := string(b[:min(len(b), most)])
	if len(b) > most {
		text += "..."
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// or returns the number, or def if it is not given.
func (n number) or(def int) int {
	if !n.given {
		return def
	}
	return n.value
}

// wrong returns the first field that is set to what no config can mean, as its name
// and what is wrong with it; "" if there is none. Two fields count only where they are
// read, as families use them in other forms.
func (f configFields) wrong() (name, why string) {
	if f.ModelType != "gemma3_text" {
		f.SlidingWindowPattern.wrong = "" // Exaone's is text.
	}
	f.ModelMax.wrong = "" // Tokenizers say 1e30 for no limit.
	return wrongField(reflect.ValueOf(f), "")
}

func wrongField(fields reflect.Value, prefix string) (name, why string) {
	for i := range fields.NumField() {
		name := prefix + fields.Type().Field(i).Tag.Get("json")
		switch v := fields.Field(i).Interface().(type) {
		case number:
			if v.wrong != "" {
				return name, "is " + v.wrong + ", which is no whole number from 0 to " + strconv.Itoa(maxModelNumber)
			}
		case yesNo:
			if v.wrong != "" {
				return name, "is " + v.wrong + ", which is neither true nor false"
			}
		case numberList:
			if v.bad {
				return name, "is no list of at most " + strconv.Itoa(maxListed) + " whole numbers"
			}
		case linearFields, sparse, quant, scheme:
			if name, why := wrongField(fields.Field(i), name+"."); name != "" {
				return name, why
			}
		}
	}
	return "", ""
}

// maxListed bounds the per-layer lists, more than any model has layers.
const maxListed = 1024

// numberList and textList are per-layer lists; one that is longer than maxListed
// or holds something else is read as empty, with bad set.
type numberList struct {
	values []int
	bad    bool
}

type textList struct {
	values []string
	bad    bool
}

// UnmarshalJSON never fails.
func (l *numberList) UnmarshalJSON(b []byte) error {
	l.values, l.bad = listed[int](b)
	return nil
}

// UnmarshalJSON never fails.
func (l *textList) UnmarshalJSON(b []byte) error {
	l.values, l.bad = listed[string](b)
	return nil
}

// listed decodes a list of at most maxListed entries. It counts before it
// allocates: there are no more entries than commas and one.
func listed[T any](b []byte) (values []T, bad bool) {
	if string(b) == "null" {
		return nil, false
	}
	entries := bytes.Count(b, []byte{','}) + 1
	if b[0] != '[' || entries > maxListed {
		return nil, true
	}
	values = make([]T, 0, entries)
	if err := json.Unmarshal(b, &values); err != nil {
		return nil, true
	}
	return values, false
}
