//go:build linux

package shm

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/challenge"
)

// next accepts a connection.
func (m *Mover) next() (*inbound, error) {
	conn, err := m.listener.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &inbound{mover: m, conn: conn, given: map[transport.MemoryID]struct{}{}, let: map[letGo]chan struct{}{}, gone: make(chan struct{})}, nil
}

func (in *inbound) serve() {
	if in.welcome() {
		in.run()
	}
}

func (in *inbound) hangUp() {
	in.conn.Close() //nolint:errcheck // run ends with it
}

func (in *inbound) end() {
	in.hangUp()
	close(in.gone)
}

// inbound is a peer that writes here.
type inbound struct {
	mover *Mover
	conn  *net.UnixConn
	gone  chan struct{} // closed when the connection has ended

	// mu orders what is sent: a descriptor is not given after its withdrawal.
	mu       sync.Mutex
	welcomed bool
	given    map[transport.MemoryID]struct{}
	let      map[letGo]chan struct{} // closed when the peer has let go
}

// letGo is what a peer was told to copy into no more: a memory or a transfer.
type letGo struct {
	answer   kind
	memory   transport.MemoryID
	transfer string
}

// welcome demands a proof of the pool's secret and answers a hello. The token is the right to be given descriptors.
func (in *inbound) welcome() bool {
	m := in.mover
	if err := in.conn.SetDeadline(time.Now().Add(m.options.DialTimeout)); err != nil {
		return false
	}
	if err := challenge.Accept(in.conn, m.options.keys(), mover); err != nil {
		m.refuse(err)
		return false
	}
	msg, file, err := read(in.conn)
	drop(file)
	switch {
	case err != nil && !errors.Is(err, errMessage):
		m.refuse(err)
		return false
	case err != nil || msg.kind != hello:
		m.drops.Add("hello")
		return false
	}
	answer := message{kind: welcome}
	if subtle.ConstantTimeCompare([]byte(msg.flow.Transfer), m.address.token[:]) != 1 {
		m.drops.Add("stale")
		answer.status = statusStale
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if err := write(in.conn, answer, nil); err != nil {
		return false
	}
	in.welcomed = answer.status == statusOK && in.conn.SetDeadline(time.Time{}) == nil
	if in.welcomed {
		m.open.Proved(in)
	}
	return in.welcomed
}

// refuse counts why somebody was not welcomed, unless this end closed the connection.
func (m *Mover) refuse(err error) {
	if !errors.Is(err, net.ErrClosed) {
		m.drops.Add(challenge.Reason(err))
	}
}

func drop(f *os.File) {
	if f != nil {
		f.Close() //nolint:errcheck // nobody asked for it
	}
}

func (in *inbound) run() {
	for {
		msg, file, err := read(in.conn)
		drop(file)
		if err == nil {
			err = in.handle(msg)
		}
		if errors.Is(err, errMessage) {
			in.mover.drops.Add("message")
		}
		if err != nil {
			return
		}
	}
}

func (in *inbound) handle(msg message) error {
	switch msg.kind {
	case ask:
		return in.answer(msg)
	case record:
		in.mover.received.Add(msg.flow, msg.bytes)
		in.mu.Lock()
		defer in.mu.Unlock()
		return in.send(message{kind: acked, seq: msg.seq}, nil)
	case withdrawn, revoked:
		in.mu.Lock()
		defer in.mu.Unlock()
		if msg.kind == withdrawn {
			delete(in.given, msg.memory)
		}
		key := letGo{msg.kind, msg.memory, msg.flow.Transfer}
		if c := in.let[key]; c != nil {
			delete(in.let, key)
			close(c)
		}
		return nil
	default:
		return fmt.Errorf("a writer sent a message of kind %d: %w", msg.kind, errMessage)
	}
}

// answer decides whether a peer may write into a memory for a transfer.
func (in *inbound) answer(msg message) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := message{kind: answer, memory: msg.memory, flow: transport.Flow{Transfer: msg.flow.Transfer}}
	region, err := in.mover.memory.Find(msg.memory)
	switch {
	case err != nil:
		out.status = statusUnknownMemory
		return in.send(out, nil)
	case in.mover.gate.Revoked(msg.flow.Transfer):
		out.status = statusRevoked
		return in.send(out, nil)
	}
	out.bytes = region.Size()
	if _, given := in.given[msg.memory]; given {
		return in.send(out, nil)
	}
	in.given[msg.memory] = struct{}{}
	return in.send(out, region.Memory.File)
}

// send writes a message; mu must be held.
func (in *inbound) send(msg message, f *os.File) error {
	if err := in.conn.SetWriteDeadline(time.Now().Add(in.mover.options.AckTimeout)); err != nil {
		return err
	}
	return write(in.conn, msg, f)
}

// tell sends a withdrawal or revocation and gives a channel that is closed when
// the peer has answered. A peer that cannot be told is cut off.
func (in *inbound) tell(msg message, answer kind) <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := letGo{answer, msg.memory, msg.flow.Transfer}
	if c := in.let[key]; c != nil {
		return c
	}
	// Who comes later is not given what was withdrawn, nor let in for what was revoked.
	if _, given := in.given[msg.memory]; !in.welcomed || msg.kind == withdraw && !given {
		return closed
	}
	c := make(chan struct{})
	in.let[key] = c
	if err := in.send(msg, nil); err != nil {
		in.conn.Close() //nolint:errcheck // run ends with it
	}
	return c
}

// closed stands for a peer that has nothing to let go of.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// withdraw has all writers let go of a memory, or cuts them off.
func (m *Mover) withdraw(id transport.MemoryID) {
	ctx, cancel := context.WithTimeout(context.Background(), m.options.Withdrawal)
	defer cancel()
	peers := m.open.Incoming()
	waits := make([]<-chan struct{}, len(peers))
	for i, in := range peers {
		waits[i] = in.tell(message{kind: withdraw, memory: id}, withdrawn)
	}
	for i, in := range peers {
		if err := in.await(ctx, waits[i]); err != nil {
			in.conn.Close() //nolint:errcheck // run ends with it
			m.options.OnStuck(fmt.Errorf("a writer did not let go of memory %d within %v: %w",
				id, m.options.Withdrawal, transport.ErrFrozen))
		}
	}
}

// revokeAtPeers has all writers stop copying for a transfer.
func (m *Mover) revokeAtPeers(ctx context.Context, transfer string) error {
	peers := m.open.Incoming()
	waits := make([]<-chan struct{}, len(peers))
	for i, in := range peers {
		waits[i] = in.tell(message{kind: revoke, flow: transport.Flow{Transfer: transfer}}, revoked)
	}
	for i, in := range peers {
		if err := in.await(ctx, waits[i]); err != nil {
			return fmt.Errorf("revoke transfer %q: %w", transfer, err)
		}
	}
	return nil
}

// await returns when a peer has let go, which its end means as well.
func (in *inbound) await(ctx context.Context, letGo <-chan struct{}) error {
	select {
	case <-letGo:
		return nil
	case <-in.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
