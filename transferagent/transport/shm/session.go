//go:build linux

package shm

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ending"
	"github.com/pdpool/pdpool/transferagent/transport/internal/outbox"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
)

// session is the writer's end: it maps memory of the peer and copies into it.
type session struct {
	mover   *Mover
	peer    string // socket name
	conn    *net.UnixConn
	box     *outbox.Box
	lease   lease
	gate    regions.Gate   // what the peer has revoked
	copying sync.WaitGroup // portions that a worker has
	talking sync.WaitGroup // receive and keep

	sending sync.Mutex // one message at a time

	mu      sync.Mutex
	ending  bool
	targets map[transport.MemoryID]*regions.Region // mapped
	leaves  map[string]*leave                      // of transfers with flights
	asked   map[question][]*flight                 // flights that wait for an answer
	unacked map[uint64]*flight                     // recorded
	sent    []debt                                 // answers that are due, in order
}

// debt is an answer that the peer owes.
type debt struct {
	answer kind
	since  time.Time // when the question was sent
}

// leave is to write for a transfer. It is given back with the last flight, so that
// the peer knows whom a revocation has to wait for.
type leave struct {
	given   bool
	flights int       // neither failed nor recorded
	asks    int       // questions about it that wait for an answer
	joined  []*flight // into mapped memory, which wait for any of these
}

// question is what an ask is about.
type question struct {
	target   transport.MemoryID
	transfer string
}

var _ transport.Session = (*session)(nil)

// newSession takes over a connection that was welcomed with a lease of so many nanoseconds.
func newSession(m *Mover, peer string, conn *net.UnixConn, lease int64) (*session, error) {
	s := &session{
		mover: m, peer: peer, conn: conn,
		targets: map[transport.MemoryID]*regions.Region{},
		leaves:  map[string]*leave{},
		asked:   map[question][]*flight{},
		unacked: map[uint64]*flight{},
	}
	if err := s.lease.set(lease); err != nil {
		return nil, err
	}
	s.box = outbox.New(m.options.Queue)
	return s, nil
}

func (s *session) start() {
	s.talking.Go(s.receive)
	s.talking.Go(s.keep)
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
	s.enter(&flight{session: s, entry: e, source: source})
	return nil
}

// Done implements transport.Session.
func (s *session) Done() <-chan struct{} { return s.box.Ended() }

// Err implements transport.Session.
func (s *session) Err() error { return s.box.Err() }

// Close implements transport.Session. Batches that were not recorded yet fail.
func (s *session) Close() error {
	s.box.End(transport.ErrClosed)
	<-s.box.Ended()
	return nil
}

// fail ends the session.
func (s *session) fail(err error) {
	s.box.End(fmt.Errorf("session to %q: %w", s.peer, ending.Of(err, errMessage)))
}

// supervise ends the session: first the copies, then the mappings, and the
// connection last, because its end tells the peer that all is quiet.
func (s *session) supervise() {
	<-s.box.Ending()
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	s.mover.pool.drop(s)
	s.copying.Wait()
	s.conn.CloseRead() //nolint:errcheck // it ends receive; Close would as well
	s.talking.Wait()
	for _, r := range s.targets {
		s.unmap(r)
	}
	s.conn.Close() //nolint:errcheck // nothing is left to do with it
	s.box.Flush()
	s.mover.open.Forget(s)
}

// answers are what has to come back for a message.
var answers = map[kind]kind{ask: answer, record: acked, renew: granted}

// send writes a message; a failure ends the session.
func (s *session) send(m message) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.write(m)
}

// write is send; s.sending is held.
func (s *session) write(m message) {
	if a, owing := answers[m.kind]; owing {
		s.owe(a)
	}
	err := s.conn.SetWriteDeadline(time.Now().Add(s.mover.options.AckTimeout))
	if err == nil {
		err = write(s.conn, m, nil)
	}
	if err != nil {
		s.fail(err)
	}
}

// owe starts the clock of an answer, unless it runs already. s.sending is held, so
// that answers come in the order of what is noted here.
func (s *session) owe(k kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent = append(s.sent, debt{k, time.Now()}); len(s.sent) == 1 {
		s.clock()
	}
}

// paid takes an answer: it stops its clock, the next one's runs from now, and renews
// the lease. It reports false when another one was due, or none.
func (s *session) paid(k kind) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) == 0 || s.sent[0].answer != k {
		return false
	}
	s.lease.renew(s.sent[0].since)
	s.sent = s.sent[1:]
	s.clock()
	s.mover.pool.resume(s)
	return true
}

func (s *session) clock() {
	var t time.Time
	if len(s.sent) > 0 {
		t = time.Now().Add(s.mover.options.AckTimeout)
	}
	s.conn.SetReadDeadline(t) //nolint:errcheck // a closed connection fails the read
}
