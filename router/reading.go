package router

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// afterwards is how long a client that was answered before its body had come may go on
// sending it: it reads the answer meanwhile, and then its connection is closed.
const afterwards = time.Second

// reading bounds the time in which a body comes, whether or not anybody reads it:
// net/http takes what is left of one after the answer. Who is answered before loses
// the connection.
func (s *Server) reading(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		b := &incoming{ReadCloser: r.Body, server: s, w: w, control: http.NewResponseController(w)}
		b.within(s.Body)
		w.Header().Set("Connection", "close")
		r.Body = b
		defer func() {
			if !b.whole {
				b.within(min(s.Body, afterwards))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// incoming is the body of a request. Once it is whole its connection is as that of a
// request without one.
type incoming struct {
	io.ReadCloser
	server  *Server
	w       http.ResponseWriter
	control *http.ResponseController
	whole   bool
}

// Read implements io.Reader.
func (b *incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.whole && errors.Is(err, io.EOF) {
		b.whole = true
		// A read deadline that is left would look as if the client had gone.
		_ = b.control.SetReadDeadline(time.Time{})
		if !b.server.ending.Load() {
			b.w.Header().Del("Connection")
		}
	}
	return n, err
}

// within sets the deadline of what is still to come. Only a writer that wraps another
// has none.
func (b *incoming) within(d time.Duration) { _ = b.control.SetReadDeadline(time.Now().Add(d)) }
