package router

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// say sends a request as it is written.
func (r *rig) say(t *testing.T, text string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c := dial(t, r.http)
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// TestBodyThatDoesNotCome: whoever answers, and whether or not anybody reads the body,
// the connection ends.
func TestBodyThatDoesNotCome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Body = 50 * time.Millisecond })
		for _, c := range []struct {
			request string
			status  int
		}{
			{"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", 200},
			{"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 200},
			{"GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf", 200},
			{"GET /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", 404},
			{"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf", 408},
			{"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", 408},
			{"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413},
			{"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n", 415},
		} {
			_, in := r.say(t, c.request)
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Errorf("%q: %v", c.request, err)
				continue
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != c.status || !answer.Close {
				t.Errorf("%q: status %d, closed %v, %v", c.request, answer.StatusCode, answer.Close, err)
			}
			_ = answer.Body.Close()
			if _, err := in.ReadByte(); err == nil || isTimeout(err) {
				t.Errorf("%q: the connection goes on: %v", c.request, err)
			}
		}
	})
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // as net returns it
	return ok && timeout.Timeout()
}

// TestBodyThatCameHasNoDeadline: the answer may take longer, and the connection stays.
func TestBodyThatCameHasNoDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Body = 100 * time.Millisecond })
		r.decode.does(func(w http.ResponseWriter, q *http.Request) {
			late := time.NewTimer(3 * r.Body)
			defer late.Stop()
			select {
			case <-late.C:
				reply200(w)
			case <-q.Context().Done():
			}
		})
		text := fmt.Sprintf("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(simple), simple)
		c, in := r.say(t, text)
		for range 2 {
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if err != nil || answer.StatusCode != 200 || string(body) != answer200 || answer.Close {
				t.Fatalf("status %d, %q, closed %v, %v", answer.StatusCode, body, answer.Close, err)
			}
			if _, err := io.Copy(c, strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
		}
	})
}
