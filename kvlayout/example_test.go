package kvlayout_test

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

func ExampleCompatible() {
	r1, known := kvlayout.Lookup("deepseek-ai/DeepSeek-R1")
	pair := kvlayout.Pair{
		Engine: kvlayout.VLLM, Version: "0.33.0", Mover: kvlayout.MoverEngine, Geometry: r1, HasGeometry: known,
		Prefill: kvlayout.Side{Layout: kvlayout.Layout{TP: 4}, BlockSize: 64},
		Decode:  kvlayout.Side{Layout: kvlayout.Layout{TP: 4, DCP: 4, Interleave: 64}, BlockSize: 64},
	}
	for _, p := range kvlayout.Compatible(pair) {
		fmt.Println(p.Severity, p.Field, p.Fix)
	}
	pair.Mover = kvlayout.MoverAuto
	mover, _ := kvlayout.ResolveMover(pair)
	fmt.Println(mover, len(kvlayout.Compatible(pair)))
	// Output:
	// Refuse transfer.mover set transfer.mover to Agent, or decode.layout.dcp to 1
	// Agent 0
}

// Every decode rank gets the tokens that it holds: with interleave 2, source block
// 5 goes out in groups of two tokens, every second group to rank 1.
func ExampleWritePlan() {
	latent := kvlayout.Region{
		BlockStride: 8 * 1152, Blocks: 16, BlockTokens: 8, Heads: kvlayout.HeadRange{First: 0, Count: 1},
		TokenStride: 1152, RowBytes: 1152,
	}
	copies, err := kvlayout.WritePlan(nil, kvlayout.WriteSpec{
		Source: latent, Target: latent, SourceBlocks: []int32{5}, TargetBlocks: []int32{0}, SourceDCP: 1,
		Placement: kvlayout.Placement{DCP: 2, Interleave: 2, BlockTokens: 8}, TargetRank: 1,
		Tokens: 8, Heads: latent.Heads,
	})
	fmt.Printf("%+v %v\n", copies, err)
	// Output:
	// [{Src:48384 SrcStride:4608 Dst:0 DstStride:2304 Length:2304 Count:2}] <nil>
}
