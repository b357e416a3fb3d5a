package enginesim

import (
	"context"
	"fmt"
)

// compute fills the rows of the tokens from..to of one layer on every rank, and
// returns the sum of the digests of what it has computed.
func (g *group) compute(s *sequence, ids []int32, layer, from, to int) uint64 {
	sums := make([]uint64, len(g.ranks))
	if to-from == 1 { // too little for goroutines
		for i, r := range g.ranks {
			sums[i] = g.computeRank(s, ids, r, layer, from, to)
		}
		return g.sum(sums)
	}
	_ = parallel(len(g.ranks), func(i int) error {
		sums[i] = g.computeRank(s, ids, g.ranks[i], layer, from, to)
		return nil
	})
	return g.sum(sums)
}

func (g *group) computeRank(s *sequence, ids []int32, r *rank, layer, from, to int) uint64 {
	var sum uint64
	for head := r.headFirst; head < r.headFirst+r.heads; head++ {
		for pos := from; pos < to; pos++ {
			at := g.cfg.Layout.place(pos)
			if at.rank == r.dcp {
				sum += s.write(r.row(layer, ids[at.block], head, at.slot), layer, head, pos)
			}
		}
	}
	return sum
}

// sum adds up what the ranks have, each row once.
func (g *group) sum(sums []uint64) uint64 {
	var sum uint64
	for i, x := range sums {
		if g.first[i] {
			sum += x
		}
	}
	return sum
}

// wrongRowError names the first row of a request that is not what it has to be.
type wrongRowError struct {
	rank, layer, head, pos int
	at                     slot
	block                  int32
	what                   string
}

func (e *wrongRowError) Error() string {
	return fmt.Sprintf("wrong row at rank %d, layer %d, head %d, token %d (block %d, slot %d): %s",
		e.rank, e.layer, e.head, e.pos, e.block, e.at.slot, e.what)
}

// read compares the rows of the tokens from..to in all own memory with what the
// tokens ask for, and returns the sum of the digests of what it has read. The
// error, a *wrongRowError, names the first wrong row, by layer and rank.
func (g *group) read(ctx context.Context, s *sequence, ids []int32, from, to int) (uint64, error) {
	n := len(g.ranks)
	sums := make([]uint64, n*g.cfg.Geometry.Layers)
	err := parallel(len(sums), func(i int) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var err error
		sums[i], err = g.readRank(s, ids, g.ranks[i%n], i/n, from, to)
		return err
	})
	if err != nil {
		return 0, err
	}
	var sum uint64
	for layer := range g.cfg.Geometry.Layers {
		sum += g.sum(sums[layer*n : (layer+1)*n])
	}
	return sum, nil
}

func (g *group) readRank(s *sequence, ids []int32, r *rank, layer, from, to int) (uint64, error) {
	var sum uint64
	rows := 0
	for head := r.headFirst; head < r.headFirst+r.heads; head++ {
		for pos := from; pos < to; pos++ {
			at := g.cfg.Layout.place(pos)
			if at.rank != r.dcp {
				continue
			}
			row := r.row(layer, ids[at.block], head, at.slot)
			digest, right := s.read(row, layer, head, pos)
			if !right {
				return 0, &wrongRowError{
					rank: r.tp, layer: layer, head: head, pos: pos, at: at, block: ids[at.block],
					what: g.diagnose(s, r, row, ids[at.block], layer, head, pos),
				}
			}
			sum += digest
			rows++
		}
	}
	g.tally.checked.Add(int64(rows*r.rowWords) * wordBytes)
	return sum, nil
}

// diagnose says what a wrong row holds instead.
func (g *group) diagnose(s *sequence, r *rank, row []uint64, block int32, layer, head, pos int) string {
	if isPoison(row) {
		if row[0] == r.poisonWord(g.blocks.pattern[block]) {
			return "it was never written"
		}
		return "it holds the poison of another block"
	}
	for other := range s.tokens {
		if _, right := s.read(row, layer, head, other); right {
			return fmt.Sprintf("it holds the row of token %d", other)
		}
	}
	for other := range g.cfg.Geometry.KVHeads {
		if _, right := s.read(row, layer, other, pos); right {
			return fmt.Sprintf("it holds the row of head %d", other)
		}
	}
	for other := range g.cfg.Geometry.Layers {
		if _, right := s.read(row, other, head, pos); right {
			return fmt.Sprintf("it holds the row of layer %d", other)
		}
	}
	want := make([]uint64, len(row))
	s.write(want, layer, head, pos)
	wrong, first := 0, -1
	for i := range row {
		if row[i] != want[i] {
			wrong++
			if first < 0 {
				first = i
			}
		}
	}
	if wrong == len(row) {
		return "it holds nothing of this request"
	}
	return fmt.Sprintf("%d of its %d words are wrong, the first at byte %d", wrong, len(row), first*wordBytes)
}

// wrongWriteError: a transfer wrote where no token of the request lies.
type wrongWriteError struct{ where string }

func (e *wrongWriteError) Error() string { return "wrong write: " + e.where }

// checkTail looks for writes behind the tokens that were written: whole blocks
// that no token has reached must be as they were poisoned, and so must the rows
// behind the last token. Where a transfer has written, those may hold a source's
// poison instead, since whole source blocks are copied; content they may not.
func (g *group) checkTail(ids []int32, tokens int, copied bool) error {
	l := g.cfg.Layout
	used := l.blocksFor(tokens)
	return g.each(func(r *rank) error {
		for _, id := range ids[used:] {
			if err := r.checkPoison(id, g.blocks.pattern[id], &g.tally.checked); err != nil {
				return fmt.Errorf("%w was written, but no token of the request is there", err)
			}
		}
		for pos := tokens; pos < used*l.Block*l.DCP; pos++ {
			if err := g.checkEmpty(r, ids, pos, copied); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkEmpty looks at the rows of a position that the request has not reached.
func (g *group) checkEmpty(r *rank, ids []int32, pos int, copied bool) error {
	at := g.cfg.Layout.place(pos)
	if at.rank != r.dcp {
		return nil
	}
	id := ids[at.block]
	word := r.poisonWord(g.blocks.pattern[id])
	for layer := range r.layers {
		for head := r.headFirst; head < r.headFirst+r.heads; head++ {
			row := r.row(layer, id, head, at.slot)
			g.tally.checked.Add(int64(len(row)) * wordBytes)
			if differs(row, word) < 0 || copied && isPoison(row) {
				continue
			}
			return fmt.Errorf("rank %d, layer %d, block %d: the row of head %d, slot %d was written, but the request ends before it", r.tp, layer, id, head, at.slot)
		}
	}
	return nil
}
