package enginesim

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
)

// errBusy: as many requests wait for blocks as may wait.
var errBusy = errors.New("too many requests wait for KV blocks")

// blocks hands out the block ids of one data parallel rank; the same id names a
// block on every TP rank. Requests get theirs in the order in which they asked.
type blocks struct {
	mu      sync.Mutex
	random  *rand.Rand
	free    []int32 // the last freed at the end
	waiting *list.List
	limit   int // of waiting
	total   int
	// pattern is what each block was last poisoned with. It belongs to whoever
	// holds the block.
	pattern []uint64
	holders map[int32]holder // of blocks that are not free
}

// holder is whom blocks belong to.
type holder struct {
	request  string
	transfer string // empty for none
}

type waiter struct {
	count int
	who   holder
	ready chan []int32 // one send, of count blocks
}

func newBlocks(total, limit int, random *rand.Rand) *blocks {
	b := &blocks{random: random, waiting: list.New(), limit: limit, total: total, pattern: make([]uint64, total), holders: map[int32]holder{}}
	for i := range total {
		b.free = append(b.free, int32(i))
	}
	return b
}

// take waits for count blocks. They are at random, the ones freed last more often
// than others, so that a write that comes too late meets a new owner.
func (b *blocks) take(ctx context.Context, count int, who holder) ([]int32, error) {
	w := &waiter{count: count, who: who, ready: make(chan []int32, 1)}
	place, err := b.queue(w)
	if err != nil {
		return nil, err
	}
	select {
	case ids := <-w.ready:
		return ids, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case ids := <-w.ready: // served meanwhile
		b.release(ids)
	default:
		b.waiting.Remove(place)
	}
	b.serve()
	return nil, ctx.Err()
}

// queue lines a waiter up, and serves it at once when it can be.
func (b *blocks) queue(w *waiter) (*list.Element, error) {
	if w.count < 1 || w.count > b.total {
		return nil, fmt.Errorf("%d blocks were asked for, not 1 to %d", w.count, b.total)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting.Len() >= b.limit {
		return nil, fmt.Errorf("%d requests: %w", b.limit, errBusy)
	}
	place := b.waiting.PushBack(w)
	b.serve()
	return place, nil
}

// put gives blocks back, in the state that their pattern says.
func (b *blocks) put(ids []int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.release(ids)
	b.serve()
}

func (b *blocks) release(ids []int32) {
	b.free = append(b.free, ids...)
	for _, id := range ids {
		delete(b.holders, id)
	}
}

// serve gives blocks to whoever waits longest, and stops at the first for whom
// there are not enough.
func (b *blocks) serve() {
	for e := b.waiting.Front(); e != nil; e = b.waiting.Front() {
		w, ok := e.Value.(*waiter)
		if !ok || w.count > len(b.free) {
			return
		}
		b.waiting.Remove(e)
		ids := make([]int32, w.count)
		for i := range ids {
			ids[i] = b.pick()
			b.holders[ids[i]] = w.who
		}
		w.ready <- ids
	}
}

func (b *blocks) pick() int32 {
	n := len(b.free)
	i := n - 1 - min(b.random.IntN(n), b.random.IntN(n))
	id := b.free[i]
	b.free[i] = b.free[n-1]
	b.free = b.free[:n-1]
	return id
}

// newPattern draws a word to poison with.
func (b *blocks) newPattern() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.random.Uint64()
}

// held lists the blocks that are not free by whom they belong to, in order.
func (b *blocks) held() []HeldBlocks {
	b.mu.Lock()
	defer b.mu.Unlock()
	byHolder := map[holder][]int32{}
	for id, who := range b.holders {
		byHolder[who] = append(byHolder[who], id)
	}
	out := make([]HeldBlocks, 0, len(byHolder))
	for who, ids := range byHolder {
		slices.Sort(ids)
		out = append(out, HeldBlocks{Transfer: who.transfer, Request: who.request, Blocks: ids})
	}
	slices.SortFunc(out, func(a, b HeldBlocks) int {
		return cmp.Or(cmp.Compare(a.Transfer, b.Transfer), cmp.Compare(a.Request, b.Request))
	})
	return out
}

// counts tells free blocks and waiting requests.
func (b *blocks) counts() (free, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.free), b.waiting.Len()
}
