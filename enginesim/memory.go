package enginesim

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// rank is the KV memory of one GPU: [layer][block] and inside a block
// [head][token] (vLLM's LBHNC) or [token][head] (LBNHC), each a row with all
// planes packed. Strides are in words.
type rank struct {
	tp, dcp          int
	headFirst, heads int
	rowWords, block  int // block: tokens per block
	blocks, layers   int
	tokenMajor       bool
	headStride       int
	tokenStride      int
	blockStride      int
	layerStride      int

	file  *os.File
	bytes []byte
	words []uint64 // the same memory
}

// shapeRank computes a rank's strides for a number of blocks; it has no memory yet.
func shapeRank(g Geometry, l Layout, tp, blocks int) *rank {
	r := &rank{tp: tp, dcp: l.dcpRank(tp), rowWords: g.rowWords(), block: l.Block, blocks: blocks, layers: g.Layers, tokenMajor: l.TokenMajor}
	r.headFirst, r.heads = l.headsOf(g, tp)
	r.headStride, r.tokenStride = r.rowWords*l.Block, r.rowWords
	if l.TokenMajor {
		r.headStride, r.tokenStride = r.rowWords, r.rowWords*r.heads
	}
	r.blockStride = r.rowWords * r.heads * l.Block
	r.layerStride = r.blockStride * blocks
	return r
}

// size is the bytes that the rank needs.
func (r *rank) size() int64 { return int64(r.layerStride) * int64(r.layers) * wordBytes }

// blockBytes is what one block costs on a rank, over all layers.
func blockBytes(g Geometry, l Layout) int64 {
	_, heads := l.headsOf(g, 0)
	return int64(g.rowWords()) * int64(heads) * int64(l.Block) * int64(g.Layers) * wordBytes
}

// allocate makes the rank's memory.
func (r *rank) allocate(name string) error {
	f, b, err := memory.CreateSealed(name, r.size())
	if err != nil {
		return fmt.Errorf("KV memory of rank %d: %w", r.tp, err)
	}
	r.file, r.bytes = f, b
	// A mapping begins on a page, so that every word is aligned.
	r.words = unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), len(b)/wordBytes)
	return nil
}

func (r *rank) free() error {
	if r.file == nil {
		return nil
	}
	b, f := r.bytes, r.file
	r.bytes, r.words, r.file = nil, nil, nil
	return errors.Join(memory.Unmap(b), f.Close())
}

// row is the memory of (layer, block, global head, slot).
func (r *rank) row(layer int, block int32, head, slot int) []uint64 {
	at := layer*r.layerStride + int(block)*r.blockStride + (head-r.headFirst)*r.headStride + slot*r.tokenStride
	return r.words[at : at+r.rowWords : at+r.rowWords]
}

// layerBlock is all rows of a block in one layer.
func (r *rank) layerBlock(layer int, block int32) []uint64 {
	at := layer*r.layerStride + int(block)*r.blockStride
	return r.words[at : at+r.blockStride]
}

// regions tells the agent where each layer lies.
func (r *rank) regions() []kvproto.Region {
	out := make([]kvproto.Region, r.layers)
	for layer := range out {
		out[layer] = kvproto.Region{
			Name: fmt.Sprintf("model.layers.%d.self_attn.attn", layer), Layer: layer,
			Offset: int64(layer) * int64(r.layerStride) * wordBytes, BlockStride: int64(r.blockStride) * wordBytes,
			Blocks: r.blocks, BlockTokens: r.block, HeadFirst: r.headFirst, HeadCount: r.heads,
			HeadStride: int64(r.headStride) * wordBytes, TokenStride: int64(r.tokenStride) * wordBytes,
			RowBytes: int64(r.rowWords) * wordBytes,
		}
	}
	return out
}

// poison fills a block with a word of its own.
func (r *rank) poison(block int32, word uint64) {
	word = r.poisonWord(word)
	for layer := range r.layers {
		words := r.layerBlock(layer, block)
		for i := range words {
			words[i] = word
		}
	}
}

// poisonWord is what a block's pattern is on this rank.
func (r *rank) poisonWord(pattern uint64) uint64 {
	return mix(pattern+uint64(r.tp)*golden) | poisonBit
}

// checkPoison finds the first row of a block that is not as poison left it.
func (r *rank) checkPoison(block int32, pattern uint64, checked *atomic.Int64) error {
	word := r.poisonWord(pattern)
	for layer := range r.layers {
		if i := differs(r.layerBlock(layer, block), word); i >= 0 {
			head, slot := r.locate(i)
			return fmt.Errorf("rank %d, layer %d, block %d: the row of head %d, slot %d", r.tp, layer, block, head, slot)
		}
	}
	checked.Add(int64(r.layers) * int64(r.blockStride) * wordBytes)
	return nil
}

// locate tells head and slot of a word inside a block.
func (r *rank) locate(word int) (head, slot int) {
	if !r.tokenMajor {
		return r.headFirst + word/r.headStride, word % r.headStride / r.tokenStride
	}
	return r.headFirst + word%r.tokenStride/r.headStride, word / r.tokenStride
}

// differs is the index of the first word that is not the given one, or -1.
func differs(words []uint64, word uint64) int {
	const stride = 64
	for at := 0; at < len(words); at += stride {
		var wrong uint64
		part := words[at:min(at+stride, len(words))]
		for _, w := range part {
			wrong |= w ^ word
		}
		if wrong == 0 {
			continue
		}
		for i, w := range part {
			if w != word {
				return at + i
			}
		}
	}
	return -1
}
