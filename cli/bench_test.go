package cli

import (
	"os"
	"testing"

	"github.com/pdpool/pdpool/cli/manifest"
)

// BenchmarkCheck is check of one manifest in process, from its text to the verdict and
// the figures.
func BenchmarkCheck(b *testing.B) {
	for _, name := range []string{"r1", "refused"} {
		text, err := os.ReadFile("testdata/manifests/" + name + ".yaml")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if priced(manifest.Read("pool.yaml", text).Pools[0]).Admitted == (name == "refused") {
					b.Fatal("another verdict")
				}
			}
		})
	}
}

// BenchmarkPair is check of two command lines, from their text to the verdict.
func BenchmarkPair(b *testing.B) {
	f := commandFlags{prefill: "@testdata/r1.sh", decode: "@testdata/r1.sh", engine: "vLLM", version: "0.33.0"}
	for b.Loop() {
		pair, err := Options{}.readPair(f)
		if err != nil || pair.verdict().Admitted {
			b.Fatal("admitted", err)
		}
	}
}
