package main

import (
	"net"
	"net/netip"
	"sync"
)

// How many connections are open at once: those of requests in work and as many again
// that are read or idle, some for a router that may do little, and those of probes.
const (
	connsPerWork = 4
	spareConns   = 4096
	opsConns     = 256
)

// limited is a listener with so many open connections at most, half of them from one
// host. More are closed at once: left alone they would keep others waiting.
type limited struct {
	net.Listener
	most int

	mu     sync.Mutex
	all    int
	byHost map[netip.Addr]int
}

// bounded bounds the open connections of l.
func bounded(l net.Listener, most int) *limited {
	return &limited{Listener: l, most: most, byHost: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostOf(conn)
		if l.enter(host) {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close() // nothing was read or written
	}
}

func (l *limited) enter(host netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most || l.byHost[host] >= l.most/2 {
		return false
	}
	l.all++
	l.byHost[host]++
	return true
}

func (l *limited) leave(host netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.byHost[host]--; l.byHost[host] == 0 {
		delete(l.byHost, host)
	}
}

func hostOf(conn net.Conn) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// CloseWrite lets net/http end an answer before the client has sent all: the client
// would otherwise lose it.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
