package router

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// Codes of errors that the router itself finds, besides those of Refusal.
const (
	codeBadJSON      = "invalid_json"
	codeBadValue     = "invalid_value"
	codeUnsupported  = "unsupported_parameter"
	codeReserved     = "reserved_parameter"
	codeTooLarge     = "request_too_large"
	codeBodyLate     = "body-deadline"
	codeBusy         = "overloaded"
	codeShare        = "client-share" // one client's host has all that one may have
	codeNotFound     = "not_found"
	codeMethod       = "method_not_allowed"
	codeUnreachable  = "leg-unreachable" // no connection to the engine
	codeLost         = "leg-lost"        // the connection ended before the answer did
	codeFailed       = "leg-failed"      // the engine says that it failed
	codeSilent       = "leg-silent"      // no answer within the deadline
	codeFrozen       = "leg-frozen"      // the engine answers nothing, its health included
	codeTooOld       = "request-deadline"
	codeShuttingDown = "router-shutdown"
)

// failure is why a request has no good answer.
type failure struct {
	leg    kvlayout.Role // whose leg failed; empty when no leg was involved
	status int           // of the answer to the client
	code   string
	text   string // one sentence, without addresses
	param  string // the field of the request that is wrong
	retry  string // Retry-After
	limit  string // of the router that refuses the request, for its metric
	told   bool   // code and text are what the engine says of the transfer, or nobody knows more
	engine int    // status of the engine's answer, if there was one
	sent   bool   // the engine has told the client
	// asIs is an engine's own answer that the client gets instead of all this.
	asIs *verbatim
	// outcome is the label of the leg's metric.
	outcome string
}

func (f *failure) Error() string { return f.code + ": " + f.text }

// verbatim is a whole answer of an engine.
type verbatim struct {
	status int
	header http.Header
	body   []byte
}

// refused is a request that is wrong in itself.
func refused(code, param, text string) *failure {
	return &failure{status: http.StatusBadRequest, code: code, param: param, text: text}
}

// unavailable is a request that may be sent again after some seconds.
func unavailable(code, text string, seconds int) *failure {
	return &failure{status: http.StatusServiceUnavailable, code: code, text: text, retry: strconv.Itoa(seconds)}
}

// shuttingDown is why a request is not served to its end.
func shuttingDown() *failure { return unavailable(codeShuttingDown, errShutdown.Error(), 1) }

// tooOld is a request that took longer than it may.
func tooOld(age time.Duration) *failure {
	return &failure{status: http.StatusGatewayTimeout, code: codeTooOld, text: "the request took longer than " + age.String()}
}

// late says that a request is too old.
func late(until time.Time) bool { return !time.Now().Before(until) }

// errorBody is an error in OpenAI's form.
func (f *failure) errorBody() []byte {
	kind := "server_error"
	switch {
	case f.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case f.status < http.StatusInternalServerError:
		kind = "invalid_request_error"
	}
	var param *string
	if f.param != "" {
		param = &f.param
	}
	var body struct {
		Error struct {
			Message string  `json:"message"`
			Type    string  `json:"type"`
			Param   *string `json:"param"`
			Code    string  `json:"code"`
		} `json:"error"`
	}
	body.Error.Message, body.Error.Type, body.Error.Param, body.Error.Code = f.message(), kind, param, f.code
	out, err := json.Marshal(body)
	if err != nil {
		panic(err) // strings only
	}
	return out
}

// message is the sentence for the client: which leg failed, by which rule, and why.
func (f *failure) message() string {
	if f.leg == "" {
		return f.text
	}
	return string(f.leg) + " leg failed: " + f.code + ": " + f.text
}

// write answers a request of which nothing was sent yet. A client that takes
// nothing for the time stall is given up.
func (f *failure) write(w http.ResponseWriter, stall time.Duration) {
	header, status, body := w.Header(), f.status, []byte(nil)
	if f.retry != "" {
		header.Set("Retry-After", f.retry)
	}
	if f.asIs != nil {
		passHeader(header, f.asIs.header)
		status, body = f.asIs.status, f.asIs.body
	} else {
		header.Set("Content-Type", "application/json")
		body = f.errorBody()
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	out := newFlow(w, stall)
	defer out.end()
	w.WriteHeader(status)
	_ = out.write(body) // the client may have gone
}
