// Package places bounds the open connections of an HTTP server, in all and from one
// host, so that who only holds connections open keeps nobody out.
package places

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Listener has so many open connections at most. A new one takes the place of the oldest
// on which no request is served (see Keep), from its own host where that has its share
// already; where all serve it is turned away: left alone it would keep others waiting.
type Listener struct {
	net.Listener
	most, perHost int
	closed        func()

	mu     sync.Mutex
	open   list.List // of *counted, the oldest first
	byHost map[netip.Addr]int
}

// Bound bounds the open connections of l, in all and from one host. closed is called for
// each connection that loses its place or gets none; it must not block.
func Bound(l net.Listener, most, perHost int, closed func()) *Listener {
	return &Listener{Listener: l, most: most, perHost: perHost, closed: closed, byHost: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &counted{Conn: conn, on: l, host: hostOf(conn)}
		out, ok := l.enter(c)
		for _, old := range out {
			l.closed()
			_ = old.Close() // its client has asked for nothing
		}
		if ok {
			return c, nil
		}
		l.closed()
		_ = conn.Close() // nothing was read or written
	}
}

// enter gives a connection a place, if there is one. Those that lose theirs for it are
// returned.
func (l *Listener) enter(c *counted) (out []*counted, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byHost[c.host] >= l.perHost {
		old := l.oldest(func(o *counted) bool { return o.host == c.host })
		if old == nil {
			return nil, false
		}
		l.drop(old)
		out = append(out, old)
	}
	if l.open.Len() >= l.most {
		old := l.oldest(func(*counted) bool { return true })
		if old == nil {
			return out, false
		}
		l.drop(old)
		out = append(out, old)
	}
	c.place = l.open.PushBack(c)
	l.byHost[c.host]++
	return out, true
}

// oldest finds the oldest connection of a kind that serves nothing; nil where all do.
// The caller holds mu.
func (l *Listener) oldest(of func(*counted) bool) *counted {
	for e := l.open.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*counted); !c.serving.Load() && of(c) {
			return c
		}
	}
	return nil
}

// drop takes a connection's place, if it has one. The caller holds mu.
func (l *Listener) drop(c *counted) {
	if c.place == nil {
		return
	}
	l.open.Remove(c.place)
	c.place = nil
	if l.byHost[c.host]--; l.byHost[c.host] == 0 {
		delete(l.byHost, c.host)
	}
}

// hostOf is the address that a connection comes from, the zero one when it has none.
func hostOf(conn net.Conn) netip.Addr {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	on      *Listener
	host    netip.Addr
	place   *list.Element // under on.mu
	serving atomic.Bool   // a request is being served
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.on.mu.Lock()
	c.on.drop(c)
	c.on.mu.Unlock()
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

type connKey struct{}

// ConnContext has requests know the connection that they came on: http.Server's field of
// that name.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*counted); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// Keep keeps a connection's place while a request of it is served.
func Keep(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*counted); ok {
			c.serving.Store(true)
			defer c.serving.Store(false)
		}
		next.ServeHTTP(w, r)
	})
}
