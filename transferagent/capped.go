package transferagent

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Connections that the HTTP port serves at a time. A prober opens one for each probe,
// a scraper keeps one; a host that wants more must not take the probes' places.
const (
	httpConns     = 512
	httpHostConns = 32
)

// capped is a listener of which only so many connections are open, in all and from one
// host. A new one takes the place of the oldest that no request is being answered on,
// so that a probe gets in beside a crowd, from its own host too; without such a one it
// is turned away.
type capped struct {
	net.Listener
	limit, perHost int
	ended          func() // called for each connection that is ended or turned away

	mu    sync.Mutex
	open  list.List // of *placed, the oldest first
	hosts map[netip.Addr]int
}

func newCapped(l net.Listener, limit, perHost int, ended func()) *capped {
	return &capped{Listener: l, limit: limit, perHost: perHost, ended: ended, hosts: map[netip.Addr]int{}}
}

// Accept implements net.Listener.
func (l *capped) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		p := &placed{Conn: c, host: hostOf(c), on: l}
		out, ok := l.take(p)
		for _, old := range out {
			l.ended()
			_ = old.Close()
		}
		if ok {
			return p, nil
		}
		l.ended()
		_ = c.Close()
	}
}

// take gives a connection a place. Those that lose theirs for it are returned.
func (l *capped) take(p *placed) (out []*placed, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts[p.host] >= l.perHost {
		old := l.oldest(func(o *placed) bool { return o.host == p.host })
		if old == nil {
			return nil, false
		}
		l.drop(old)
		out = append(out, old)
	}
	if l.open.Len() >= l.limit {
		old := l.oldest(func(*placed) bool { return true })
		if old == nil {
			return out, false
		}
		l.drop(old)
		out = append(out, old)
	}
	p.place = l.open.PushBack(p)
	l.hosts[p.host]++
	return out, true
}

// oldest finds the oldest connection of a kind that waits for its client. The caller
// holds mu.
func (l *capped) oldest(of func(*placed) bool) *placed {
	for e := l.open.Front(); e != nil; e = e.Next() {
		if p := e.Value.(*placed); !p.serving.Load() && of(p) {
			return p
		}
	}
	return nil
}

// drop takes a connection's place, if it has one. The caller holds mu.
func (l *capped) drop(p *placed) {
	if p.place == nil {
		return
	}
	l.open.Remove(p.place)
	p.place = nil
	if l.hosts[p.host]--; l.hosts[p.host] == 0 {
		delete(l.hosts, p.host)
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
	on      *capped
	host    netip.Addr
	place   *list.Element // under on.mu
	serving atomic.Bool   // a request is being answered
}

// Close implements net.Conn.
func (p *placed) Close() error {
	p.on.mu.Lock()
	p.on.drop(p)
	p.on.mu.Unlock()
	return p.Conn.Close()
}

type placedKey struct{}

// withPlace has requests know the connection that they came on.
func withPlace(ctx context.Context, c net.Conn) context.Context {
	if p, ok := c.(*placed); ok {
		return context.WithValue(ctx, placedKey{}, p)
	}
	return ctx
}

// serving keeps a connection's place while a request of it is answered.
func serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(placedKey{}).(*placed); ok {
			p.serving.Store(true)
			defer p.serving.Store(false)
		}
		next.ServeHTTP(w, r)
	})
}
