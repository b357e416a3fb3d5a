package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport/internal/challenge"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
)

func (m *Mover) serve(conn *net.TCPConn) {
	if m.welcome(conn) {
		newReceiver(m, conn).run()
	}
}

// host tells apart where connections come from.
func host(conn *net.TCPConn) string {
	if at, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return at.AddrPort().Addr().Unmap().String()
	}
	return ""
}

func end(conn *net.TCPConn) {
	conn.Close() //nolint:errcheck // nothing is left to do with it
}

// welcome demands a proof of the pool's secret and answers a hello. The token is the
// right to write here, so it is never told to who does not know it.
func (m *Mover) welcome(conn *net.TCPConn) bool {
	if err := conn.SetDeadline(time.Now().Add(m.options.DialTimeout)); err != nil {
		return false
	}
	if err := challenge.Accept(conn, m.options.Keys, kind); err != nil {
		m.refuse(err)
		return false
	}
	var b [helloSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		m.refuse(err)
		return false
	}
	t, err := parseHello(b)
	answer := statusOK
	switch {
	case errors.Is(err, errVersion):
		m.drops.Add("version")
	case err != nil:
		m.drops.Add("hello")
		return false
	case !t.equal(m.address.token):
		m.drops.Add("stale")
		answer = statusStale
	}
	if _, err := conn.Write(welcomeBytes(answer)); err != nil {
		return false
	}
	if err != nil || answer != statusOK || conn.SetDeadline(time.Time{}) != nil {
		return false
	}
	m.open.Proved(conn)
	return true
}

// refuse counts why somebody was not welcomed, unless this end closed the connection.
func (m *Mover) refuse(err error) {
	if !errors.Is(err, net.ErrClosed) {
		m.drops.Add(challenge.Reason(err))
	}
}

// receiver takes the frames of one connection, one after another.
type receiver struct {
	mover *Mover
	conn  *net.TCPConn
	user  regions.User
	in    placer
	runs  runs // of the frame that is being read
	out   [ackSize]byte
}

func newReceiver(m *Mover, conn *net.TCPConn) *receiver {
	r := &receiver{mover: m, conn: conn}
	r.user.Hurry = func() {
		conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed connection fails the read
	}
	r.in.conn = conn
	return r
}

func (r *receiver) run() {
	for {
		var b [headerSize]byte
		if _, err := io.ReadFull(r.conn, b[:]); err != nil {
			return // the peer has ended its session, or died
		}
		err := r.frame(b)
		switch {
		case err == nil:
			continue
		case errors.Is(err, errFrame):
			r.mover.drops.Add("frame")
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.mover.drops.Add("stalled")
		}
		return
	}
}

// frame takes one frame to its end and answers it. On an error the stream
// cannot go on.
func (r *receiver) frame(b [headerSize]byte) error {
	h, err := parseHeader(b)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(r.mover.options.FrameTimeout)
	if err := r.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	in, back := r.mover.intakes.take()
	defer func() {
		clear(in.vectors[:cap(in.vectors)]) // they point into memory that is not held from here on
		back()
	}()
	r.in.intake = in
	if err := r.places(&h); err != nil {
		return err
	}
	r.in.left = int64(h.payload)
	answer, placed, err := r.place(h)
	if err != nil {
		return err
	}
	// A hurry leaves the deadline in the past.
	if err := r.conn.SetReadDeadline(deadline); err != nil {
		return err
	}
	if err := r.in.discard(); err != nil {
		return err
	}
	r.mover.received.Add(h.flow, placed)
	if err := r.conn.SetWriteDeadline(time.Now().Add(r.mover.options.WriteStall)); err != nil {
		return err
	}
	if _, err := r.conn.Write(appendAck(r.out[:0], ack{answer, h.seq, placed})); err != nil {
		return err
	}
	return r.conn.SetReadDeadline(time.Time{})
}

// places reads what is between header and payload.
func (r *receiver) places(h *header) error {
	n := h.rest()
	if cap(r.in.rest) < n {
		r.in.rest = make([]byte, n)
	}
	rest := r.in.rest[:n]
	if _, err := io.ReadFull(r.conn, rest); err != nil {
		return err
	}
	h.flow.Transfer = string(rest[:h.name])
	all, err := parseRuns(rest[h.name:], h.payload)
	r.runs = all
	return err
}

// place reads the payload into memory, if all of it may go there. It stops when
// the memory is withdrawn or the transfer revoked meanwhile.
func (r *receiver) place(h header) (status, int64, error) {
	region, err := r.mover.memory.Find(h.target)
	if err != nil {
		return statusUnknownMemory, 0, nil
	}
	if !r.runs.within(region.Size()) {
		return statusBounds, 0, nil
	}
	if !region.Acquire(&r.user) {
		return statusUnknownMemory, 0, nil
	}
	defer region.Release(&r.user)
	pass, ok := r.mover.gate.Enter(h.flow.Transfer, &r.user)
	if !ok {
		return statusRevoked, 0, nil
	}
	defer pass.Leave(&r.user)
	err = r.in.place(region.Bytes(), r.runs)
	placed := int64(h.payload) - r.in.left
	switch {
	case err == nil:
		return statusOK, placed, nil
	case !errors.Is(err, os.ErrDeadlineExceeded):
	case region.Gone():
		return statusUnknownMemory, placed, nil
	case pass.Gone():
		return statusRevoked, placed, nil
	}
	// What has been placed of a frame that never ends counts as well.
	r.mover.received.Add(h.flow, placed)
	return 0, 0, fmt.Errorf("payload: %w", err)
}
