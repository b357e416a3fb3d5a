package bench

import (
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// The memory of the KV of 1,024 tokens of DeepSeek-R1 (61 layers, MLA, bf16, blocks
// of 64 tokens): 71,958,528 bytes. Block numbers jump on both sides, so that no two
// pieces can be moved as one.
const (
	layers      = 61
	rowBytes    = 1152
	blockTokens = 64
	blockBytes  = blockTokens * rowBytes
	slots       = 32 // blocks of memory per layer where the memory is not split
)

// Pattern is what is moved: a list of copies for each target.
type Pattern struct {
	Name    string
	targets [][]kvlayout.Copy
	size    int64 // bytes of each target
}

// sourceSize is what every pattern reads from.
const sourceSize = layers * slots * blockBytes

// Patterns are whole (blocks to one rank), dcp64 (blocks dealt to four ranks) and
// dcp1 (token rows dealt to four ranks).
func Patterns() []Pattern {
	return []Pattern{
		{"whole", [][]kvlayout.Copy{wholeBlocks()}, sourceSize},
		{"dcp64", dealt(blockTokens), sourceSize / 4},
		{"dcp1", dealt(1), sourceSize / 4},
	}
}

// Named finds patterns by name; an unknown name is an error.
func Named(names ...string) ([]Pattern, error) {
	var out []Pattern
	for _, n := range names {
		found := false
		for _, p := range Patterns() {
			if p.Name == n {
				out, found = append(out, p), true
			}
		}
		if !found {
			return nil, fmt.Errorf("pattern %q is not whole, dcp64 or dcp1", n)
		}
	}
	return out, nil
}

func wholeBlocks() []kvlayout.Copy {
	var out []kvlayout.Copy
	for layer := range int64(layers) {
		for i := range int64(16) {
			out = append(out, kvlayout.Copy{
				Src: (layer*slots + (7*i+3)%slots) * blockBytes, Dst: (layer*slots + (5*i+1)%slots) * blockBytes,
				Length: blockBytes, Count: 1,
			})
		}
	}
	return out
}

// dealt spreads the tokens over four targets, interleave tokens in turn.
func dealt(interleave int64) [][]kvlayout.Copy {
	const ranks, perRank = 4, slots / 4
	out := make([][]kvlayout.Copy, ranks)
	for rank := range int64(ranks) {
		for layer := range int64(layers) {
			for block := range int64(16) {
				src := (layer*slots + (7*block+3)%slots) * blockBytes
				dst := func(token int64) int64 { // of the target's own
					return (layer*perRank+(3*(token/blockTokens)+1)%perRank)*blockBytes + token%blockTokens*rowBytes
				}
				switch {
				case interleave == 1:
					out[rank] = append(out[rank], kvlayout.Copy{
						Src: src + rank*rowBytes, SrcStride: ranks * rowBytes,
						Dst: dst(block * blockTokens / ranks), DstStride: rowBytes, Length: rowBytes, Count: blockTokens / ranks,
					})
				case block%ranks == rank:
					out[rank] = append(out[rank], kvlayout.Copy{Src: src, Dst: dst(block / ranks * blockTokens), Length: blockBytes, Count: 1})
				}
			}
		}
	}
	return out
}

// Bytes is what the pattern moves, Pieces the number of contiguous ones.
func (p Pattern) Bytes() (n int64) {
	for _, copies := range p.targets {
		for _, c := range copies {
			n += c.Length * int64(c.Count)
		}
	}
	return n
}

// Pieces is the number of contiguous pieces.
func (p Pattern) Pieces() (n int) {
	for _, copies := range p.targets {
		for _, c := range copies {
			n += c.Count
		}
	}
	return n
}
