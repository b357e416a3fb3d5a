package router

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// readsPerWork is how many requests may be read for each that may be in work, half of
// them from one host: bodies may take their time to come, and those that do must
// leave room for others.
const readsPerWork = 4

// readers counts the requests whose bodies are being read, and the bytes of those that
// are held, in all and by host. One host may have half of what all may.
type readers struct {
	mu     sync.Mutex
	all    int
	bytes  int64
	byHost map[string]*share
}

// share is what one host has.
type share struct {
	reading int
	bytes   int64
}

// enter counts a request of a host in and returns the limit that it would break, if any.
func (r *readers) enter(host string, most int) (limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.byHost[host]
	switch {
	case r.all >= most:
		return limitReaders
	case s == nil:
		if r.byHost == nil {
			r.byHost = map[string]*share{}
		}
		s = new(share)
		r.byHost[host] = s
	case s.reading >= most/2:
		return limitHostReaders
	}
	r.all++
	s.reading++
	return ""
}

func (r *readers) leave(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	s := r.byHost[host]
	s.reading--
	r.forget(host, s)
}

// hold counts bytes of a host in and returns the limit that they would break, if any.
// A host that is being read has a share.
func (r *readers) hold(host string, n, most, share int64) (limit string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.byHost[host]
	switch {
	case r.bytes+n > most:
		return limitBuffered
	case s.bytes+n > share:
		return limitHostBuffered
	}
	r.bytes += n
	s.bytes += n
	return ""
}

func (r *readers) free(host string, n int64) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes -= n
	s := r.byHost[host]
	s.bytes -= n
	r.forget(host, s)
}

// forget drops the share of a host that has nothing. The caller holds mu.
func (r *readers) forget(host string, s *share) {
	if s.reading == 0 && s.bytes == 0 {
		delete(r.byHost, host)
	}
}

// held is the number of bytes of all bodies.
func (r *readers) held() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bytes
}

// hostOf is the host of a connection's remote address.
func hostOf(remote string) string {
	if i := strings.LastIndexByte(remote, ':'); i >= 0 {
		return remote[:i]
	}
	return remote
}

// firstRead is what is allocated for a body when the first byte of it has come.
const firstRead = 16 << 10

// body is a request's body in memory, counted against the bounds.
type body struct {
	text    string
	host    string
	bytes   int64 // of memory that is allocated for the text
	readers *readers
}

// release gives the memory back. The text may be used on: the collector frees it.
func (b *body) release() { b.readers.free(b.host, b.bytes) }

// read takes a request's body. It needs no place among the requests in work: who
// sends slowly keeps nobody from work. The body is kept until the request is answered,
// so that another pair can be sent it.
func (s *Server) read(r *http.Request) (*body, *failure) {
	if s.gate.full(s.mostInWork(), s.MaxQueue) {
		return nil, s.tooMany(limitQueue) // nothing of it is worth reading
	}
	b := &body{host: hostOf(r.RemoteAddr), readers: &s.readers}
	if limit := s.readers.enter(b.host, readsPerWork*s.MaxInflight); limit != "" {
		return nil, s.tooMany(limit)
	}
	defer s.readers.leave(b.host)
	if f := s.readBody(b, r); f != nil {
		b.release()
		return nil, f
	}
	return b, nil
}

// readBody reads the whole body of a request, not more than the bounds allow.
func (s *Server) readBody(b *body, r *http.Request) *failure {
	if r.ContentLength > s.MaxBody {
		return s.tooLarge()
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return &failure{status: http.StatusUnsupportedMediaType, code: codeBadValue, text: fmt.Sprintf("Content-Encoding %.32q is not taken; send the body as it is", coding)}
	}
	return s.readText(b, r)
}

func (s *Server) readText(b *body, r *http.Request) *failure {
	text := new(strings.Builder)
	from := &small
	chunk := from.take()
	defer func() { from.give(chunk) }()
	for {
		n, err := r.Body.Read(*chunk)
		if int64(text.Len()+n) > s.MaxBody {
			return s.tooLarge()
		}
		if int64(text.Len()+n) > b.bytes {
			most := s.MaxBody
			if r.ContentLength > 0 {
				most = r.ContentLength
			}
			// A client may have as much memory again as it has filled.
			room := min(most, max(firstRead, 2*b.bytes, int64(text.Len()+n)))
			if limit := s.readers.hold(b.host, room-b.bytes, s.MaxBuffered, max(s.MaxBuffered/2, s.MaxBody)); limit != "" {
				return s.tooMany(limit)
			}
			b.bytes = room
			text = grown(text, room)
		}
		text.Write((*chunk)[:n])
		switch {
		case errors.Is(err, io.EOF):
			b.text = text.String()
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &failure{status: http.StatusRequestTimeout, limit: limitBodyTime, code: codeBodyLate, text: "the body did not come within " + s.Body.String()}
		case err != nil:
			return refused(codeBadValue, "", "the body ended before its length")
		}
		if from == &small && text.Len() >= firstRead {
			from.give(chunk)
			from = &buffers
			chunk = from.take()
		}
	}
}

// grown is a text in memory of a size. To grow it in its place would take more.
func grown(text *strings.Builder, room int64) *strings.Builder {
	more := new(strings.Builder)
	more.Grow(int(room))
	more.WriteString(text.String())
	return more
}

func (s *Server) tooLarge() *failure {
	return &failure{
		status: http.StatusRequestEntityTooLarge, limit: limitBody, code: codeTooLarge,
		text: fmt.Sprintf("the body is larger than %d bytes, which is this router's limit", s.MaxBody),
	}
}
