//go:build linux

package shm

import (
	"slices"
	"sync"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport/internal/outbox"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
	"github.com/pdpool/pdpool/transferagent/transport/internal/strided"
)

const (
	portion = 1 << 20 // bytes between two looks at whether to go on: well below a millisecond
	pieces  = 4096    // copies in a portion
	abreast = 8       // batches that are copied in turn, piece by piece
	look    = 32      // batches of the queue that are considered for that
)

// flight is a batch that may be copied now.
type flight struct {
	session *session
	entry   *outbox.Entry
	source  *regions.Region
	target  *regions.Region

	// Guarded by the pool's mu.
	left strided.Cutter
	owed int   // portions being copied
	err  error // the first
}

// job is a portion of a flight.
type job struct {
	*flight
	copies []kvlayout.Copy
	pass   regions.Pass // while it is held
}

// pool copies for all sessions of a mover, oldest batch first. A batch is
// copied by as many workers as are idle, portion by portion; batches whose
// pieces lie between each other in the source are copied together, so that the
// source is read once.
type pool struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	more *sync.Cond
	// queue holds the flights with bytes left that no worker has taken.
	queue []*flight
	// parked holds those whose session has no lease now.
	parked []*flight
	closed bool
}

func newPool(workers int) *pool {
	p := &pool{}
	p.more = sync.NewCond(&p.mu)
	for range workers {
		p.wg.Go(p.work)
	}
	return p
}

// close ends the workers. No session may be left.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.more.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}

// submit queues a flight. Its session hears of its end by copied, unless drop
// comes first.
func (p *pool) submit(f *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, f)
	p.more.Broadcast()
}

// drop forgets the flights of a session; its workers stop after their portion.
func (p *pool) drop(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	theirs := func(f *flight) bool { return f.session == s }
	p.queue = slices.DeleteFunc(p.queue, theirs)
	p.parked = slices.DeleteFunc(p.parked, theirs)
}

// resume queues the flights of a session whose lease was renewed, before others:
// they are older.
func (p *pool) resume(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var theirs, others []*flight
	for _, f := range p.parked {
		if f.session == s {
			theirs = append(theirs, f)
		} else {
			others = append(others, f)
		}
	}
	if len(theirs) > 0 {
		p.queue, p.parked = append(theirs, p.queue...), others
		p.more.Broadcast()
	}
}

// park puts aside the flights whose lease has worn off.
func (p *pool) park() {
	p.queue = slices.DeleteFunc(p.queue, func(f *flight) bool {
		holds := f.session.lease.holds()
		if !holds {
			p.parked = append(p.parked, f)
		}
		return !holds
	})
}

func (p *pool) work() {
	jobs, held := make([]job, abreast), make([]job, 0, abreast)
	var user regions.User
	for {
		n := p.next(jobs)
		if n == 0 {
			return
		}
		held = held[:0]
		for i := range jobs[:n] {
			if err := jobs[i].hold(&user); err != nil {
				p.copied(&jobs[i], 0, err)
			} else {
				held = append(held, jobs[i])
			}
		}
		copyTogether(held)
		for i := range held {
			held[i].release(&user)
			p.copied(&held[i], strided.Bytes(held[i].copies), nil)
		}
	}
}

// next cuts the next portions into jobs: one of the oldest flight and one of
// each that is copied together with it. It waits for some; 0 means that the
// pool is closed.
func (p *pool) next(jobs []job) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.park(); len(p.queue) == 0; p.park() {
		if p.closed {
			return 0
		}
		p.more.Wait()
	}
	chosen, most := p.choose()
	for i, f := range chosen {
		jobs[i].flight = f
		jobs[i].copies = f.left.Next(jobs[i].copies[:0], portion/int64(len(chosen)), most)
		f.owed++
		f.session.copying.Add(1)
	}
	p.queue = slices.DeleteFunc(p.queue, func(f *flight) bool { return f.left.Over() })
	return len(chosen)
}

// choose gives the oldest flight and those that go through the same part of its
// source, if they are at the same place. Those that lag behind come first, and
// most copies bring them up to the next one.
func (p *pool) choose() (chosen []*flight, most int) {
	first := p.queue[0]
	furthest, next := 0, -pieces
	for _, f := range p.queue[:min(look, len(p.queue))] {
		lag, same := f.left.Lag(&first.left)
		switch {
		case f != first && (f.source != first.source || !same):
			continue
		case lag > furthest:
			furthest, next, chosen = lag, furthest, append(chosen[:0], f)
		case lag < furthest:
			next = max(next, lag)
		case len(chosen) < abreast:
			chosen = append(chosen, f)
		}
	}
	return chosen, min(pieces, furthest-next)
}

// copied takes back a portion and hands the flight to its session with the last.
func (p *pool) copied(j *job, n int64, err error) {
	f := j.flight
	f.entry.Count(n)
	p.mu.Lock()
	if f.err == nil && err != nil {
		f.err = err
		same := func(q *flight) bool { return q == f }
		p.queue = slices.DeleteFunc(p.queue, same)
		p.parked = slices.DeleteFunc(p.parked, same)
		f.left = strided.Cut(nil)
	}
	f.owed--
	last := f.owed == 0 && f.left.Over()
	p.mu.Unlock()
	if last {
		f.session.copied(f)
	}
	f.session.copying.Done()
}
