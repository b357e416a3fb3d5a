package transferagent

import (
	"net"
	"net/netip"
	"sync"
)

// Connections that the HTTP port serves at a time. A prober opens one for each probe,
// a scraper keeps one; a host that wants more must not take the probes' places.
const (
	httpConns     = 512
	httpHostConns = 32
)

// capped is a listener that turns connections away while enough are open, in all or
// from their host.
type capped struct {
	net.Listener
	limit, perHost int
	turned         func() // called for each connection that is turned away

	mu    sync.Mutex
	open  int
	hosts map[netip.Addr]int // open ones, of hosts that have any
}

func newCapped(l net.Listener, limit, perHost int, turned func()) *capped {
	return &capped{Listener: l, limit: limit, perHost: perHost, turned: turned, hosts: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *capped) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostOf(c)
		if l.take(host) {
			return &placed{Conn: c, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		l.turned()
		_ = c.Close()
	}
}

func (l *capped) take(host netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.limit || l.hosts[host] >= l.perHost {
		return false
	}
	l.open++
	l.hosts[host]++
	return true
}

func (l *capped) leave(host netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.hosts[host]--; l.hosts[host] == 0 {
		delete(l.hosts, host)
	}
}

// hostOf is the address that a connection comes from, the zero one when it has none.
func hostOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

// placed is a connection that gives its place back when it is closed.
type placed struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
