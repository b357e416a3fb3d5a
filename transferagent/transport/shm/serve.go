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

// maxLeaves is how many transfers a writer may have leave for at a time. One that
// gives its leaves back has no more than batches.
const maxLeaves = 4096

// next accepts a connection.
func (m *Mover) next() (*inbound, error) {
	conn, err := m.listener.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return &inbound{
		mover: m, conn: conn, gone: make(chan struct{}),
		given: map[transport.MemoryID]struct{}{}, leaves: map[string]struct{}{}, let: map[letGo]chan struct{}{},
	}, nil
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

	// sending orders what is sent: a descriptor is not given after its withdrawal.
	// It is taken before mu, which is never held for long.
	sending sync.Mutex

	mu        sync.Mutex
	cut       bool // nothing is said or taken any more
	abandoned bool // the connection was closed here while the peer had memory
	given     map[transport.MemoryID]struct{}
	leaves    map[string]struct{}     // transfers that the peer may be writing for
	let       map[letGo]chan struct{} // closed when the peer has let go
}

// letGo is what a peer was told to copy into no more: a memory or a transfer.
type letGo struct {
	answer   kind
	memory   transport.MemoryID
	transfer string
}

// welcome demands a proof of the pool's secret and answers a hello. The token is the
// right to be given descriptors.
func (in *inbound) welcome() bool {
	m := in.mover
	if err := in.conn.SetDeadline(time.Now().Add(m.options.DialTimeout)); err != nil {
		return false
	}
	if err := challenge.Accept(in.conn, m.options.Keys, mover); err != nil {
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
	answer := message{kind: welcome, bytes: int64(m.options.Lease)}
	if subtle.ConstantTimeCompare([]byte(msg.flow.Transfer), m.address.token[:]) != 1 {
		m.drops.Add("stale")
		answer.status = statusStale
	}
	if write(in.conn, answer, nil) != nil || answer.status != statusOK || in.conn.SetDeadline(time.Time{}) != nil {
		return false
	}
	m.open.Proved(in)
	return true
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

// run takes messages until the peer has closed its end, which is the last that a
// writer does. One that is cut off is listened to until then: it may be copying.
func (in *inbound) run() {
	for {
		msg, file, err := read(in.conn)
		drop(file)
		if err != nil && !errors.Is(err, errMessage) {
			return
		}
		if in.over() {
			continue
		}
		if err == nil {
			err = in.handle(msg)
		}
		if errors.Is(err, errMessage) {
			in.mover.drops.Add("message")
		}
		if err != nil {
			in.cutOff()
		}
	}
}

func (in *inbound) over() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.cut
}

// cutOff tells the peer that it has to end its session. As long as it has memory of
// ours only its own end says that it copies no more.
func (in *inbound) cutOff() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cut = true
	if len(in.given) == 0 {
		in.hangUp()
		return
	}
	in.conn.CloseWrite() //nolint:errcheck // a connection that has ended is seen by run
}

// abandon closes the connection, though the peer may have memory.
func (in *inbound) abandon() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.abandoned = len(in.given) > 0
	in.hangUp()
}

// handle answers a message.
func (in *inbound) handle(msg message) error {
	in.sending.Lock()
	defer in.sending.Unlock()
	switch msg.kind {
	case ask:
		out, file, err := in.answer(msg)
		if err != nil {
			return err
		}
		return in.send(out, file)
	case record:
		in.mover.received.Add(msg.flow, msg.bytes)
		if msg.status == last {
			in.mu.Lock()
			delete(in.leaves, msg.flow.Transfer)
			in.mu.Unlock()
		}
		return in.send(message{kind: acked, seq: msg.seq}, nil)
	case renew:
		return in.send(message{kind: granted}, nil)
	case withdrawn, revoked:
		in.hasLetGo(msg)
		return nil
	default:
		return fmt.Errorf("a writer sent a message of kind %d: %w", msg.kind, errMessage)
	}
}

// answer decides whether a peer may write into a memory for a transfer. It gives
// the memory's file the first time.
func (in *inbound) answer(msg message) (message, *os.File, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	transfer := msg.flow.Transfer
	out := message{kind: answer, memory: msg.memory, flow: transport.Flow{Transfer: transfer}}
	region, err := in.mover.memory.Find(msg.memory)
	switch {
	case err != nil:
		out.status = statusUnknownMemory
		return out, nil, nil
	case in.mover.gate.Revoked(transfer):
		out.status = statusRevoked
		return out, nil, nil
	}
	if _, known := in.leaves[transfer]; !known && len(in.leaves) == maxLeaves {
		return message{}, nil, fmt.Errorf("a writer asks for leave for more than %d transfers: %w", maxLeaves, errMessage)
	}
	in.leaves[transfer] = struct{}{}
	out.bytes = region.Size()
	if _, given := in.given[msg.memory]; given {
		return out, nil, nil
	}
	in.given[msg.memory] = struct{}{}
	return out, region.Memory.File, nil
}

// hasLetGo takes the answer to a withdrawal or revocation.
func (in *inbound) hasLetGo(msg message) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if msg.kind == withdrawn {
		delete(in.given, msg.memory)
	} else {
		delete(in.leaves, msg.flow.Transfer)
	}
	key := letGo{msg.kind, msg.memory, msg.flow.Transfer}
	if c := in.let[key]; c != nil {
		delete(in.let, key)
		close(c)
	}
}

// sendWithin is how long a message may take to leave: a writer reads what it is
// sent at once, and its socket holds many. One that is stopped must not keep
// others' revocations waiting.
const sendWithin = time.Second

// send writes a message; in.sending must be held.
func (in *inbound) send(msg message, f *os.File) error {
	if err := in.conn.SetWriteDeadline(time.Now().Add(sendWithin)); err != nil {
		return err
	}
	return write(in.conn, msg, f)
}

// tell sends a withdrawal or revocation and gives a channel that is closed when
// the peer has answered. A peer that cannot be told is cut off. Who has neither the
// memory nor leave for the transfer is not waited for: it will not be given what was
// withdrawn, nor let in for what was revoked.
func (in *inbound) tell(msg message, answer kind) <-chan struct{} {
	c, first := in.waitFor(letGo{answer, msg.memory, msg.flow.Transfer})
	if !first {
		return c
	}
	in.sending.Lock()
	defer in.sending.Unlock()
	if !in.over() && in.send(msg, nil) != nil {
		in.cutOff()
	}
	return c
}

// waitFor gives the channel that is closed when the peer has let go, and whether it
// has to be told yet.
func (in *inbound) waitFor(key letGo) (c chan struct{}, first bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if c := in.let[key]; c != nil {
		return c, false
	}
	_, has := in.given[key.memory]
	if key.answer == revoked {
		_, has = in.leaves[key.transfer]
	}
	if !has {
		return closed, false
	}
	c = make(chan struct{})
	in.let[key] = c
	return c, true
}

// closed stands for a peer that has nothing to let go of.
var closed = func() chan struct{} {
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
			in.cutOff()
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
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.abandoned {
			return fmt.Errorf("the writer was abandoned before it let go: %w", transport.ErrClosed)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
