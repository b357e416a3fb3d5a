//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/challenge"
	"github.com/pdpool/pdpool/transferagent/transport/internal/outbox"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
)

// maxGranted is how many transfers a session remembers that it may write. It
// asks again for what it has forgotten.
const maxGranted = 4096

// session is the writer's end: it maps memory of the peer and copies into it.
type session struct {
	mover   *Mover
	peer    string // socket name
	conn    *net.UnixConn
	box     *outbox.Box
	gate    regions.Gate   // what the peer has revoked
	copying sync.WaitGroup // portions that a worker has
	reading chan struct{}  // closed when receive has ended

	sending sync.Mutex // one message at a time

	mu      sync.Mutex
	ending  bool
	targets map[transport.MemoryID]*regions.Region // mapped
	granted map[string]struct{}                    // transfers that the peer lets in
	asked   map[question][]*flight                 // flights that wait for an answer
	unacked map[uint64]*flight                     // recorded
	owed    int                                    // answers and acks
}

// question is what an ask is about.
type question struct {
	target   transport.MemoryID
	transfer string
}

var _ transport.Session = (*session)(nil)

func newSession(m *Mover, peer string, conn *net.UnixConn) *session {
	return &session{
		mover: m, peer: peer, conn: conn, box: outbox.New(m.options.Queue), reading: make(chan struct{}),
		targets: map[transport.MemoryID]*regions.Region{},
		granted: map[string]struct{}{},
		asked:   map[question][]*flight{},
		unacked: map[uint64]*flight{},
	}
}

func (s *session) start() {
	go s.receive()
	go s.supervise()
}

// Post implements transport.Session.
func (s *session) Post(ctx context.Context, b transport.Batch, done func(int64, error)) error {
	source, err := s.mover.memory.Find(b.Source)
	if err != nil {
		return err
	}
	if _, err := regions.CheckBatch(b, source.Size()); err != nil {
		return err
	}
	e, err := s.box.Admit(ctx, b, done)
	if err != nil {
		return err
	}
	s.route(&flight{session: s, entry: e, source: source})
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
func (s *session) fail(err error) { s.box.End(fmt.Errorf("session to %q: %w", s.peer, ended(err))) }

// ended names what an error of the connection means.
func ended(err error) error {
	switch {
	case errors.Is(err, transport.ErrUnproved), errors.Is(err, challenge.ErrMagic), errors.Is(err, challenge.ErrVersion):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transport.ErrFrozen
	case errors.Is(err, net.ErrClosed):
		return transport.ErrClosed
	case errors.Is(err, errMessage):
		return err
	default:
		return fmt.Errorf("%w (%w)", transport.ErrPeerGone, err)
	}
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
	<-s.reading
	for _, r := range s.targets {
		s.unmap(r)
	}
	s.conn.Close() //nolint:errcheck // nothing is left to do with it
	s.box.Flush()
	s.mover.open.Forget(s)
}

// send writes a message; a failure ends the session. owing tells that the peer
// has to answer it.
func (s *session) send(m message, owing bool) {
	s.sending.Lock()
	defer s.sending.Unlock()
	if owing {
		s.owe()
	}
	err := s.conn.SetWriteDeadline(time.Now().Add(s.mover.options.AckTimeout))
	if err == nil {
		err = write(s.conn, m, nil)
	}
	if err != nil {
		s.fail(err)
	}
}

// owe starts the clock of an answer, unless it runs already.
func (s *session) owe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed++; s.owed == 1 {
		s.clock()
	}
}

// paid stops the clock of an answer; the next one's runs from now.
func (s *session) paid() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed == 0 {
		return false
	}
	s.owed--
	s.clock()
	return true
}

func (s *session) clock() {
	var t time.Time
	if s.owed > 0 {
		t = time.Now().Add(s.mover.options.AckTimeout)
	}
	s.conn.SetReadDeadline(t) //nolint:errcheck // a closed connection fails the read
}
