//go:build linux

package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/challenge"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ending"
)

// Dial implements transport.Mover. The host is ignored: the socket is looked
// for in the mover's own directory. It fails with transport.ErrStale when
// another incarnation listens there now, with transport.ErrUnproved when one of the
// two does not accept the other's proof of the pool's secret, with transport.ErrFrozen when the peer
// does not answer within Options.DialTimeout.
func (m *Mover) Dial(ctx context.Context, _ string, addr []byte) (transport.Session, error) {
	a, err := parseAddress(addr)
	if err != nil {
		return nil, err
	}
	path, err := socketPath(m.dir, a.name)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", a.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, m.options.DialTimeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, network, path)
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", a.name, err)
	}
	conn := c.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // greet fails on its own then
	})
	lease, err := greet(conn, a, m.options.Keys)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if errors.Is(err, transport.ErrUnproved) {
		m.drops.Add("listener-proof")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dial %q: %w", a.name, err), conn.Close())
	}
	s, err := newSession(m, a.name, conn, lease)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("dial %q: %w", a.name, err), conn.Close())
	}
	if !m.open.Enter(s) {
		s.box.End(transport.ErrClosed)
		s.box.Flush()
		return nil, errors.Join(fmt.Errorf("dial %q: %w", a.name, transport.ErrClosed), conn.Close())
	}
	s.start()
	return s, nil
}

// mover is this kind of mover in proofs.
const mover = "shm"

// greet gives the nanoseconds of the lease that the peer lets this side copy under.
func greet(conn *net.UnixConn, a address, keys func() poolkey.Keys) (lease int64, err error) {
	if err := challenge.Dial(conn, keys, mover); err != nil {
		return 0, ending.Of(err, errMessage)
	}
	if err := write(conn, message{kind: hello, flow: transport.Flow{Transfer: string(a.token[:])}}, nil); err != nil {
		return 0, fmt.Errorf("send hello: %w", err)
	}
	m, file, err := read(conn)
	drop(file)
	if err != nil {
		return 0, fmt.Errorf("await welcome: %w", ending.Of(err, errMessage))
	}
	if m.kind != welcome {
		return 0, fmt.Errorf("message of kind %d instead of a welcome: %w", m.kind, errMessage)
	}
	return m.bytes, m.status.err()
}
