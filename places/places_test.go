package places

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

const patience = time.Minute

func loopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// crowd is a listener with few places and its clients.
type crowd struct {
	*Listener
	t        *testing.T
	accepted chan *counted
	closed   atomic.Int64
}

func newCrowd(t *testing.T, most, perHost int) *crowd {
	t.Helper()
	inner := loopback(t)
	c := &crowd{t: t, accepted: make(chan *counted)}
	c.Listener = Bound(inner, most, perHost, func() { c.closed.Add(1) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := c.Accept()
			if err != nil {
				return
			}
			c.accepted <- conn.(*counted)
		}
	}()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c
}

func (c *crowd) dial() net.Conn {
	c.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(c.t.Context(), "tcp", c.Addr().String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (c *crowd) taken() *counted {
	c.t.Helper()
	select {
	case conn := <-c.accepted:
		return conn
	case <-time.After(patience):
		c.t.Fatal("a connection is not taken")
	}
	panic("not reached")
}

func (c *crowd) ended(what string, conn net.Conn) {
	c.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		c.t.Errorf("%s: %v", what, err)
	}
}

// TestConnectionsAreBounded: one host gets half of the connections. A new one takes the
// place of the oldest that serves nothing; where all serve it is closed at once.
func TestConnectionsAreBounded(t *testing.T) {
	c := newCrowd(t, 4, 2)
	c.dial()
	first := c.taken()
	first.serving.Store(true)
	idle := c.dial()
	c.taken()
	c.dial()
	third := c.taken()
	c.ended("the oldest that serves nothing", idle)
	third.serving.Store(true)
	c.ended("one too many", c.dial())
	if n := c.closed.Load(); n != 2 {
		t.Errorf("%d are counted as closed", n)
	}
	if first.CloseWrite() != nil {
		t.Error("an answer can't be ended before the connection")
	}
	_ = first.Close()
	_ = first.Close() // counts once
	c.dial()
	fourth := c.taken()
	if n := c.open.Len(); n != 2 {
		t.Errorf("%d are counted", n)
	}
	for _, conn := range []net.Conn{third, fourth} {
		_ = conn.Close()
	}
	if c.open.Len() != 0 || len(c.byHost) != 0 {
		t.Errorf("%d are counted, %v", c.open.Len(), c.byHost)
	}
}

// TestRequestKeepsItsPlace: who is served stays, who only holds a connection goes.
func TestRequestKeepsItsPlace(t *testing.T) {
	inner := loopback(t)
	entered, release := make(chan struct{}), make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: patience, ConnContext: ConnContext, Handler: Keep(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			entered <- struct{}{}
			<-release
		}
		_, _ = io.WriteString(w, "ok")
	}))}
	served := make(chan error, 1)
	go func() { served <- server.Serve(Bound(inner, 4, 2, func() {})) }()
	url := "http://" + inner.Addr().String()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(path string) error {
		response, err := client.Get(url + path)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	held := make(chan error, 1)
	go func() { held <- ask("/hold") }()
	<-entered
	idle, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := ask("/"); err != nil {
		t.Errorf("beside one that only is connected: %v", err)
	}
	_ = idle.SetReadDeadline(time.Now().Add(patience))
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("who only is connected: %v", err)
	}
	_ = idle.Close()
	close(release)
	if err := <-held; err != nil {
		t.Errorf("who is served: %v", err)
	}
	_ = server.Close()
	<-served
}

// TestWhatIsServedKeepsItsPlace: also where all places may be of one host.
func TestWhatIsServedKeepsItsPlace(t *testing.T) {
	inner := loopback(t)
	ended := make(chan struct{}, 8)
	l := Bound(inner, 2, 2, func() { ended <- struct{}{} })
	defer func() { _ = l.Close() }()
	accepted := make(chan *counted, 8)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c.(*counted)
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	closed := func(c net.Conn) {
		t.Helper()
		<-ended
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the connection is open: %v", err)
		}
	}
	dial()
	first := <-accepted
	first.serving.Store(true)
	second := dial()
	<-accepted
	// The second makes room for the third: the first is being served.
	dial()
	third := <-accepted
	closed(second)
	// Nobody makes room for the fourth.
	third.serving.Store(true)
	closed(dial())
	_, _ = first.Close(), first.Close() // twice gives one place back
	dial()
	<-accepted
	third.serving.Store(false)
	dial()
	<-accepted
	<-ended
	_ = l.Close()
	for c := range accepted {
		t.Errorf("one more connection from %s", c.RemoteAddr())
	}
}
