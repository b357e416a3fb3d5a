package tcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/challenge"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ending"
)

// Dial implements transport.Mover. It fails with transport.ErrStale when
// another incarnation listens at the address now, with transport.ErrUnproved when
// one of the two does not accept the other's proof of the pool's secret, with transport.ErrFrozen when
// the peer accepts but does not answer within Options.DialTimeout.
func (m *Mover) Dial(ctx context.Context, host string, addr []byte) (transport.Session, error) {
	a, err := parseAddress(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.options.DialTimeout)
	defer cancel()
	hostport := net.JoinHostPort(host, strconv.Itoa(int(a.port)))
	conns := make([]*net.TCPConn, 0, m.options.Connections)
	for range m.options.Connections {
		c, err := connect(ctx, hostport, a.token, m.options.Keys)
		if err != nil {
			if errors.Is(err, transport.ErrUnproved) {
				m.drops.Add("listener-proof")
			}
			closeAll(conns)
			return nil, fmt.Errorf("dial %s: %w", hostport, err)
		}
		conns = append(conns, c)
	}
	s := newSession(m, hostport, conns)
	if !m.open.Enter(s) {
		closeAll(conns)
		s.box.End(transport.ErrClosed)
		s.box.Flush()
		return nil, fmt.Errorf("dial %s: %w", hostport, transport.ErrClosed)
	}
	s.start()
	return s, nil
}

func closeAll(conns []*net.TCPConn) {
	for _, c := range conns {
		c.Close() //nolint:errcheck // the dial has failed already
	}
}

// connect makes one connection that the peer has welcomed.
func connect(ctx context.Context, hostport string, t token, keys func() poolkey.Keys) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAliveConfig: keepAlive}
	c, err := dialer.DialContext(ctx, "tcp", hostport)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // greet fails on its own then
	})
	err = greet(conn, t, keys)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// kind is this mover's in proofs.
const kind = "tcp"

func greet(conn *net.TCPConn, t token, keys func() poolkey.Keys) error {
	if err := challenge.Dial(conn, keys, kind); err != nil {
		return ending.Of(err)
	}
	if _, err := conn.Write(helloBytes(t)); err != nil {
		return fmt.Errorf("send hello: %w", err)
	}
	var b [welcomeSize]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return fmt.Errorf("await welcome: %w", ending.Of(err))
	}
	s, err := parseWelcome(b)
	if err != nil {
		return fmt.Errorf("await welcome: %w", err)
	}
	return s.err()
}
