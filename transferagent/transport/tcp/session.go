package tcp

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/outbox"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
	"github.com/pdpool/pdpool/transferagent/transport/internal/strided"
)

// framePayload is how many bytes are sent in a frame.
const framePayload = 1 << 20

// session sends batches over several connections: each takes the next frame of
// the oldest batch that has some left, so that no batch waits for the answers
// of another.
type session struct {
	mover *Mover
	peer  string // host:port
	box   *outbox.Box
	lanes []*lane
	wg    sync.WaitGroup // lanes' goroutines

	broken    chan struct{} // closed by fail
	breakOnce sync.Once

	mu      sync.Mutex
	more    *sync.Cond // a flight was added, or the session ends
	flights []*flight  // oldest first, with frames left to send
	ending  bool
	owed    int           // frames sent and not answered
	settled chan struct{} // closed when ending and nothing is owed
}

var _ transport.Session = (*session)(nil)

// flight is a batch on its way.
type flight struct {
	entry  *outbox.Entry
	source *regions.Region
	left   strided.Cutter
	owed   int   // frames sent and not answered
	err    error // the first
}

func newSession(m *Mover, peer string, conns []*net.TCPConn) *session {
	s := &session{
		mover: m, peer: peer, box: outbox.New(m.options.Queue),
		broken: make(chan struct{}), settled: make(chan struct{}),
	}
	s.more = sync.NewCond(&s.mu)
	for _, c := range conns {
		s.lanes = append(s.lanes, newLane(s, c))
	}
	return s
}

func (s *session) start() {
	for _, l := range s.lanes {
		s.wg.Go(l.send)
		s.wg.Go(l.receive)
	}
	go s.supervise()
}

// Post implements transport.Session.
func (s *session) Post(ctx context.Context, b transport.Batch, done func(int64, error)) error {
	source, err := s.mover.memory.Source(b)
	if err != nil {
		return err
	}
	e, err := s.box.Admit(ctx, b, done)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Once the session ends, Flush finishes whatever Admit let in.
	s.flights = append(s.flights, &flight{entry: e, source: source, left: strided.Cut(b.Copies)})
	s.more.Broadcast()
	return nil
}

// Done implements transport.Session.
func (s *session) Done() <-chan struct{} { return s.box.Ended() }

// Err implements transport.Session.
func (s *session) Err() error { return s.box.Err() }

// Close implements transport.Session. Frames that have been sent are waited
// for, at most Options.CloseTimeout, so that a live peer places no byte
// afterwards.
func (s *session) Close() error {
	s.box.End(transport.ErrClosed)
	<-s.box.Ended()
	return nil
}

// fail ends the session without waiting for the peer.
func (s *session) fail(err error) {
	s.box.End(fmt.Errorf("session to %s: %w", s.peer, err))
	s.breakOnce.Do(func() { close(s.broken) })
}

func (s *session) supervise() {
	<-s.box.Ending()
	s.mu.Lock()
	s.ending = true
	if s.owed == 0 {
		close(s.settled)
	}
	s.more.Broadcast()
	s.mu.Unlock()
	timer := time.NewTimer(s.mover.options.CloseTimeout)
	defer timer.Stop()
	select {
	case <-s.settled:
	case <-timer.C:
	case <-s.broken:
	}
	for _, l := range s.lanes {
		l.shut()
	}
	s.wg.Wait()
	s.box.Flush()
	s.mover.open.Forget(s)
}

// wait returns when there may be something to send; false: the session ends.
func (s *session) wait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.flights) == 0 && !s.ending {
		s.more.Wait()
	}
	return !s.ending
}

// next cuts the next frame into w. It gives nil when there is none now. Each frame
// must be given back to answered.
func (s *session) next(w *frame) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.flights) > 0 && !s.ending {
		f := s.flights[0]
		over := f.err != nil
		if !over {
			w.copies = f.left.Next(w.copies[:0], w.payload, w.runs)
			f.owed++
			s.owed++
		}
		if over || f.left.Over() {
			s.flights = s.flights[1:]
		}
		if !over {
			return f
		}
	}
	return nil
}

// answered takes back a frame: n bytes of it were placed. It finishes the batch
// with its last frame.
func (s *session) answered(f *flight, n int64, err error) {
	f.entry.Count(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.owed--
	s.owed--
	if f.owed == 0 && (f.err != nil || f.left.Over()) {
		f.entry.Finish(f.err)
	}
	if s.ending && s.owed == 0 {
		close(s.settled)
	}
}
