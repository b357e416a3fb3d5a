package zmtp

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Handler takes a message of at least one frame. It runs on the connection's own
// goroutine, one message after the other: a handler that takes its time slows down
// this peer alone. The frames are the handler's.
type Handler func(p *Peer, frames [][]byte)

// Peer is a connection that a Router has accepted.
type Peer struct {
	conn   *conn
	addr   netip.AddrPort
	router *Router
	before uint64
}

// Addr is where the peer connects from.
func (p *Peer) Addr() netip.AddrPort { return p.addr }

// Identity is what the peer calls itself, usually nothing. It proves nothing.
func (p *Peer) Identity() []byte { return p.conn.identity }

// Challenge is the random text that this connection was given, see Options.Challenge.
func (p *Peer) Challenge() string { return p.conn.challenge }

// Before is how many messages of this connection came before the one that the Handler
// has. Only the Handler may call it.
func (p *Peer) Before() uint64 { return p.before }

// Send queues a message to the peer and returns at once. The frames must not
// change any more. ErrFull says that the peer does not read what was sent before.
func (p *Peer) Send(frames ...[]byte) error {
	if len(frames) == 0 {
		return fmt.Errorf("message of 0 frames")
	}
	select {
	case <-p.conn.done:
		return p.conn.err
	default:
		return p.conn.enqueue(outgoing{bytes: encode(frames)})
	}
}

// Done is closed when the connection has ended.
func (p *Peer) Done() <-chan struct{} { return p.conn.done }

// Close ends the connection at once; what is queued for the peer is lost.
func (p *Peer) Close() { p.conn.close(ErrClosed) }

// Router is a listening ROUTER socket.
type Router struct {
	listener net.Listener
	o        Options
	stats    stats

	mu      sync.Mutex
	closed  bool
	open    map[*conn]netip.Addr
	proved  map[*conn]member   // open connections but those on trial and those that make room
	hosts   map[netip.Addr]int // of proved, by host
	members map[member][]*conn // of proved, those of a named member, the oldest first
	trials  list.List          // of *conn on trial, the oldest first
	onTrial map[netip.Addr]int // of them, by host

	ends sync.WaitGroup
}

// Listen binds addr, "host:port", ":port" or "[IPv6]:port". Connections wait in
// the system's backlog until Serve is called.
func Listen(ctx context.Context, addr string, o Options) (*Router, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return routerOn(l, o), nil
}

func routerOn(l net.Listener, o Options) *Router {
	r := &Router{
		listener: l,
		open:     map[*conn]netip.Addr{},
		proved:   map[*conn]member{},
		hosts:    map[netip.Addr]int{},
		members:  map[member][]*conn{},
		onTrial:  map[netip.Addr]int{},
	}
	r.o = o.withDefaults()
	count := o.Count
	r.o.Count = func(reason string) {
		r.stats.count(reason)
		if count != nil {
			count(reason)
		}
	}
	return r
}

// Addr is the address that Listen bound.
func (r *Router) Addr() net.Addr { return r.listener.Addr() }

// acceptPause is how long Serve waits when the system gives no connection.
const acceptPause = 50 * time.Millisecond

// Serve accepts connections and calls handle for their messages until ctx ends or
// Close is called; then it closes all connections, waits until no handler runs and
// returns nil. It is called once.
func (r *Router) Serve(ctx context.Context, handle Handler) error {
	stop := context.AfterFunc(ctx, r.Close)
	defer stop()
	defer r.ends.Wait()
	defer r.Close()
	for {
		nc, err := r.listener.Accept()
		switch {
		case err == nil:
			r.admit(ctx, nc, handle)
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			r.o.Count(AcceptFailed)
			select {
			case <-ctx.Done():
			case <-time.After(acceptPause):
			}
		}
	}
}

// Close ends the listener and every connection. It does not wait: Serve does.
func (r *Router) Close() {
	r.mu.Lock()
	r.closed = true
	conns := make([]*conn, 0, len(r.open))
	for c := range r.open {
		conns = append(conns, c)
	}
	r.mu.Unlock()
	// Closing twice, or a listener that is gone, is no news to the owner.
	_ = r.listener.Close()
	for _, c := range conns {
		c.close(ErrClosed)
	}
}

// admit starts a connection, or turns it away.
func (r *Router) admit(ctx context.Context, nc net.Conn, handle Handler) {
	addr := remoteAddr(nc)
	c := newConn(nc, r.o)
	c.probation()
	out, err := r.register(c, addr.Addr())
	for _, old := range out {
		old.close(errorf(MadeRoom, "a newer connection took its place"))
	}
	if err != nil {
		c.close(err)
		return
	}
	r.stats.accepted.Add(1)
	r.ends.Go(func() {
		defer r.forget(c)
		r.talk(ctx, &Peer{conn: c, addr: addr, router: r}, handle)
	})
}

// register gives a connection a place, on trial where there is one. Those that made
// room for it are returned, to be closed.
func (r *Router) register(c *conn, host netip.Addr) (out []*conn, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, ErrClosed
	case c.trial != nil:
		r.open[c] = host
		return r.seat(c, host), nil
	}
	if err := r.full(host); err != nil {
		return nil, err
	}
	r.open[c] = host
	r.settle(c, member{host: host})
	return nil, nil
}

func (r *Router) forget(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	host := r.open[c]
	delete(r.open, c)
	if c.trial != nil {
		r.unseat(c, host)
		return
	}
	r.leave(c)
}

// talk serves one connection to its end.
func (r *Router) talk(ctx context.Context, p *Peer, handle Handler) {
	c := p.conn
	if err := c.handshake(ctx, router, dealer, true); err != nil {
		c.close(err)
		return
	}
	r.stats.connected.Add(1)
	r.ends.Go(c.writeMessages)
	defer c.handled()
	for {
		frames, err := c.readMessage()
		if err != nil {
			c.close(err)
			return
		}
		r.stats.messages.Add(1)
		handle(p, frames)
		p.before++
		c.handled()
	}
}

// remoteAddr is the peer's address, IPv4 as IPv4; zero when it has none.
func remoteAddr(nc net.Conn) netip.AddrPort {
	a, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := a.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
