package router

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// narrow is a listener whose connections buffer little, so that a client that reads
// nothing is felt soon.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// stuck sends a request to a handler by a client that reads nothing of the answer.
func stuck(t *testing.T, h http.Handler, path, body string) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Listener = narrow{server.Listener}
	server.Start()
	t.Cleanup(server.Close)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body); err != nil {
		t.Fatal(err)
	}
}

// TestClientThatTakesNothing: it must not hold its place for ever.
func TestClientThatTakesNothing(t *testing.T) {
	// More than what the two ends of a connection keep.
	large := strings.Repeat("x", 12<<20)
	for name, c := range map[string]struct {
		path string
		role kvlayout.Role
		does func(w http.ResponseWriter)
	}{
		"tokenize":       {"/tokenize", kvlayout.Prefill, func(w http.ResponseWriter) { reply(w, 200, large) }},
		"a whole answer": {completions, kvlayout.Decode, func(w http.ResponseWriter) { reply(w, 200, large) }},
		"a stream":       {completions, kvlayout.Decode, func(w http.ResponseWriter) { stream(w)(large) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.Idle = 100 * time.Millisecond })
			e := map[kvlayout.Role]*engine{kvlayout.Prefill: r.prefill, kvlayout.Decode: r.decode}[c.role]
			e.does(func(w http.ResponseWriter, _ *http.Request) { c.does(w) })
			stuck(t, r.Handler(), c.path, simple)
			next(t, "the request", e.calls)
			eventually(t, "the place is free again", func() bool {
				inWork, _ := r.gate.count()
				return inWork == 0 && e.running.Load() == 0
			})
		})
	}
}

// TestErrorForAClientThatTakesNothing writes to a connection that is full.
func TestErrorForAClientThatTakesNothing(t *testing.T) {
	for name, f := range map[string]*failure{
		"an engine's": {asIs: &verbatim{status: 400, body: []byte(strings.Repeat("x", 12<<20))}},
		"our own":     refused(codeBadJSON, "", strings.Repeat("x", 12<<20)),
	} {
		t.Run(name, func(t *testing.T) {
			answered := make(chan struct{})
			stuck(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				f.write(w, 100*time.Millisecond)
				close(answered)
			}), "/", "")
			next(t, "the end of the write", answered)
		})
	}
}
