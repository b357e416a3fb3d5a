package transferagent

import (
	"net"
	"sync"
)

// httpConns is how many connections the HTTP port serves at a time.
const httpConns = 512

// capped is a listener that turns connections away while enough are open.
type capped struct {
	net.Listener
	places chan struct{}
	turned func() // called for each connection that is turned away
}

func newCapped(l net.Listener, limit int, turned func()) *capped {
	return &capped{Listener: l, places: make(chan struct{}, limit), turned: turned}
}

// Accept implements net.Listener.
func (l *capped) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &placed{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			l.turned()
			_ = c.Close()
		}
	}
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
