package router

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/pdpool/pdpool/router/wire"
)

// network joins servers and clients by pipes, so that time can be simulated: a deadline
// passes when everything waits, however slow the machine is.
type network struct {
	mu        sync.Mutex
	listeners map[string]*pipes
}

// networks are those of tests in a bubble, by their testing.TB.
var networks sync.Map

// bubble runs a test on a simulated network in simulated time. What newRig, newEngine and
// newAgent make for its t is part of it.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		networks.Store(t, &network{listeners: map[string]*pipes{}})
		defer networks.Delete(t)
		f(t)
	})
}

// networkOf is nil for a test that uses the machine's own.
func networkOf(t testing.TB) *network {
	n, _ := networks.Load(t)
	in, _ := n.(*network)
	return in
}

// serve starts a server on the network of a test.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	n := networkOf(t)
	if n == nil {
		return httptest.NewServer(h)
	}
	s := &httptest.Server{Listener: n.listen(), Config: &http.Server{Handler: h}}
	s.Start()
	s.Client().Transport.(*http.Transport).DialContext = n.dial
	return s
}

// dial connects to a server on the network of a test.
func dial(t testing.TB, s *httptest.Server) net.Conn {
	t.Helper()
	connect := new(net.Dialer).DialContext
	if n := networkOf(t); n != nil {
		connect = n.dial
	}
	c, err := connect(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// join has a router reach its engines by the network.
func (n *network) join(s *Server) {
	s.transport = wire.New(wire.Options{Idle: idleEngine, MaxIdle: idlePerPod, MaxHeader: maxAnswerHeader, Connect: n.dial})
}

func (n *network) listen() *pipes {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &pipes{at: loopback(10_000 + len(n.listeners)), conns: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[p.at.String()] = p
	return p
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	p := n.listeners[address]
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	if p == nil {
		return nil, refused
	}
	near, far := net.Pipe()
	select {
	case p.conns <- end{far, p.at, loopback(1)}:
		return end{near, loopback(1), p.at}, nil
	case <-p.done:
		return nil, refused
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: ctx.Err()}
	}
}

func loopback(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

// end is an end of a pipe, with addresses.
type end struct {
	net.Conn
	local, remote *net.TCPAddr
}

func (e end) LocalAddr() net.Addr  { return e.local }
func (e end) RemoteAddr() net.Addr { return e.remote }

// pipes is a listener on a network.
type pipes struct {
	at    *net.TCPAddr
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (p *pipes) Addr() net.Addr { return p.at }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}
