package wire

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

func newClient(t *testing.T) *Client {
	t.Helper()
	c := New(Options{Dial: patience, Idle: time.Minute, MaxIdle: 4, MaxHeader: 32 << 10})
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// newServer counts its connections.
func newServer(t *testing.T, h http.HandlerFunc) (s *httptest.Server, conns *atomic.Int64) {
	t.Helper()
	conns = new(atomic.Int64)
	s = httptest.NewUnstartedServer(h)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, conns
}

func request(ctx context.Context, t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func ask(t *testing.T, c *Client, method, url, body string) (int, string) {
	t.Helper()
	answer, err := c.RoundTrip(request(t.Context(), t, method, url, body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// TestAnswersOfAllForms come as they are, over one connection.
func TestAnswersOfAllForms(t *testing.T) {
	s, conns := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/length":
			_, _ = fmt.Fprintf(w, "%s %d %s %s", r.Method, len(body), r.Header.Get("X-Test"), r.Host)
		case "/chunked":
			for range 3 {
				_, _ = io.WriteString(w, "piece ")
				_ = http.NewResponseController(w).Flush()
			}
		case "/nothing":
			w.WriteHeader(http.StatusNoContent)
		case "/interim":
			w.WriteHeader(http.StatusProcessing)
			_, _ = io.WriteString(w, "after")
		}
	})
	c := newClient(t)
	host := strings.TrimPrefix(s.URL, "http://")
	for _, n := range []int{0, 1, 100, writeSize - 100, writeSize, 3*writeSize + 7, 1 << 20} {
		r := request(t.Context(), t, http.MethodPost, s.URL+"/length", strings.Repeat("x", n))
		r.Header.Set("X-Test", "v")
		r.Header["X-Split"] = []string{"a\r\nX-Test: w"}
		answer, err := c.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		if want := fmt.Sprintf("POST %d v %s", n, host); string(text) != want || err != nil {
			t.Errorf("%q, not %q, %v", text, want, err)
		}
		_ = answer.Body.Close()
	}
	for path, want := range map[string]string{"/chunked": "200 piece piece piece ", "/nothing": "204 ", "/interim": "200 after"} {
		status, text := ask(t, c, http.MethodGet, s.URL+path, "")
		if got := fmt.Sprint(status, " ", text); got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestConnectionIsNotReused when its answer was not read, or its peer does not want it.
func TestConnectionIsNotReused(t *testing.T) {
	s, conns := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	})
	c := newClient(t)
	answer, err := c.RoundTrip(request(t.Context(), t, http.MethodGet, s.URL+"/", ""))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	ask(t, c, http.MethodGet, s.URL+"/close", "")
	ask(t, c, http.MethodGet, s.URL+"/", "")
	if n := conns.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
}

// TestPeerThatHasClosed: a connection that went while it was not used costs nothing.
func TestPeerThatHasClosed(t *testing.T) {
	s, conns := newServer(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") })
	c := newClient(t)
	ask(t, c, http.MethodPost, s.URL, "body")
	s.CloseClientConnections()
	c.mu.Lock()
	for _, conns := range c.idle {
		conns[0].since = time.Now().Add(-time.Second)
	}
	c.mu.Unlock()
	ask(t, c, http.MethodPost, s.URL, "body")
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// raw is a server that does with each connection what it is told.
func raw(t *testing.T, does func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			does(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String()
}

func TestBadAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		want   error // nil: any
	}{
		"nothing":             {"", io.ErrUnexpectedEOF},
		"half a head":         {"HTTP/1.1 200 OK\r\nContent-Le", nil},
		"no HTTP":             {"SSH-2.0-x\r\n\r\n", nil},
		"endless headers":     {"HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<16), errHeader},
		"endless header":      {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 1<<20), errHeader},
		"interim and interim": {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 10), errInterim},
		"status 000":          {"HTTP/1.1 000 No\r\nContent-Length: 0\r\n\r\n", errStatus},
		"status 099":          {"HTTP/1.1 099 No\r\nContent-Length: 0\r\n\r\n", errStatus},
		"status 600":          {"HTTP/1.1 600 No\r\nContent-Length: 0\r\n\r\n", errStatus},
		"status 999":          {"HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n", errStatus},
		"two lengths":         {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", nil},
	} {
		t.Run(name, func(t *testing.T) {
			url := raw(t, func(conn net.Conn) {
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, c.answer)
			})
			answer, err := newClient(t).RoundTrip(request(t.Context(), t, http.MethodGet, url, ""))
			if err == nil {
				_ = answer.Body.Close()
				t.Fatal("taken")
			}
			if c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, not %v", err, c.want)
			}
		})
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	for _, head := range []string{"Content-Length: 100\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n5\r\nhal"} {
		url := raw(t, func(conn net.Conn) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+head)
		})
		c := newClient(t)
		answer, err := c.RoundTrip(request(t.Context(), t, http.MethodGet, url, ""))
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(answer.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q, %v", text, err)
		}
		_ = answer.Body.Close()
		if len(c.idle) != 0 {
			t.Error("the connection is kept")
		}
	}
}

// TestEarlyAnswer: an engine may refuse a body that it does not read.
func TestEarlyAnswer(t *testing.T) {
	url := raw(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	})
	if status, text := ask(t, newClient(t), http.MethodPost, url, strings.Repeat("x", 4<<20)); status != 413 || text != "no" {
		t.Errorf("%d %q", status, text)
	}
}

// TestContextEnds whatever the request waits for.
func TestContextEnds(t *testing.T) {
	for name, c := range map[string]struct {
		does func(conn net.Conn, over <-chan struct{})
		body int
	}{
		"the head":  {func(_ net.Conn, over <-chan struct{}) { <-over }, 1},
		"the write": {func(_ net.Conn, over <-chan struct{}) { <-over }, 64 << 20},
		"the body": {func(conn net.Conn, over <-chan struct{}) {
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
			<-over
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			url := raw(t, func(conn net.Conn) { c.does(conn, over) })
			defer close(over)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			answer, err := newClient(t).RoundTrip(request(ctx, t, http.MethodPost, url, strings.Repeat("x", c.body)))
			if err == nil {
				_, err = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
			}
			if ctx.Err() == nil || err == nil {
				t.Errorf("%v, %v", err, ctx.Err())
			}
		})
	}
}

func TestUnreachableIsADialError(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	url := s.URL
	s.Close()
	answer, err := newClient(t).RoundTrip(request(t.Context(), t, http.MethodGet, url, ""))
	if err == nil {
		_ = answer.Body.Close()
	}
	if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
		t.Errorf("%v", err)
	}
}

// TestIdleConnectionsAreBoundedAndEnd holds number and time.
func TestIdleConnectionsAreBoundedAndEnd(t *testing.T) {
	const most = 2
	hold := make(chan struct{})
	s, _ := newServer(t, func(http.ResponseWriter, *http.Request) { <-hold })
	c := New(Options{Dial: patience, Idle: 30 * time.Millisecond, MaxIdle: most, MaxHeader: 1 << 10})
	t.Cleanup(c.CloseIdleConnections)
	done := make(chan error, 5)
	for range cap(done) {
		go func() {
			answer, err := c.RoundTrip(request(context.Background(), t, http.MethodGet, s.URL, ""))
			if err == nil {
				_, err = io.ReadAll(answer.Body)
				_ = answer.Body.Close()
			}
			done <- err
		}()
	}
	kept := func() (n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, conns := range c.idle {
			n += len(conns)
		}
		return n
	}
	close(hold)
	for range cap(done) {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := kept(); n > most {
			t.Errorf("%d are kept", n)
		}
	}
	deadline := time.After(patience)
	for kept() > 0 {
		select {
		case <-deadline:
			t.Fatal("connections are kept for ever")
		default:
		}
	}
}
