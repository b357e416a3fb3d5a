package mem

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
	"github.com/pdpool/pdpool/transferagent/transport/internal/outbox"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
)

// queue is how many batches a session takes before Post blocks.
const queue = 64

// withdrawGrace never matters: no copy here blocks.
const withdrawGrace = time.Second

// Mover is a transport.Mover on a Network.
type Mover struct {
	network     *Network
	name        string
	incarnation uint64
	memory      regions.Table
	received    ledger.Ledger
	gate        regions.Gate

	mu       sync.Mutex
	closed   bool
	sessions map[*session]struct{} // that this mover dialled, or that were dialled to it
}

var _ transport.Mover = (*Mover)(nil)

// New joins a network under a name of at most 255 bytes that no open mover has.
func New(n *Network, name string) (*Mover, error) {
	if name == "" || len(name) > 255 {
		return nil, fmt.Errorf("mover name has %d bytes, not 1 to 255", len(name))
	}
	m := &Mover{network: n, name: name, sessions: map[*session]struct{}{}}
	if err := n.join(m); err != nil {
		return nil, err
	}
	return m, nil
}

// Register implements transport.Mover.
func (m *Mover) Register(id transport.MemoryID, mem transport.Memory) error {
	return m.memory.Register(id, mem)
}

// Unregister implements transport.Mover.
func (m *Mover) Unregister(id transport.MemoryID) { m.memory.Unregister(id, withdrawGrace, nil) }

// Linger implements transport.Mover: both ends are one process.
func (m *Mover) Linger() time.Duration { return 0 }

// Address implements transport.Mover.
func (m *Mover) Address() []byte {
	return append(binary.BigEndian.AppendUint64([]byte(magic), m.incarnation), m.name...)
}

const magic = "PDM1"

type address struct {
	name        string
	incarnation uint64
}

func parseAddress(b []byte) (address, error) {
	if len(b) < len(magic)+9 || len(b) > len(magic)+8+255 || string(b[:len(magic)]) != magic {
		return address{}, fmt.Errorf("mem address of %d bytes: %w", len(b), transport.ErrAddress)
	}
	b = b[len(magic):]
	return address{name: string(b[8:]), incarnation: binary.BigEndian.Uint64(b)}, nil
}

// Dial implements transport.Mover. The host is ignored.
func (m *Mover) Dial(ctx context.Context, _ string, addr []byte) (transport.Session, error) {
	a, err := parseAddress(addr)
	if err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("dial %q: %w", a.name, err)
	}
	peer, err := m.network.find(m.name, a)
	if err != nil {
		return nil, err
	}
	m.network.mu.Lock()
	stall := m.network.stall
	m.network.mu.Unlock()
	s := &session{
		from: m, to: peer, link: direction{m.name, peer.name}, stall: stall,
		box: outbox.New(queue), quiet: make(chan struct{}), arrived: make(chan struct{}, 1),
	}
	if !m.enter(s) || !peer.enter(s) {
		m.forget(s)
		s.box.End(transport.ErrClosed)
		s.box.Flush()
		return nil, fmt.Errorf("dial %q: %w", a.name, transport.ErrClosed)
	}
	go s.run()
	return s, nil
}

func (m *Mover) enter(s *session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.sessions[s] = struct{}{}
	return true
}

func (m *Mover) forget(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, s)
}

// Revoke implements transport.Mover.
func (m *Mover) Revoke(ctx context.Context, transfer string) error {
	return m.gate.Revoke(ctx, transfer)
}

// Received implements transport.Mover.
func (m *Mover) Received(transfer string) []transport.Count { return m.received.Received(transfer) }

// Close implements transport.Mover. Sessions that peers dialled to this mover
// end with transport.ErrPeerGone.
func (m *Mover) Close() error {
	m.network.leave(m)
	m.mu.Lock()
	m.closed = true
	own, foreign := []*session(nil), []*session(nil)
	for s := range m.sessions {
		if s.from == m {
			own = append(own, s)
		} else {
			foreign = append(foreign, s)
		}
	}
	m.mu.Unlock()
	for _, s := range foreign {
		s.box.End(fmt.Errorf("session to %q: %w", m.name, transport.ErrPeerGone))
	}
	for _, s := range own {
		s.box.End(fmt.Errorf("mover %q: %w", m.name, transport.ErrClosed))
	}
	for _, s := range foreign {
		<-s.quiet
	}
	for _, s := range own {
		<-s.box.Ended()
	}
	return nil
}
