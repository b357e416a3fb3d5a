//go:build linux

// Package shm moves memory between pods of one node: the writer maps the
// reader's sealed memfd and copies into it, once. Movers meet at unix sockets
// in a directory that all pods of a pool mount; the descriptors pass through
// these, and each end keeps its connection, so that the end of a process is
// seen at once.
//
// A writer copies in portions of at most 1 MiB and looks before each whether it still
// may: whether memory and transfer are wanted, and whether the lease holds that the
// reader renews by its answers. When the reader's process has ended or is stopped, the
// writer pauses within the lease, goes on when it is renewed, and ends with the
// session. So an engine whose own agent has died knows by Mover.Linger when its blocks
// are its own again.
//
// No lease ends a copy that has begun: a process that is stopped in the midst of a
// portion goes on with it when it is continued, however much later. Unregister and
// Revoke therefore wait for the answer or the end of every writer that has the memory
// or leave for the transfer, never for time; where Unregister has to give up on one,
// Options.OnStuck tells. Linger is no such wait: for a writer that is stopped just
// when the reader's agent dies only the end of its process says that all is quiet.
package shm

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"time"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
	"github.com/pdpool/pdpool/transferagent/transport/internal/reception"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
	"github.com/pdpool/pdpool/transferagent/transport/internal/tuning"
	"github.com/pdpool/pdpool/transferagent/transport/memory"
)

// Options tune a mover. A zero field stands for its default.
type Options struct {
	Workers     int // goroutines that copy, for all sessions together; the number of CPUs, at most 4
	Queue       int // batches per session before Post blocks; 64
	MaxIncoming int // connections of peers at a time; 1024

	DialTimeout time.Duration // connect and welcome, also the wait for a hello; 5 s
	AckTimeout  time.Duration // between the answers of a peer that owes some, and for a message to leave; 10 s
	Withdrawal  time.Duration // for writers to let go of memory that is unregistered; 5 s
	Lease       time.Duration // for which a writer goes on without an answer from here; 2 s, at most 1 min

	// OnStuck, if set, is called when a writer did not let go of memory in
	// time: it was cut off, but when its process is only stopped it may still
	// finish the piece it was at, of at most 1 MiB. The memory must not be given
	// to anybody else before that process has ended. It must not block.
	OnStuck func(error)

	// Keys, if set, gives the pool's secrets as they are now. While there are any,
	// both ends of a connection prove that they know one before anything else.
	// Without, the token in Address is all that a peer must know. It is called once
	// a connection and must not block; an agent that has held a secret must never
	// give none again.
	Keys func() poolkey.Keys

	// Count, if set, is called for each thing that Dropped counts, with its
	// reason. It must neither block nor call the mover.
	Count func(reason string)
}

func (o Options) withDefaults() Options {
	o.Workers = cmp.Or(o.Workers, min(4, runtime.GOMAXPROCS(0)))
	o.Queue = cmp.Or(o.Queue, 64)
	o.MaxIncoming = cmp.Or(o.MaxIncoming, 1024)
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.AckTimeout = cmp.Or(o.AckTimeout, 10*time.Second)
	o.Withdrawal = cmp.Or(o.Withdrawal, 5*time.Second)
	o.Lease = cmp.Or(o.Lease, 2*time.Second)
	if o.OnStuck == nil {
		o.OnStuck = func(error) {}
	}
	return o
}

func (o Options) validate() error {
	if o.Lease < 0 || o.Lease > maxLease {
		return fmt.Errorf("lease is %v, not above 0 and at most %v", o.Lease, maxLease)
	}
	return tuning.Check([]tuning.Count{
		{Name: "workers", Value: o.Workers, Most: 256},
		{Name: "queue", Value: o.Queue, Most: maxQueue},
		{Name: "incoming connections", Value: o.MaxIncoming, Most: 1 << 16},
	}, o.DialTimeout, o.AckTimeout, o.Withdrawal)
}

// maxQueue is how many records fit into a socket's buffer, so that no worker
// ever waits for a peer to read them.
const maxQueue = 128

// Mover is a transport.Mover for peers of the same node.
type Mover struct {
	options  Options
	dir      string
	address  address
	listener *net.UnixListener
	memory   regions.Table
	claims   memory.Claims
	gate     regions.Gate
	received ledger.Ledger
	drops    ledger.Drops
	pool     *pool
	open     *reception.Reception[*inbound, *session]
}

var _ transport.Mover = (*Mover)(nil)

// New listens at the socket dir/name and serves peers that use the same
// directory until Close. The directory is made if need be. name tells the
// agents of a node apart, as a pod's uid does. A socket that a dead process
// left behind is replaced.
func New(dir, name string, o Options) (*Mover, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	l, err := listen(dir, name)
	if err != nil {
		return nil, fmt.Errorf("listen for transfers: %w", err)
	}
	m := &Mover{
		options:  o,
		dir:      dir,
		address:  address{name: name},
		listener: l,
		pool:     newPool(o.Workers),
		drops:    ledger.Drops{Count: o.Count},
	}
	// The processes of a node cannot be told apart: of those in other pods the
	// kernel gives no id.
	m.open = reception.New[*inbound, *session](reception.Usual(o.MaxIncoming), &m.drops)
	rand.Read(m.address.token[:])
	m.open.Accept(reception.Door[*inbound]{Next: m.next, Serve: (*inbound).serve, Cut: (*inbound).hangUp, End: (*inbound).end})
	return m, nil
}

// Register implements transport.Mover. The memory needs a File that passes
// memory.Inspect, and no other memory may be registered with that file.
func (m *Mover) Register(id transport.MemoryID, mem transport.Memory) error {
	if mem.File == nil {
		return fmt.Errorf("memory %d has no file: %w", id, memory.ErrNotMemory)
	}
	if err := memory.Inspect(mem.File, int64(len(mem.Bytes))); err != nil {
		return fmt.Errorf("memory %d: %w", id, err)
	}
	claim, err := m.claims.Claim(mem.File)
	if err != nil {
		return fmt.Errorf("memory %d: %w", id, err)
	}
	if err := m.memory.Register(id, mem); err != nil {
		m.claims.Release(claim)
		return err
	}
	return nil
}

// Unregister implements transport.Mover. A writer that does not let go within
// Options.Withdrawal is cut off; see Options.OnStuck.
func (m *Mover) Unregister(id transport.MemoryID) {
	r := m.memory.Unregister(id, m.options.Withdrawal, func() { m.withdraw(id) })
	if r == nil {
		return
	}
	// A file that was closed too early, which the caller must not, stays claimed.
	if claim, err := memory.Identify(r.Memory.File); err == nil {
		m.claims.Release(claim)
	}
}

// Linger implements transport.Mover: the lease and Margin.
func (m *Mover) Linger() time.Duration { return m.options.Lease + Margin }

// Revoke implements transport.Mover. It waits for the writers that have leave for the
// transfer, for each until it has answered or its process has ended: one that is
// stopped is waited for until ctx ends.
func (m *Mover) Revoke(ctx context.Context, transfer string) error {
	if err := m.gate.Revoke(ctx, transfer); err != nil {
		return err
	}
	return m.revokeAtPeers(ctx, transfer)
}

// Address implements transport.Mover: the socket's name and this incarnation's token.
func (m *Mover) Address() []byte { return m.address.bytes() }

// Socket is the path that peers connect to.
func (m *Mover) Socket() string { return filepath.Join(m.dir, m.address.name) }

// Received implements transport.Mover.
func (m *Mover) Received(transfer string) []transport.Count { return m.received.Received(transfer) }

// Dropped counts connections that could not be accepted, or were ended because
// of what came on them, by reason: accept, crowded, silent, hello, version, proof,
// stale, message. Of its own dials it counts, as listener-proof, those that ended
// because one of the two did not accept the other's proof.
func (m *Mover) Dropped() map[string]int64 { return m.drops.Counts() }

// Close implements transport.Mover. Writers are asked to let go of all memory first.
func (m *Mover) Close() error {
	sessions, first := m.open.Close()
	if !first {
		m.open.Wait()
		return nil
	}
	err := m.listener.Close()
	for _, s := range sessions {
		s.box.End(transport.ErrClosed)
	}
	for _, id := range m.memory.IDs() {
		m.Unregister(id)
	}
	for _, in := range m.open.Incoming() {
		in.abandon()
	}
	for _, s := range sessions {
		<-s.box.Ended()
	}
	m.open.Wait()
	m.pool.close()
	return err
}
