package enginesim

import (
	"runtime"
	"sync"
)

// Answer is what any instance answers to a prompt, however it is split: count
// tokens that follow from the content of every row. It touches no KV memory, and
// so is the reference for those that do.
func Answer(g Geometry, tokens []uint32, count int) []uint32 {
	s := newSequence(g, tokens, "")
	var digest uint64
	var out []uint32
	for from := 0; len(out) < count; from = len(s.tokens) - 1 {
		digest += s.digest(from, len(s.tokens))
		next := nextToken(digest, len(s.tokens))
		out = append(out, next)
		s.append(next)
	}
	return out
}

// digest computes what the rows of the tokens from..to sum up to. The sum does not
// depend on where a row lies or in which order rows are read.
func (s *sequence) digest(from, to int) uint64 {
	sums := make([]uint64, s.geometry.Layers)
	_ = parallel(s.geometry.Layers, func(layer int) error {
		row := make([]uint64, s.geometry.rowWords())
		for head := range s.geometry.KVHeads {
			for pos := from; pos < to; pos++ {
				sums[layer] += s.write(row, layer, head, pos)
			}
		}
		return nil
	})
	var sum uint64
	for _, x := range sums {
		sum += x
	}
	return sum
}

// nextToken chooses the token that follows position pos-1.
func nextToken(digest uint64, pos int) uint32 {
	return wordTokens[mix(digest^uint64(pos)*golden)%uint64(len(wordTokens))]
}

// parallel runs f for 0..n-1 on as many goroutines as there are processors, and
// returns when all have ended, with the error of the lowest index.
func parallel(n int, f func(int) error) error {
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
