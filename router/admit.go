package router

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// readsPerWork is how many requests may be read for each that may be in work, half of
// them from one host: bodies may take their time to come, and those that do must
// leave room for others.
const readsPerWork = 4

// readers counts requests whose bodies are being read.
type readers struct {
	mu     sync.Mutex
	all    int
	byHost map[string]int
}

// enter counts a request of a host in; false when most are being read, or half of
// that from this host.
func (r *readers) enter(host string, most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= most || r.byHost[host] >= most/2 {
		return false
	}
	if r.byHost == nil {
		r.byHost = map[string]int{}
	}
	r.all++
	r.byHost[host]++
	return true
}

func (r *readers) leave(host string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	if r.byHost[host]--; r.byHost[host] == 0 {
		delete(r.byHost, host)
	}
}

// read takes a request's body. It needs no place among the requests in work: who
// sends slowly keeps nobody from work.
func (s *Server) read(w http.ResponseWriter, r *http.Request) (*body, *failure) {
	if s.inflight.Load() >= int64(s.MaxInflight) {
		return nil, tooMany() // nothing of it is worth reading
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	if !s.readers.enter(host, readsPerWork*s.MaxInflight) {
		return nil, unavailable(codeBusy, "the router reads as many requests as it may", 1)
	}
	defer s.readers.leave(host)
	return s.readBody(w, r)
}

// tooMany refuses a request since others are in work.
func tooMany() *failure {
	return unavailable(codeBusy, "the router has as many requests in work as it may", 1)
}

// firstRead is what is allocated for a body before a byte of it has come.
const firstRead = 16 << 10

// body is a request's body in memory, counted against the server's bound.
type body struct {
	text string
	held int64
	free func(int64)
}

// release gives the memory back. The text may be used on: the collector frees it.
func (b *body) release() {
	if b.free != nil {
		b.free(b.held)
	}
}

// readBody reads the whole body of a request, not more than the bounds allow.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) (*body, *failure) {
	tooLarge := &failure{
		status: http.StatusRequestEntityTooLarge, code: codeTooLarge,
		text: fmt.Sprintf("the body is larger than %d bytes, which is this router's limit", s.MaxBody),
	}
	if r.ContentLength > s.MaxBody {
		return nil, tooLarge
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, &failure{status: http.StatusUnsupportedMediaType, code: codeBadValue, text: fmt.Sprintf("Content-Encoding %.32q is not taken; send the body as it is", coding)}
	}
	deadline := http.NewResponseController(w)
	// Only a writer that wraps another has none; then the request's age bounds it.
	_ = deadline.SetReadDeadline(time.Now().Add(s.Body))
	b := &body{free: func(n int64) { s.buffered.Add(-n) }}
	text, f := s.readText(b, r, tooLarge)
	if f != nil {
		b.release()
		return nil, f
	}
	// A read deadline that is left would look as if the client had gone.
	_ = deadline.SetReadDeadline(time.Time{})
	b.text = text
	return b, nil
}

func (s *Server) readText(b *body, r *http.Request, tooLarge *failure) (string, *failure) {
	var text strings.Builder
	chunk := buffers.take()
	defer buffers.give(chunk)
	if r.ContentLength > 0 {
		text.Grow(int(min(r.ContentLength, firstRead)))
	}
	for {
		n, err := r.Body.Read(*chunk)
		if int64(text.Len()+n) > s.MaxBody {
			return "", tooLarge
		}
		b.held += int64(n)
		if s.buffered.Add(int64(n)) > s.MaxBuffered {
			return "", unavailable(codeBusy, "the bodies of the requests in work take all the memory that they may", 1)
		}
		text.Write((*chunk)[:n])
		switch {
		case errors.Is(err, io.EOF):
			return text.String(), nil
		case err != nil:
			return "", refused(codeBadValue, "", "the body ended before its length or did not come in time")
		}
		if text.Len() == text.Cap() && r.ContentLength > 0 {
			// The client has sent as much as was allocated: it may have as much again.
			text.Grow(int(min(r.ContentLength-int64(text.Len()), int64(text.Len()))))
		}
	}
}

// enter counts a request in; false when there are too many.
func (s *Server) enter() bool {
	if s.inflight.Add(1) > int64(s.MaxInflight) {
		s.inflight.Add(-1)
		return false
	}
	s.metrics.inflight.Inc()
	return true
}

func (s *Server) leave() {
	s.inflight.Add(-1)
	s.metrics.inflight.Dec()
}

// choose takes a pair for a model.
func (s *Server) choose(model string) (pair, *failure) {
	t, refusal := s.Registry.current.Load().table(model)
	switch {
	case refusal != nil && refusal.Rule == RuleNoModel:
		return pair{}, noModel(refusal)
	case refusal != nil:
		return pair{}, unavailable(refusal.Rule, refusal.Text, 2)
	}
	now := time.Now().UnixNano()
	p := t.prefills[s.policies.prefill.Choose(choice{t.prefills, now}, s.Random)]
	partners := t.partners[p.instance]
	return pair{p, partners[s.policies.decode.Choose(choice{partners, now}, s.Random)]}, nil
}
