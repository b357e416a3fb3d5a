package tcp

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ending"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
	"github.com/pdpool/pdpool/transferagent/transport/internal/strided"
)

// direct is the length from which a piece goes from memory into the socket, or
// from the socket into memory, without a buffer between: below it a copy is
// cheaper than one more vector for the kernel.
const direct = 16 << 10

// lane is one connection of a session: a goroutine that sends frames and one
// that reads the answers.
type lane struct {
	session *session
	conn    *net.TCPConn
	user    regions.User

	mu   sync.Mutex
	seq  uint64
	owed []*flight // frames sent, in order, whose answers are due
}

func newLane(s *session, c *net.TCPConn) *lane {
	l := &lane{session: s, conn: c}
	l.user.Cut = func() { s.fail(fmt.Errorf("write stuck in memory that was unregistered: %w", transport.ErrFrozen)) }
	return l
}

// shut ends both goroutines at once. Unsent bytes are thrown away.
func (l *lane) shut() {
	l.conn.SetLinger(0) //nolint:errcheck // Close does without
	l.conn.Close()      //nolint:errcheck // nothing is left to do with it
}

// send writes frames until the session ends.
func (l *lane) send() {
	for l.session.wait() {
		if !l.sendOne() {
			return
		}
	}
}

// sendOne writes the next frame, if there is one. It gives false when the
// connection cannot go on.
func (l *lane) sendOne() bool {
	w, back := l.session.mover.frames.take()
	defer back()
	f := l.session.next(w)
	if f == nil {
		return true
	}
	if !f.source.Acquire(&l.user) {
		l.session.answered(f, 0, fmt.Errorf("source memory %d: %w", f.source.ID, transport.ErrUnknownMemory))
		return true
	}
	err := l.write(f, w)
	f.source.Release(&l.user)
	if err != nil {
		// The frame stays owed: Flush finishes its batch.
		l.session.fail(fmt.Errorf("send: %w", ending.Of(err)))
	}
	return err == nil
}

func (l *lane) write(f *flight, w *frame) error {
	now := time.Now()
	h := header{target: f.entry.Batch.Target, payload: int(strided.Bytes(w.copies)), runs: len(w.copies), flow: f.entry.Batch.Flow}
	h.seq = l.owe(f, now)
	w.gather(h, f.source.Bytes())
	if err := l.conn.SetWriteDeadline(now.Add(l.session.mover.options.WriteStall)); err != nil {
		return err
	}
	vectors := w.vectors // WriteTo consumes what it is called on
	_, err := vectors.WriteTo(l.conn)
	clear(w.vectors) // they point into memory that is not held from here on
	return err
}

// gather lays out a frame: header and short pieces in staging, long pieces
// where they are.
func (w *frame) gather(h header, mem []byte) {
	b := appendHeader(w.staging[:0], h)
	for _, c := range w.copies {
		b = appendRun(b, target(c))
	}
	w.vectors = w.vectors[:0]
	from := 0 // staging before it is in vectors already
	for _, c := range w.copies {
		length, count := c.Length, c.Count
		if c.SrcStride == length {
			length, count = c.Bytes(), 1
		}
		if length >= direct {
			if from < len(b) {
				w.vectors = append(w.vectors, b[from:len(b):len(b)])
				from = len(b)
			}
			for i := range int64(count) {
				at := c.Src + i*c.SrcStride
				w.vectors = append(w.vectors, mem[at:at+length])
			}
			continue
		}
		for i := range int64(count) {
			at := c.Src + i*c.SrcStride
			b = append(b, mem[at:at+length]...)
		}
	}
	if from < len(b) {
		w.vectors = append(w.vectors, b[from:])
	}
}

// owe notes a frame before it is sent and starts the clock of its answer.
func (l *lane) owe(f *flight, now time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owed = append(l.owed, f)
	if len(l.owed) == 1 {
		l.deadline(now.Add(l.session.mover.options.AckTimeout))
	}
	l.seq++
	return l.seq
}

func (l *lane) deadline(t time.Time) {
	l.conn.SetReadDeadline(t) //nolint:errcheck // a closed connection fails the read
}

// receive reads answers until the connection ends.
func (l *lane) receive() {
	var b [ackSize]byte
	next := uint64(1)
	for {
		if _, err := io.ReadFull(l.conn, b[:]); err != nil {
			l.session.fail(fmt.Errorf("await answer: %w", ending.Of(err)))
			return
		}
		a, err := parseAck(b)
		f := l.paid()
		if err != nil || f == nil || a.seq != next {
			l.session.fail(fmt.Errorf("answer to frame %d, not to %d: %w", a.seq, next, errFrame))
			return
		}
		next++
		if err := a.status.err(); err != nil {
			l.session.answered(f, a.placed, fmt.Errorf("target memory %d: %w", f.entry.Batch.Target, err))
		} else {
			l.session.answered(f, a.placed, nil)
		}
	}
}

// paid takes the oldest owed frame; nil when there is none. The clock of the
// next one runs from now: a deadline measures the peer, not its queue.
func (l *lane) paid() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.owed) == 0 {
		return nil
	}
	f := l.owed[0]
	l.owed[0] = nil
	if l.owed = l.owed[1:]; len(l.owed) == 0 {
		l.deadline(time.Time{})
	} else {
		l.deadline(time.Now().Add(l.session.mover.options.AckTimeout))
	}
	return f
}
