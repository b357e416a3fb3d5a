package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestAdviseVariesPrefill holds that the layout of prefill stays where it is none of the
// question, and that others are tried where it is what nothing fits, or what has no room.
func TestAdviseVariesPrefill(t *testing.T) {
	seed, err := os.ReadFile("testdata/seed.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const load, prefill, r1, qwen = "in=8192,out=4096,concurrency=256", "prefill: {layout: {tp: 4}}", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-30B-A3B"
	if !strings.Contains(string(seed), prefill) {
		t.Fatal("the seed has another prefill layout")
	}
	for _, c := range []struct {
		name, model, layout string
		memory              []string
		said, first         string
	}{
		{"kept", r1, "{tp: 4}", []string{"--blocks", "22616"}, "\nprefill stays TP4: what decode holds", "TP4 -> "},
		{"refused with all", qwen, "{tp: 3, dp: 2}", []string{"--kv-memory", "90Gi"}, "\nprefill varies too, as with TP3 DP2 every decode layout is refused", "TP1 DP6 -> TP4"},
		{"refused with all, and no other", r1, "{tp: 12}", []string{"--blocks", "22616"}, "\nwith TP12 every decode layout is refused, and no other prefill layout on its GPUs does better", ""},
		{"no room for a prompt", qwen, "{tp: 1, dp: 4}", []string{"--kv-memory", "700Mi"}, "\nprefill varies too, as TP1 DP4 holds 7,424 tokens of KV cache in a data parallel rank and a prompt of the load has 8,192", "TP4 -> "},
		{"no room for a prompt anywhere", r1, "{tp: 4}", []string{"--blocks", "100"}, "\nTP4 holds 6,400 tokens of KV cache and a prompt of the load has 8,192, and no other", "TP4 -> "},
		{"no room for the weights", r1, "{tp: 2, dp: 2}", []string{"--blocks", "22616"}, "\nprefill varies too, as with TP2 DP2 the weights alone take 335 GB of a GPU", "TP4 -> "},
	} {
		pool := strings.Replace(strings.Replace(string(seed), prefill, "prefill: {layout: "+c.layout+"}", 1), r1, c.model, 1)
		pool = strings.Replace(pool, "65536", "16384", 1)
		args := append([]string{"advise", "-f", "-", "--load", load}, c.memory...)
		text, asJSON := run(t, pool, args...), run(t, pool, append(args, "-o", "json")...)
		var a Advice
		if err := json.Unmarshal([]byte(asJSON.out), &a); err != nil {
			t.Errorf("%s: %v: %s", c.name, err, asJSON.out)
			continue
		}
		first := ""
		if len(a.Candidates) > 0 {
			first = a.Candidates[0].Layout
		}
		if text.code != 0 || !strings.Contains(text.out, c.said) || !strings.HasPrefix(first, c.first) {
			t.Errorf("%s: exit status %d: %v: %s", c.name, text.code, text.err, text.out)
		}
	}
}
