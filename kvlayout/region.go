package kvlayout

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// RowBytes is the size in bytes of one token of one head: all planes, packed. It
// is 0 for an unknown type.
func RowBytes(g Geometry, t KVType) int64 {
	return mulSat(int64(g.Planes()), int64(g.HeadValues), int64(t.Bytes()))
}

// BlockBytes is the size in bytes of one block of blockTokens tokens of one layer
// on one rank.
func BlockBytes(g Geometry, t KVType, l Layout, blockTokens int) int64 {
	return mulSat(RowBytes(g, t), int64(headsPerRank(g, l)), int64(blockTokens))
}

// TokenBytes is what one token costs in bytes on a rank that holds it, over all
// layers. With DCP a rank holds only its share of the tokens; the figure is not
// divided by DCP.
func TokenBytes(g Geometry, t KVType, l Layout) int64 {
	return mulSat(RowBytes(g, t), int64(headsPerRank(g, l)), int64(g.Layers))
}

// headsPerRank is the number of KV heads that a rank makes room for.
func headsPerRank(g Geometry, l Layout) int {
	tp := l.Defaulted().TP
	if g.Kind == MLA || tp < 1 {
		return 1
	}
	return ceilDiv(g.KVHeads, tp)
}

// dim is one loop of a strided nest: count steps of src bytes at the source and
// dst bytes at the target.
type dim struct {
	count    int64
	src, dst int64
}

// Validate returns an error unless every row of the region has its own bytes and
// all of them lie at offsets from 0 to the largest int64. Blocks, heads and tokens
// may nest in any order (block-major or head-major, token-major inside), with
// gaps; strides of a dimension with one element are not looked at.
func (r Region) Validate() error {
	switch {
	case r.Offset < 0:
		return fmt.Errorf("layer %d: offset %d is negative", r.Layer, r.Offset)
	case r.Blocks < 0 || r.BlockTokens < 1:
		return fmt.Errorf("layer %d: %d blocks of %d tokens", r.Layer, r.Blocks, r.BlockTokens)
	case r.Heads.First < 0 || r.Heads.Count < 1:
		return fmt.Errorf("layer %d: heads from %d, %d of them", r.Layer, r.Heads.First, r.Heads.Count)
	case r.RowBytes < 1:
		return fmt.Errorf("layer %d: rows of %d bytes", r.Layer, r.RowBytes)
	}
	extent, err := r.nesting()
	if err != nil {
		return err
	}
	if addSat(r.Offset, extent) == math.MaxInt64 {
		return fmt.Errorf("layer %d: %d blocks of stride %d from offset %d exceed the address range", r.Layer, r.Blocks, r.BlockStride, r.Offset)
	}
	return nil
}

// nesting returns the bytes from the first row to the end of the last, or an error
// if, from the smallest stride outwards, a stride does not clear what lies inside.
func (r Region) nesting() (extent int64, err error) {
	dims := r.dims()
	slices.SortFunc(dims[:], func(a, b dim) int { return cmp.Compare(a.src, b.src) })
	extent = r.RowBytes
	for _, d := range dims {
		if d.count <= 1 {
			continue
		}
		if d.src < extent {
			return 0, fmt.Errorf("layer %d: a stride of %d bytes is shorter than the %d bytes it steps over", r.Layer, d.src, extent)
		}
		extent = addSat(mulSat(d.count-1, d.src), extent)
	}
	return extent, nil
}

// End is the offset after the last byte of the region, Offset if it has no block.
// It is the largest int64 where it would exceed that. The region has to be valid.
func (r Region) End() int64 {
	if r.Blocks < 1 {
		return r.Offset
	}
	end := addSat(r.Offset, r.RowBytes)
	for _, d := range r.dims() {
		if d.count > 1 {
			end = addSat(end, mulSat(d.count-1, d.src))
		}
	}
	return end
}

func (r Region) dims() [3]dim {
	return [3]dim{
		{count: int64(r.BlockTokens), src: r.TokenStride},
		{count: int64(r.Heads.Count), src: r.HeadStride},
		{count: int64(r.Blocks), src: r.BlockStride},
	}
}

// row is the offset of the first byte of (block id, global head, slot), which have
// to be inside the region.
func (r Region) row(block int32, head, slot int) int64 {
	return r.Offset + int64(block)*r.BlockStride + int64(head-r.Heads.First)*r.HeadStride + int64(slot)*r.TokenStride
}

// mulSat multiplies numbers that are not negative and stops at the largest int64.
// A negative factor gives 0.
func mulSat(factors ...int64) int64 {
	product := int64(1)
	for _, f := range factors {
		if f <= 0 {
			return 0
		}
		hi, lo := bits.Mul64(uint64(product), uint64(f))
		if hi != 0 || lo > math.MaxInt64 {
			// A later factor of 0 still gives 0, so go on.
			lo = math.MaxInt64
		}
		product = int64(lo)
	}
	return product
}

// addSat adds numbers that are not negative and stops at the largest int64.
func addSat(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
