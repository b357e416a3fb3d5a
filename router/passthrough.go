package router

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
)

// model is an entry of /v1/models.
type model struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// serveModels lists the models that instances name.
func (s *Server) serveModels(w http.ResponseWriter, r *http.Request) {
	var list struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}
	list.Object, list.Data = "list", []model{}
	for _, name := range s.Registry.current.Load().models {
		list.Data = append(list.Data, model{ID: name, Object: "model", Created: s.started.Unix(), OwnedBy: "pdpool"})
	}
	s.metrics.request(r.URL.Path, http.StatusOK)
	body, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings and numbers only
	}
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	out := newFlow(w, s.Idle)
	defer out.end()
	_ = out.write(body) // the client may have gone
}

// serveTokenize passes a request on to a prefill instance.
func (s *Server) serveTokenize(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	body, f := s.read(r)
	if f != nil {
		s.refuse(w, r.URL.Path, f)
		return
	}
	defer body.release()
	age, f := s.age(r.Header)
	if f != nil {
		s.refuse(w, r.URL.Path, f)
		return
	}
	until := began.Add(age)
	if f := s.enter(r.Context(), began, until); f != nil {
		s.refuse(w, r.URL.Path, f)
		return
	}
	defer s.leave()
	if f := s.tokenize(w, r, body.text, until, age); f != nil {
		s.refuse(w, r.URL.Path, f)
		return
	}
	s.metrics.request(r.URL.Path, http.StatusOK)
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request, text string, until time.Time, age time.Duration) *failure {
	d, err := cut(text)
	if err != nil {
		return badJSON(err)
	}
	name := d.field("model")
	if name.Exists() && name.Type != gjson.String {
		return refused(codeBadValue, "model", "model is not a string")
	}
	served := name.Str
	if known := s.Registry.current.Load().models; served == "" && len(known) > 0 {
		served = known[0]
	}
	ctx, cancel := context.WithDeadlineCause(r.Context(), until, tooOld(age))
	defer cancel()
	stop := context.AfterFunc(s.last, cancel) //nolint:contextcheck // the router's own life
	defer stop()
	answer, p, end, f := s.askPrefill(ctx, r, served, text)
	if f != nil {
		return f
	}
	defer end()
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		told, err := io.ReadAll(io.LimitReader(answer.Body, maxError))
		if err != nil {
			return &failure{status: http.StatusBadGateway, code: codeLost, text: "the prefill engine's answer broke off"}
		}
		return &failure{asIs: &verbatim{answer.StatusCode, answer.Header, []byte(s.masker(p).body(string(told)))}, status: answer.StatusCode}
	}
	passHeader(w.Header(), answer.Header)
	if answer.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(answer.ContentLength, 10))
	}
	out := newFlow(w, s.Idle)
	defer out.end()
	w.WriteHeader(answer.StatusCode)
	if err := out.copy(answer.Body); err != nil {
		code := codeBroken
		if r.Context().Err() != nil {
			code = codeClientGone
		}
		s.metrics.requests.WithLabelValues(r.URL.Path, code).Inc()
		// The only way to tell that what was sent is not all.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// askPrefill sends a request to a prefill engine, and to another one where that is out
// of reach, silent or frozen. The answer ends with the call of end.
func (s *Server) askPrefill(ctx context.Context, r *http.Request, model, text string) (answer *http.Response, p pair, end func(), f *failure) {
	t, f := s.serves(model)
	if f != nil {
		return nil, p, nil, f
	}
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"pdpool-router"}}
	for _, key := range passed {
		if v := r.Header[key]; len(v) > 0 {
			header[key] = v
		}
	}
	var h history
	for {
		next, ok := s.next(&h, t)
		if !ok || len(h.tried) == maxAttempts {
			return nil, p, nil, f
		}
		p = next
		try, end := context.WithTimeout(ctx, s.Answer)
		stop := s.whenFrozen(p.prefill, end)
		answer, err := s.transport.RoundTrip(newLeg(p.prefill, r.URL.Path, header, pieces{text}).WithContext(try))
		stop()
		if err == nil {
			return answer, p, end, nil
		}
		f = s.unanswered(ctx, try, p.prefill, err)
		if end(); ctx.Err() != nil {
			return nil, p, nil, f
		}
		h.add(p)
		h.failed = append(h.failed, p.prefill.instance)
	}
}

// unanswered says why a prefill engine has not answered to a try of a request, and
// suspects it unless the request itself has ended.
func (s *Server) unanswered(ctx, try context.Context, of *slot, err error) *failure {
	var old *failure
	until, _ := ctx.Deadline()
	silent, _ := try.Deadline()
	switch {
	case s.last.Err() != nil:
		return shuttingDown()
	case errors.As(context.Cause(ctx), &old):
		return old
	case ctx.Err() != nil:
		return gone()
	case late(until):
		return &failure{status: http.StatusGatewayTimeout, code: codeTooOld, text: "the prefill engine did not answer before the request was too old"}
	case try.Err() != nil && of.frozen(time.Now().UnixNano(), s.Frozen):
		return s.frozenEngine()
	case late(silent):
		s.suspect(of, codeSilent, holdSilent)
		return &failure{status: http.StatusGatewayTimeout, code: codeSilent, text: "the prefill engine did not answer within " + s.Answer.String()}
	case unreachable(err):
		s.suspect(of, codeUnreachable, holdFailed)
		return &failure{status: http.StatusBadGateway, code: codeUnreachable, text: "the prefill engine accepts no connection"}
	}
	s.suspect(of, codeLost, holdFailed)
	return &failure{status: http.StatusBadGateway, code: codeLost, text: "the prefill engine did not answer"}
}
