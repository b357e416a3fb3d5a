// Package tcp moves memory between hosts. The sender gathers strided pieces
// into a stream, the receiver checks where each of them goes and reads it
// straight into its place; every frame is answered after its last byte.
//
// A mover takes bytes only from who knows the random token in its Address,
// which is handed over on the control connection, and with Options.Keys only from
// who proves to know the pool's secret; to others it sends none.
package tcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"time"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
	"github.com/pdpool/pdpool/transferagent/transport/internal/reception"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
	"github.com/pdpool/pdpool/transferagent/transport/internal/tuning"
)

// Options tune a mover. A zero field stands for its default.
type Options struct {
	Connections int // per session that is dialled; 2
	Queue       int // batches per session before Post blocks; 64
	MaxIncoming int // connections of peers at a time; 1024

	DialTimeout  time.Duration // connect and welcome, also the wait for a hello; 5 s
	WriteStall   time.Duration // for one frame to leave; 10 s
	AckTimeout   time.Duration // between the answers of a peer that owes some; 10 s
	FrameTimeout time.Duration // for a frame to arrive whole once it has begun; 30 s
	CloseTimeout time.Duration // for the answers still owed when a session closes; 2 s
	Withdrawal   time.Duration // for a write to end before Unregister cuts it; 5 s

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
	o.Connections = cmp.Or(o.Connections, 2)
	o.Queue = cmp.Or(o.Queue, 64)
	o.MaxIncoming = cmp.Or(o.MaxIncoming, 1024)
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.WriteStall = cmp.Or(o.WriteStall, 10*time.Second)
	o.AckTimeout = cmp.Or(o.AckTimeout, 10*time.Second)
	o.FrameTimeout = cmp.Or(o.FrameTimeout, 30*time.Second)
	o.CloseTimeout = cmp.Or(o.CloseTimeout, 2*time.Second)
	o.Withdrawal = cmp.Or(o.Withdrawal, 5*time.Second)
	return o
}

func (o Options) validate() error {
	return tuning.Check([]tuning.Count{
		{Name: "connections", Value: o.Connections, Most: 64},
		{Name: "queue", Value: o.Queue, Most: 1 << 16},
		{Name: "incoming connections", Value: o.MaxIncoming, Most: 1 << 16},
	}, o.DialTimeout, o.WriteStall, o.AckTimeout, o.FrameTimeout, o.CloseTimeout, o.Withdrawal)
}

// keepAlive finds a host that went away without a word within 30 s.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// Mover is a transport.Mover over TCP.
type Mover struct {
	options  Options
	listener *net.TCPListener
	address  address
	memory   regions.Table
	gate     regions.Gate
	received ledger.Ledger
	drops    ledger.Drops
	frames   *stock[frame]
	intakes  *stock[intake]
	open     *reception.Reception[*net.TCPConn, *session]
}

var _ transport.Mover = (*Mover)(nil)

// New listens on an address as net.Listen takes it (":0" for all addresses, IPv4
// and IPv6, and a free port) and serves peers until Close.
func New(listen string, o Options) (*Mover, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := config.Listen(context.Background(), "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("listen for transfers: %w", err)
	}
	m := &Mover{
		options:  o,
		listener: l.(*net.TCPListener),
		address:  address{port: uint16(l.Addr().(*net.TCPAddr).Port)},
		drops:    ledger.Drops{Count: o.Count},
		frames:   newFrames(),
		intakes:  newIntakes(),
	}
	m.open = reception.New[*net.TCPConn, *session](reception.Usual(o.MaxIncoming), &m.drops)
	rand.Read(m.address.token[:])
	m.open.Accept(reception.Door[*net.TCPConn]{Next: m.listener.AcceptTCP, Host: host, Serve: m.serve, Cut: end, End: end})
	return m, nil
}

// Register implements transport.Mover.
func (m *Mover) Register(id transport.MemoryID, mem transport.Memory) error {
	return m.memory.Register(id, mem)
}

// Unregister implements transport.Mover. Frames that are on their way into the
// memory are read to the void; a session whose write out of it is stuck for
// longer than Options.Withdrawal is cut.
func (m *Mover) Unregister(id transport.MemoryID) {
	m.memory.Unregister(id, m.options.Withdrawal, nil)
}

// Revoke implements transport.Mover.
func (m *Mover) Revoke(ctx context.Context, transfer string) error {
	return m.gate.Revoke(ctx, transfer)
}

// Linger implements transport.Mover: what peers send is placed by this process alone,
// and with its end the kernel throws away what it has not taken.
func (m *Mover) Linger() time.Duration { return 0 }

// Address implements transport.Mover: the port and this incarnation's token.
func (m *Mover) Address() []byte { return m.address.bytes() }

// Port is the TCP port that peers dial.
func (m *Mover) Port() int { return int(m.address.port) }

// Received implements transport.Mover.
func (m *Mover) Received(transfer string) []transport.Count { return m.received.Received(transfer) }

// Dropped counts connections that could not be accepted, or were ended because
// of what came on them, by reason: accept, crowded, silent, hello, version, proof,
// stale, frame, stalled. Of its own dials it counts, as listener-proof, those that
// ended because one of the two did not accept the other's proof.
func (m *Mover) Dropped() map[string]int64 { return m.drops.Counts() }

// Close implements transport.Mover.
func (m *Mover) Close() error {
	sessions, first := m.open.Close()
	if !first {
		m.open.Wait()
		return nil
	}
	for _, c := range m.open.Incoming() {
		end(c)
	}
	err := m.listener.Close()
	for _, s := range sessions {
		s.box.End(transport.ErrClosed)
	}
	for _, s := range sessions {
		<-s.box.Ended()
	}
	m.open.Wait()
	return err
}
