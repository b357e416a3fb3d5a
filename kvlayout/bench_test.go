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
