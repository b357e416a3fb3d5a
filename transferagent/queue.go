package transferagent

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

var (
	errFull   = errors.New("queue is full")
	errClosed = errors.New("queue is closed")
)

// queue is the bounded line from the loop, which never waits, to the one
// goroutine that carries things out.
type queue[T any] struct {
	limit int
	wake  chan struct{} // holds a token after a change

	mu     sync.Mutex
	items  []T
	closed bool
}

func newQueue[T any](limit int) *queue[T] {
	return &queue[T]{limit: limit, wake: make(chan struct{}, 1)}
}

// put adds an item, or fails at once with errFull or errClosed.
func (q *queue[T]) put(item T) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosed
	}
	if len(q.items) >= q.limit {
		return fmt.Errorf("%d entries wait: %w", len(q.items), errFull)
	}
	q.items = append(q.items, item)
	q.signal()
	return nil
}

// take removes the oldest item. It waits for one until ctx ends or the queue is
// closed and empty; then it returns false.
func (q *queue[T]) take(ctx context.Context) (T, bool) {
	for {
		item, ok, closed := q.next()
		if ok || closed {
			return item, ok
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return item, false
		}
	}
}

func (q *queue[T]) next() (item T, ok, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return item, false, q.closed
	}
	item = q.items[0]
	var zero T
	q.items[0] = zero
	if q.items = q.items[1:]; len(q.items) == 0 {
		q.items = nil
	}
	return item, true, false
}

// finish takes no more items; what waits can still be taken.
func (q *queue[T]) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// drain takes no more items and returns what nobody took.
func (q *queue[T]) drain() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	rest := q.items
	q.items = nil
	q.signal()
	return rest
}

func (q *queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
