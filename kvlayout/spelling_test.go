package kvlayout

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"llama", "qwen3", "qwen3_moe", "gpt_oss"}
	for name, want := range map[string]string{
		"llama": "llama", "lama": "llama", "lalma": "llama", "llamas": "llama", "qwen3_meo": "qwen3_moe",
		"qwen4": "qwen3", "gptoss": "gpt_oss", "mamba": "", "": "", "a name that is longer than any that somebody would give to a model of theirs": "",
	} {
		if got := Nearest(name, names, 3); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if got := Nearest("lama", names, 1); got != "" {
		t.Errorf("within no change: %q", got)
	}
}
