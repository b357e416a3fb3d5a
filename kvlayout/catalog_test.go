package kvlayout

import (
	"strings"
	"testing"
)

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		model string
		want  Geometry
	}{
		{"deepseek-ai/DeepSeek-R1", Geometry{"deepseek-ai/DeepSeek-R1", MLA, 61, 128, 1, 576, true}},
		{"DEEPSEEK-AI/deepseek-r1-0528", Geometry{"deepseek-ai/DeepSeek-R1-0528", MLA, 61, 128, 1, 576, true}},
		{"deepseek-ai/DeepSeek-V3-0324", Geometry{"deepseek-ai/DeepSeek-V3-0324", MLA, 61, 128, 1, 576, true}},
		{"deepseek-ai/DeepSeek-V2-Lite-Chat", Geometry{"deepseek-ai/DeepSeek-V2-Lite-Chat", MLA, 27, 16, 1, 576, true}},
		{"moonshotai/Kimi-K2-Instruct-0905", Geometry{"moonshotai/Kimi-K2-Instruct-0905", MLA, 61, 64, 1, 576, true}},
		{"meta-llama/Llama-3.3-70B-Instruct", Geometry{"meta-llama/Llama-3.3-70B-Instruct", GQA, 80, 64, 8, 128, false}},
		{"Qwen/Qwen3-32B", Geometry{"Qwen/Qwen3-32B", GQA, 64, 64, 8, 128, false}},
		{"Qwen/Qwen3-235B-A22B-Thinking-2507", Geometry{"Qwen/Qwen3-235B-A22B-Thinking-2507", GQA, 94, 64, 4, 128, true}},
	} {
		if got, ok := Lookup(c.model); !ok || got != c.want {
			t.Errorf("%s: %+v, want %+v", c.model, got, c.want)
		}
	}
	for _, unknown := range []string{"", "R1", "deepseek-ai/DeepSeek-V3.2", "/models/DeepSeek-V3.2", "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B"} {
		if g, ok := Lookup(unknown); ok {
			t.Errorf("%q is taken for %s", unknown, g.Model)
		}
	}
}

func TestCatalogIsConsistent(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range geometries() {
		if name := strings.ToLower(g.Model); seen[name] {
			t.Errorf("%s is in the catalog twice", g.Model)
		} else {
			seen[name] = true
		}
		if back, ok := Lookup(g.Model); !ok || back != g {
			t.Errorf("%s: looked up as %+v, listed as %+v", g.Model, back, g)
		}
		if g.Layers < 1 || g.AttentionHeads%g.KVHeads != 0 || g.HeadValues < 1 || (g.Kind == MLA) != (g.KVHeads == 1) {
			t.Errorf("%+v cannot be", g)
		}
	}
}
