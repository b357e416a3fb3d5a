package kvlayout

import (
	"fmt"
	"testing"
)

// One prompt of 1,000 tokens of DeepSeek-R1: 61 layers to 4 DCP ranks.
func BenchmarkWritePlan(b *testing.B) {
	r1, _ := Lookup("deepseek-ai/DeepSeek-R1")
	for _, interleave := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("R1/interleave=%d", interleave), func(b *testing.B) {
			p, d := Layout{TP: 4, DCP: 1}, Layout{TP: 4, DCP: 4, Interleave: interleave}
			var specs []WriteSpec
			for rank := range d.TP {
				specs = append(specs, pairSpec(r1, p, d, Writers(r1, p, d, rank)[0], rank, 64, 1000))
			}
			var copies []Copy
			b.ReportAllocs()
			for b.Loop() {
				copies = copies[:0]
				for range r1.Layers {
					for _, s := range specs {
						var err error
						if copies, err = WritePlan(copies, s); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			b.ReportMetric(float64(len(copies)), "copies")
		})
	}
}

func BenchmarkWritten(b *testing.B) {
	r1, _ := Lookup("deepseek-ai/DeepSeek-R1")
	for b.Loop() {
		Written(r1, BF16, Layout{TP: 8}, Layout{TP: 8, DCP: 8, Interleave: 64}, 64, 100_000)
	}
}

func BenchmarkCompatible(b *testing.B) {
	p := seedPair()
	b.ReportAllocs()
	for b.Loop() {
		Compatible(p)
	}
}

func BenchmarkLookup(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Lookup("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8")
	}
}

func BenchmarkParseConfig(b *testing.B) {
	all := configs(b)
	for _, name := range []string{"deepseek-ai/DeepSeek-R1", "moonshotai/Kimi-K3"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseConfig(all[name]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What advise does for one layout, of the model with the most groups.
func BenchmarkCapacity(b *testing.B) {
	m := mustModel(b, "google/gemma-3-27b-it")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Capacity(Cache{Layout: Layout{TP: 2}, MaxLength: 131072, InFlight: 16384}, 100<<30); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkModelWritten(b *testing.B) {
	m := mustModel(b, "moonshotai/Kimi-K3")
	b.ReportAllocs()
	for b.Loop() {
		m.Written(Transfer{Prefill: Layout{TP: 8}, Decode: Layout{TP: 8, DCP: 8, Interleave: 64}, BlockTokens: 2048, Tokens: 100_000})
	}
}
