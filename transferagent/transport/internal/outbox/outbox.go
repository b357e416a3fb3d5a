// Package outbox keeps the batches of one session from Post until done: it
// bounds how many there are, calls each done exactly once on its own goroutine,
// and ends a session in two steps, so that no done is called with an error
// while bytes of its batch are still on their way.
package outbox

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pdpool/pdpool/transferagent/transport"
)

// Entry is one batch between Post and done.
type Entry struct {
	Batch transport.Batch
	Seq   uint64 // unique in the session, ascending

	box      *Box
	done     func(int64, error)
	moved    atomic.Int64
	finished atomic.Bool
	err      error // set by Finish
}

// Count adds bytes that have been moved.
func (e *Entry) Count(n int64) { e.moved.Add(n) }

// Moved is what Count has added up to.
func (e *Entry) Moved() int64 { return e.moved.Load() }

// Finish has done called soon. Only the first call of an entry counts.
func (e *Entry) Finish(err error) {
	if e.finished.CompareAndSwap(false, true) {
		e.err = err
		e.box.finish(e)
	}
}

// Box is the outbox of one session.
type Box struct {
	slots  chan struct{}
	ending chan struct{} // closed by End
	ended  chan struct{} // closed by Flush

	mu      sync.Mutex
	err     error
	seq     uint64
	pending map[uint64]*Entry
	ready   []*Entry // finished, done not yet called
	open    int      // admitted, done not yet returned
	wake    chan struct{}
	flushed bool
}

// New makes an outbox for at most queue batches and starts the goroutine that
// calls done; Flush ends it.
func New(queue int) *Box {
	b := &Box{
		slots:   make(chan struct{}, queue),
		ending:  make(chan struct{}),
		ended:   make(chan struct{}),
		pending: map[uint64]*Entry{},
		wake:    make(chan struct{}, 1),
	}
	go b.dispatch()
	return b
}

// Admit takes a batch in. It blocks while the queue is full, until ctx ends or
// the session does. On an error done is never called.
func (b *Box) Admit(ctx context.Context, batch transport.Batch, done func(int64, error)) (*Entry, error) {
	select {
	case b.slots <- struct{}{}:
	default:
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-b.ending:
			return nil, b.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		<-b.slots
		return nil, b.err
	}
	b.seq++
	b.open++
	e := &Entry{Batch: batch, Seq: b.seq, box: b, done: done}
	b.pending[e.Seq] = e
	return e, nil
}

// End begins the end of the session: Admit refuses from now on and Ending is
// closed. The first err is the session's.
func (b *Box) End(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		close(b.ending)
	}
}

// Ending is closed by End.
func (b *Box) Ending() <-chan struct{} { return b.ending }

// Ended is closed when Flush has called every done.
func (b *Box) Ended() <-chan struct{} { return b.ended }

// Err says why the session ended, nil before that.
func (b *Box) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Flush finishes what is pending with the session's error. It must be called
// once, after End, when no byte of the session can move any more. It returns
// when every done has returned.
func (b *Box) Flush() {
	b.mu.Lock()
	left := slices.Collect(maps.Values(b.pending))
	slices.SortFunc(left, func(x, y *Entry) int { return cmp.Compare(x.Seq, y.Seq) })
	err := b.err
	b.mu.Unlock()
	for _, e := range left {
		e.Finish(err)
	}
	b.mu.Lock()
	b.flushed = true
	b.mu.Unlock()
	b.signal()
	<-b.ended
}

func (b *Box) finish(e *Entry) {
	b.mu.Lock()
	delete(b.pending, e.Seq)
	b.ready = append(b.ready, e)
	b.mu.Unlock()
	b.signal()
}

func (b *Box) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// dispatch frees the slot before it calls done, so that done may Post.
func (b *Box) dispatch() {
	defer close(b.ended)
	for range b.wake {
		b.mu.Lock()
		ready := b.ready
		b.ready = nil
		b.mu.Unlock()
		for _, e := range ready {
			<-b.slots
			e.done(e.moved.Load(), e.err)
		}
		b.mu.Lock()
		b.open -= len(ready)
		over := b.flushed && b.open == 0
		b.mu.Unlock()
		if over {
			return
		}
	}
}
