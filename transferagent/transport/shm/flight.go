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

// route starts a flight, or asks the peer for what it needs first.
func (s *session) route(f *flight) {
	q := question{f.entry.Batch.Target, f.entry.Batch.Flow.Transfer}
	s.mu.Lock()
	if s.ending { // Flush finishes it
		s.mu.Unlock()
		return
	}
	_, granted := s.granted[q.transfer]
	if region := s.targets[q.target]; region != nil && granted {
		s.startLocked(f, region)
		s.mu.Unlock()
		return
	}
	first := len(s.asked[q]) == 0
	s.asked[q] = append(s.asked[q], f)
	s.mu.Unlock()
	if first {
		s.send(message{kind: ask, memory: q.target, flow: transport.Flow{Transfer: q.transfer}}, true)
	}
}

// startLocked hands a flight to the workers. s.mu is held, and s is not ending,
// so that supervise drops the flight if it ends now.
func (s *session) startLocked(f *flight, region *regions.Region) {
	b := f.entry.Batch
	if err := regions.CheckTarget(b, region.Size()); err != nil {
		f.entry.Finish(err)
		return
	}
	f.target, f.left = region, strided.Cut(b.Copies)
	if f.left.Over() {
		f.entry.Finish(nil)
		return
	}
	s.mover.pool.submit(f)
}

// copied records a flight at the peer, which counts its bytes, also when it was
// stopped half-way.
func (s *session) copied(f *flight) {
	b, n := f.entry.Batch, f.entry.Moved()
	if n == 0 {
		f.entry.Finish(f.err)
		return
	}
	s.mu.Lock()
	s.unacked[f.entry.Seq] = f
	s.mu.Unlock()
	s.send(message{kind: record, seq: f.entry.Seq, memory: b.Target, bytes: n, flow: b.Flow}, true)
}

// receive handles what the peer sends until the connection ends.
func (s *session) receive() {
	defer close(s.reading)
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
	case withdraw:
		s.letGo(m.memory)
		s.send(message{kind: withdrawn, memory: m.memory}, false)
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
	if !known || !s.paid() {
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
	defer s.mu.Unlock()
	if err == nil {
		s.targets[m.memory] = region
		if len(s.granted) >= maxGranted {
			clear(s.granted)
		}
		s.granted[q.transfer] = struct{}{}
	}
	for _, f := range waiting {
		switch {
		case s.ending: // Flush finishes it
		case err != nil:
			f.entry.Finish(err)
		default:
			s.startLocked(f, region)
		}
	}
	return nil
}

// adopt maps memory of the peer. A peer whose memory is refused is told that
// it was let go of.
func (s *session) adopt(m message, file *os.File) (*regions.Region, error) {
	if file == nil {
		s.send(message{kind: withdrawn, memory: m.memory}, false)
		return nil, fmt.Errorf("no descriptor came: %w", memory.ErrNotMemory)
	}
	b, err := memory.MapSealed(file, m.bytes)
	if err != nil {
		s.send(message{kind: withdrawn, memory: m.memory}, false)
		return nil, err
	}
	return regions.New(m.memory, transport.Memory{Bytes: b}), nil
}

func (s *session) acknowledged(m message) error {
	s.mu.Lock()
	f := s.unacked[m.seq]
	delete(s.unacked, m.seq)
	s.mu.Unlock()
	if f == nil || !s.paid() {
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
	delete(s.granted, transfer)
	s.mu.Unlock()
	<-s.gate.Shut(transfer) // workers leave after their portion
	s.send(message{kind: revoked, flow: transport.Flow{Transfer: transfer}}, false)
}
