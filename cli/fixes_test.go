package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/kvlayout/conformance"
)

func TestFixesSpeakOfFlags(t *testing.T) {
	c := commandPair{pair: kvlayout.Pair{Engine: kvlayout.VLLM}}
	for fix, want := range map[string]string{
		"set decode.layout.dcp to 1":                                                 "give decode --decode-context-parallel-size 1",
		"set transfer.mover to Agent, or decode.layout.tp to 4":                      "give --mover Agent, or decode --tensor-parallel-size 4",
		"set prefill.blockSize and decode.blockSize to 128":                          "give both sides --block-size 128",
		"set decode.kvCacheType to BF16":                                             "give decode --kv-cache-dtype bfloat16",
		"set decode.kvCacheType to FP8":                                              "give decode --kv-cache-dtype fp8",
		"set transfer.mode to Write":                                                 "set read_mode to false in --kv-transfer-config",
		"set decode.layout.tp to 4, or transfer.mode to Write":                       "give decode --tensor-parallel-size 4, or read_mode to false in --kv-transfer-config",
		"set engine.version to the release in the image, or transfer.mover to Agent": "give --engine-version with the release in the image, or --mover Agent",
		"set decode.layout.dp to 1 and multiply decode.replicas by 2":                "give decode --data-parallel-size 1 and start 2 times as many decode instances",
		"raise decode.replicas to 3":                                                 "start 3 decode instances",
		"use an engine.image of vLLM 0.33.0 or later":                                "use vLLM 0.33.0 or later",
		"set decode.layout.tp to a number from 1 to 1024":                            "give decode --tensor-parallel-size a number from 1 to 1024",
		"name the model once, in model.name":                                         "give both command lines one model",
		"remove --attn-cp-size on decode":                                            "",
	} {
		if got := c.inFlags(fix); got != want {
			t.Errorf("%s:\n  %q, want\n  %q", fix, got, want)
		}
	}
}

func TestFixesSpeakSGLang(t *testing.T) {
	c := commandPair{pair: kvlayout.Pair{Engine: kvlayout.SGLang}}
	for fix, want := range map[string]string{
		"set decode.layout.tp to 4":       "give decode --tp-size 4",
		"set decode.kvCacheType to FP8":   "give decode --kv-cache-dtype fp8_e4m3",
		"set prefill.kvCacheType to Auto": "give prefill --kv-cache-dtype auto",
	} {
		if got := c.inFlags(fix); got != want {
			t.Errorf("%s:\n  %q, want\n  %q", fix, got, want)
		}
	}
}

// TestFixesOfTheCorpus holds that no fix of the corpus names a field where command lines
// are checked.
func TestFixesOfTheCorpus(t *testing.T) {
	entries, err := conformance.Load(os.DirFS("../kvlayout/testdata/conformance"))
	if err != nil {
		t.Fatal(err)
	}
	field := regexp.MustCompile(`\b(prefill|decode|engine|model|transfer|gpu)\.[a-zA-Z]+`)
	told := map[string]bool{}
	for _, e := range entries {
		if e.Pair == nil {
			continue
		}
		c := commandPair{pair: *e.Pair}
		for _, p := range kvlayout.Compatible(c.pair) {
			fix := c.inFlags(p.Fix)
			if fix == "" {
				fix = p.Fix
			}
			if m := field.FindString(fix); m != "" && !told[p.Rule+m] {
				told[p.Rule+m] = true
				t.Errorf("%s: %s\n  of %s", p.Rule, fix, strings.TrimSpace(p.Fix))
			}
		}
	}
}
