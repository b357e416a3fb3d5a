package engine_test

import (
	"testing"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

func TestSupports(t *testing.T) {
	for _, tc := range []struct {
		kind    kvlayout.Engine
		feature engine.Feature
		version string
		want    engine.Support
	}{
		{kvlayout.VLLM, engine.ReadModeFromEnv, "0.22.0", engine.Has},
		{kvlayout.VLLM, engine.ReadModeFromEnv, "0.23.0", engine.Lacks},
		{kvlayout.VLLM, engine.ReadModeFromEnv, "", engine.Unknown},
		{kvlayout.VLLM, engine.ReadModeFromEnv, "latest", engine.Unknown},
		{kvlayout.SGLang, engine.ReadModeFromEnv, "0.22.0", engine.Unknown},
		{kvlayout.SGLang, engine.AttentionDPSize, "v0.5.22", engine.Has},
		{kvlayout.SGLang, engine.AttentionDPSize, "0.5.22rc1", engine.Unknown},
		{kvlayout.SGLang, engine.AttentionDPSize, "0.5.22+rocm72", engine.Has},
		{kvlayout.SGLang, engine.AttentionDPSize, "0.5.21.1", engine.Unknown}, // nobody looked
		{kvlayout.SGLang, engine.AttentionDPSize, "0.5.21", engine.Lacks},
		{kvlayout.SGLang, engine.MoriDCP, "0.5.21", engine.Lacks},
		{kvlayout.SGLang, engine.MoriDCP, "0.5.22", engine.Has},
		{kvlayout.SGLang, engine.MoriDCP, "0.5.13.post1", engine.Lacks},
		{kvlayout.SGLang, engine.DecodeCacheDCP, "0.5.21.post1", engine.Has},
	} {
		if got := engine.Supports(tc.kind, tc.version, tc.feature); got != tc.want {
			t.Errorf("%s %s, %s: %d, want %d", tc.kind, tc.version, tc.feature, got, tc.want)
		}
	}
}

func TestFacts(t *testing.T) {
	seen := map[engine.Feature]bool{}
	for _, f := range engine.Facts() {
		if seen[f.Feature] || f.Source == "" || f.Since == "" && f.Without == "" && f.Until == "" {
			t.Errorf("fact %+v", f)
		}
		seen[f.Feature] = true
		for _, v := range []string{f.Since, f.Without, f.Until} {
			if v != "" && engine.Supports(f.Engine, v, f.Feature) == engine.Unknown {
				t.Errorf("%s: nothing follows for %s", f.Feature, v)
			}
		}
	}
}
