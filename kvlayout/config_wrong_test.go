package kvlayout

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A number that is none, or below 0, is not taken for one that is left out.
func TestParseConfigRefusesWrongFields(t *testing.T) {
	for field, values := range map[string][]string{
		"num_key_value_heads":                          {`"8"`, `8.5`, `true`, `[]`, `{}`, `-1`, `-0.5`, `9223372036854775808`, `1e400`},
		"head_dim":                                     {`"64"`, `-1`},
		"sliding_window":                               {`"1024"`, `-5`},
		"num_local_experts":                            {`"8"`, `2147483648`, `[8]`},
		"kv_lora_rank":                                 {`9223372036854775807`},
		"max_position_embeddings":                      {`-1`, `"long"`},
		"num_nextn_predict_layers":                     {`"1"`},
		"linear_attn_config.num_heads":                 {`"4"`},
		"quantization_config.kv_cache_scheme.num_bits": {`"8"`},
		"use_sliding_window":                           {`"yes"`, `1`},
		"attention_k_eq_v":                             {`1`},
		"no_rope_layers":                               {`"1111"`, `[true]`},
	} {
		for _, value := range values {
			parts := strings.Split(field, ".")
			written := value
			for _, part := range slices.Backward(parts) {
				written = fmt.Sprintf(`{"%s":%s}`, part, written)
			}
			config := `{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32,` + written[1:]
			_, err := ParseConfig([]byte(config))
			var refusal *ConfigError
			if !errors.As(err, &refusal) || !slices.Equal(refusal.Missing, []string{field}) || !strings.Contains(err.Error(), "its "+field+" is ") {
				t.Errorf("%s: %v", config, err)
			} else if list := strings.Contains(err.Error(), "is no list"); !list && !strings.Contains(err.Error(), value) {
				t.Errorf("%s: the value is not told: %v", config, err)
			}
		}
	}
	// Nor is what stands for it elsewhere told as known.
	for field, says := range map[string]string{"num_key_value_heads": "kvHeads: ?", "head_dim": "headValues: ?"} {
		_, err := ParseConfig([]byte(`{"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32,"` + field + `":"8"}`))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", field, err)
		}
	}
	// What cannot be read is quoted in part, on one line.
	_, err := ParseConfig([]byte(`{"model_type":"llama","num_experts":"` + strings.Repeat("x\u0085\u2028", 100) + `"}`))
	if err == nil || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\u0085\u2028") {
		t.Errorf("%q", err)
	}
}

// Without model_type the architecture says the family.
func TestParseConfigByArchitecture(t *testing.T) {
	const llama = `"num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32`
	m, err := ParseConfig([]byte(`{"architectures":["LlamaForCausalLM"],` + llama + `}`))
	if err != nil || m.Architecture != "LlamaForCausalLM" || m.Groups[0].Attention != headSharded(4, 8, 0) {
		t.Errorf("%+v, %v", m, err)
	}
	for name, b := range configs(t) {
		want, err := ParseConfig(b)
		if err != nil || !strings.HasSuffix(want.Architecture, "ForCausalLM") {
			continue // The language model of others is nested, and says its type.
		}
		var config map[string]any
		if err := json.Unmarshal(withoutPythonNumbers(b), &config); err != nil {
			t.Fatal(err)
		}
		delete(config, "model_type")
		b, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ParseConfig(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// What the config calls itself is told on one line, and what is not known with a name
// like it.
func TestParseConfigNames(t *testing.T) {
	const llama = `"num_hidden_layers":2,"num_attention_heads":4,"hidden_size":32`
	m, err := ParseConfig([]byte(`{"architectures":["Llama\nevil: 1\u2028` + strings.Repeat("A", 1<<20) + `"],"model_type":"llama",` + llama + `}`))
	if err != nil || len(m.Architecture) > 110 || !strings.HasPrefix(m.Architecture, "Llama evil: 1 AAA") {
		t.Errorf("%.200q, %v", m.Architecture, err)
	}
	for config, says := range map[string]string{
		`{"architectures":["DeepseekV4ForCausalLM"]}`:                             "compress_ratios",
		`{"architectures":["AcmeForCausalLM"]}`:                                   `model_type "" is not known, and`,
		`{"architectures":["ForCausalLM"]}`:                                       `model_type "" is not known, and`,
		`{"architectures":["Llama"]}`:                                             `model_type "" is not known, and`,
		`{"architectures":["AcmeForCausalLM"],"model_type":"lama",` + llama + `}`: `model_type "lama" is not known (did you mean "llama"?), and`,
		`{"model_type":"qwen_3"}`:                                                 `did you mean "qwen3"?`,
		`{"model_type":"deepseek-v3"}`:                                            `did you mean "deepseek_v3"?`,
		`{"model_type":"acme"}`:                                                   `model_type "acme" is not known, and`,
		`{"model_type":"` + strings.Repeat("a", 1<<20) + `"}`:                     `aaa..." is not known, and`,
	} {
		if _, err := ParseConfig([]byte(config)); err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 500 {
			t.Errorf("%.80s: %.600v", config, err)
		}
	}
}

// Where the JSON breaks off is told by its byte, from which the line follows.
func TestParseConfigTellsWhereItBreaksOff(t *testing.T) {
	for text, offset := range map[string]int64{
		"{\n  \"a\": 1,\n  b\n}":          15,
		"{\"x\": Infinity,\n  \"a\" 1\n}": 23,
	} {
		_, err := ParseConfig([]byte(text))
		var wrong *json.SyntaxError
		if !errors.As(err, &wrong) || wrong.Offset != offset {
			t.Errorf("%q: %v at %d, want %d", text, err, wrong.Offset, offset)
		}
	}
}
