package kvlayout

import (
	"math"
	"testing"
)

func TestBytes(t *testing.T) {
	r1, _ := Lookup("deepseek-ai/DeepSeek-R1")
	llama, _ := Lookup("meta-llama/Llama-3.3-70B-Instruct")
	for _, c := range []struct {
		name      string
		got, want int64
	}{
		{"R1 row", RowBytes(r1, BF16), 1152},
		{"R1 row, fp8", RowBytes(r1, FP8), 576},
		{"R1 block", BlockBytes(r1, Auto, Layout{TP: 4}, 64), 73728},
		{"R1 token", TokenBytes(r1, BF16, Layout{TP: 8, DCP: 8}), 61 * 1152},
		// 101,713,379,328 bytes of KV memory are 22,616 blocks (a public figure).
		{"R1 blocks in a GPU's KV memory", 101_713_379_328 / (64 * TokenBytes(r1, BF16, Layout{TP: 4})), 22_616},
		{"Llama row", RowBytes(llama, BF16), 512},
		{"Llama block at tp 4", BlockBytes(llama, BF16, Layout{TP: 4}, 16), 2 * 512 * 16},
		{"Llama token at tp 16", TokenBytes(llama, BF16, Layout{TP: 16}), 80 * 512},
		{"unknown type", RowBytes(r1, "INT4"), 0},
		{"saturates", BlockBytes(r1, BF16, Layout{}, math.MaxInt), math.MaxInt64},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, c.got, c.want)
		}
	}
}

func TestRegionValidate(t *testing.T) {
	base := Region{BlockStride: 64, Blocks: 4, BlockTokens: 2, Heads: HeadRange{0, 4}, HeadStride: 16, TokenStride: 8, RowBytes: 8}
	change := func(f func(r *Region)) Region {
		r := base
		f(&r)
		return r
	}
	for _, c := range []struct {
		name   string
		region Region
		end    int64 // 0: refused
	}{
		{"head-major", base, 256},
		{"offset", change(func(r *Region) { r.Offset = 100 }), 356},
		{"token-major", change(func(r *Region) { r.HeadStride, r.TokenStride = 8, 32 }), 256},
		{"heads outermost", change(func(r *Region) { r.BlockStride, r.HeadStride = 16, 64 }), 256},
		{"padded", change(func(r *Region) { r.BlockStride = 100 }), 364},
		{"one head needs no head stride", change(func(r *Region) { r.Heads.Count, r.HeadStride = 1, 0 }), 208},
		{"one block needs no block stride", change(func(r *Region) { r.Blocks, r.BlockStride = 1, -7 }), 64},
		{"no blocks", change(func(r *Region) { r.Blocks, r.Offset = 0, 5 }), 5},
		{"blocks overlap", change(func(r *Region) { r.BlockStride = 63 }), 0},
		{"heads overlap", change(func(r *Region) { r.HeadStride = 12 }), 0},
		{"rows overlap", change(func(r *Region) { r.TokenStride = 4 }), 0},
		{"no stride", change(func(r *Region) { r.TokenStride = 0 }), 0},
		{"negative stride", change(func(r *Region) { r.BlockStride = -64 }), 0},
		{"negative offset", change(func(r *Region) { r.Offset = -1 }), 0},
		{"no heads", change(func(r *Region) { r.Heads.Count = 0 }), 0},
		{"no tokens", change(func(r *Region) { r.BlockTokens = 0 }), 0},
		{"no bytes", change(func(r *Region) { r.RowBytes = 0 }), 0},
		{"negative blocks", change(func(r *Region) { r.Blocks = -1 }), 0},
		{"past the address range", change(func(r *Region) { r.BlockStride = math.MaxInt64 / 3 }), 0},
		{"offset past the address range", change(func(r *Region) { r.Offset = math.MaxInt64 - 10 }), 0},
	} {
		err := c.region.Validate()
		if (err == nil) != (c.end > 0) {
			t.Errorf("%s: error %v", c.name, err)
		}
		if err == nil && c.region.End() != c.end {
			t.Errorf("%s: ends at %d, want %d", c.name, c.region.End(), c.end)
		}
	}
}

func TestSaturation(t *testing.T) {
	for _, c := range []struct{ got, want int64 }{
		{mulSat(3, 4, 5), 60},
		{mulSat(math.MaxInt64, 2), math.MaxInt64},
		{mulSat(math.MaxInt64, 2, 0), 0},
		{mulSat(-1, 5), 0},
		{addSat(math.MaxInt64, 1), math.MaxInt64},
		{addSat(1, 2), 3},
	} {
		if c.got != c.want {
			t.Errorf("got %d, want %d", c.got, c.want)
		}
	}
}
