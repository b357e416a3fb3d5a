//go:build linux

package shm

import (
	"fmt"
	"os"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
	"github.com/pdpool/pdpool/transferagent/transport/internal/strided"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// enter takes a flight in.
func (s *session) enter(f *flight) {
	transfer := f.entry.Batch.Flow.Transfer
	s.mu.Lock()
	if s.ending { // Flush finishes it
		s.mu.Unlock()
		return
	}
	if s.leaves[transfer] == nil {
		s.leaves[transfer] = &leave{}
	}
	s.leaves[transfer].flights++
	s.mu.Unlock()
	s.route(f)
}

// route starts a flight that was taken in, or asks the peer for what it needs first.
// Flights into memory that is mapped share one question: those to the readers of one
// transfer begin together then, and read their source once.
func (s *session) route(f *flight) {
	q := question{f.entry.Batch.Target, f.entry.Batch.Flow.Transfer}
	s.mu.Lock()
	l, region := s.leaves[q.transfer], s.targets[q.target]
	switch {
	case region != nil && l.given:
		s.mu.Unlock()
		s.launch(f, region)
		return
	case region != nil && l.asks > 0:
		l.joined = append(l.joined, f)
		s.mu.Unlock()
		return
	}
	first := len(s.asked[q]) == 0
	if s.asked[q] = append(s.asked[q], f); first {
		l.asks++
	}
	s.mu.Unlock()
	if first {
		s.send(message{kind: ask, memory: q.target, flow: transport.Flow{Transfer: q.transfer}})
	}
}

// launch hands a flight that has leave to the workers.
func (s *session) launch(f *flight, region *regions.Region) {
	b := f.entry.Batch
	if f.err = regions.CheckTarget(b, region.Size()); f.err != nil {
		s.copied(f)
		return
	}
	f.target, f.left = region, strided.Cut(b.Copies)
	if f.left.Over() {
		s.copied(f)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending { // or Flush finishes it; supervise drops it if it ends now
		s.mover.pool.submit(f)
	}
}

// copied records a flight at the peer, which counts its bytes, also when it was
// stopped half-way.
func (s *session) copied(f *flight) {
	b, n := f.entry.Batch, f.entry.Moved()
	m := message{kind: record, seq: f.entry.Seq, memory: b.Target, bytes: n, flow: b.Flow}
	// Who asks for leave anew must come after the record that gives it back.
	s.sending.Lock()
	defer s.sending.Unlock()
	back := s.landed(f)
	if n == 0 {
		if back {
			s.write(message{kind: revoked, flow: transport.Flow{Transfer: b.Flow.Transfer}})
		}
		f.entry.Finish(f.err)
		return
	}
	if back {
		m.status = last
	}
	s.mu.Lock()
	s.unacked[f.entry.Seq] = f
	s.mu.Unlock()
	s.write(m)
}

// landed takes a flight off its transfer's leave. It reports true when that was
// given and has to be given back.
func (s *session) landed(f *flight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	transfer := f.entry.Batch.Flow.Transfer
	l := s.leaves[transfer]
	if l.flights--; l.flights > 0 {
		return false
	}
	delete(s.leaves, transfer)
	return l.given
}

// receive handles what the peer sends until the connection ends.
func (s *session) receive() {
	for {
		m, file, err := read(s.conn)
		if err == nil {
			err = s.handle(m, file)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *session) handle(m message, file *os.File) error {
	if m.kind != answer {
		drop(file)
	}
	switch m.kind {
	case answer:
		return s.answered(m, file)
	case acked:
		return s.acknowledged(m)
	case granted:
		s.lease.pending.Store(false) // first: what is resumed may need the next one
		if !s.paid(granted) {
			return fmt.Errorf("a grant that was not asked for: %w", errMessage)
		}
		return nil
	case withdraw:
		s.letGo(m.memory)
		s.send(message{kind: withdrawn, memory: m.memory})
		return nil
	case revoke:
		s.stop(m.flow.Transfer)
		return nil
	default:
		return fmt.Errorf("a reader sent a message of kind %d: %w", m.kind, errMessage)
	}
}

// answered starts or fails the flights that waited for this answer.
func (s *session) answered(m message, file *os.File) error {
	defer drop(file)
	q := question{m.memory, m.flow.Transfer}
	s.mu.Lock()
	waiting, known := s.asked[q]
	delete(s.asked, q)
	region := s.targets[m.memory]
	s.mu.Unlock()
	if !known || !s.paid(answer) {
		return fmt.Errorf("an answer about memory %d that was not asked: %w", m.memory, errMessage)
	}
	err := m.status.err()
	if err == nil && region == nil {
		region, err = s.adopt(m, file)
	}
	if err != nil {
		err = fmt.Errorf("target memory %d for transfer %q: %w", m.memory, q.transfer, err)
	}
	s.mu.Lock()
	if err == nil {
		s.targets[m.memory] = region
	}
	l := s.leaves[q.transfer] // it is there as long as flights wait
	l.asks--
	l.given = l.given || m.status == statusOK
	joined := l.joined
	l.joined = nil
	s.mu.Unlock()
	for _, f := range waiting {
		if err != nil {
			f.err = err
			s.copied(f)
		} else {
			s.launch(f, region)
		}
	}
	for _, f := range joined { // if it was refused for the memory alone, they ask for theirs
		s.route(f)
	}
	return nil
}

// adopt maps memory of the peer. A peer whose memory is refused is told that
// it was let go of.
func (s *session) adopt(m message, file *os.File) (*regions.Region, error) {
	if file == nil {
		s.send(message{kind: withdrawn, memory: m.memory})
		return nil, fmt.Errorf("no descriptor came: %w", memory.ErrNotMemory)
	}
	b, err := memory.MapSealed(file, m.bytes)
	if err != nil {
		s.send(message{kind: withdrawn, memory: m.memory})
		return nil, err
	}
	return regions.New(m.memory, transport.Memory{Bytes: b}), nil
}

func (s *session) acknowledged(m message) error {
	s.mu.Lock()
	f := s.unacked[m.seq]
	delete(s.unacked, m.seq)
	s.mu.Unlock()
	if f == nil || !s.paid(acked) {
		return fmt.Errorf("an ack of batch %d that was not recorded: %w", m.seq, errMessage)
	}
	f.entry.Finish(f.err)
	return nil
}

// letGo returns when nothing of a memory is touched or mapped any more.
func (s *session) letGo(id transport.MemoryID) {
	s.mu.Lock()
	r := s.targets[id]
	delete(s.targets, id)
	s.mu.Unlock()
	if r != nil {
		s.unmap(r)
	}
}

func (s *session) unmap(r *regions.Region) {
	r.Withdraw(time.Minute) // workers leave after their portion
	if err := memory.Unmap(r.Bytes()); err != nil {
		s.fail(err)
	}
}

// stop tells the peer when nothing is copied for a transfer any more.
func (s *session) stop(transfer string) {
	s.mu.Lock()
	if l := s.leaves[transfer]; l != nil {
		l.given = false
	}
	s.mu.Unlock()
	<-s.gate.Shut(transfer) // workers leave after their portion
	s.send(message{kind: revoked, flow: transport.Flow{Transfer: transfer}})
}
