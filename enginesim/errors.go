package enginesim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// statusError is an error with its HTTP status.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func badRequest(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// errorBody is an error in OpenAI's form, as vLLM writes it; rule is ours.
type errorBody struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    int     `json:"code"`
		Rule    string  `json:"rule,omitempty"`
	} `json:"error"`
}

// describe gives an error its status, its rule and its body.
func describe(err error) (int, errorBody) {
	status, rule := classify(err)
	var b errorBody
	b.Error.Message, b.Error.Code, b.Error.Rule = reason(err), status, rule
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		b.Error.Type = "BadRequestError"
	case http.StatusNotFound:
		b.Error.Type = "NotFoundError"
	case http.StatusTooManyRequests:
		b.Error.Type = "TooManyRequestsError"
	case http.StatusServiceUnavailable:
		b.Error.Type = "ServiceUnavailableError"
	default:
		b.Error.Type = "InternalServerError"
	}
	return status, b
}

func classify(err error) (status int, rule string) {
	var (
		known    *statusError
		transfer *TransferError
		row      *wrongRowError
		late     *lateWriteError
		write    *wrongWriteError
		size     *http.MaxBytesError
	)
	switch {
	case errors.As(err, &known):
		return known.status, ""
	case errors.As(err, &size):
		return http.StatusRequestEntityTooLarge, ""
	case errors.Is(err, errDuplicate):
		return http.StatusBadRequest, "transfer-duplicate"
	case errors.Is(err, errBusy):
		return http.StatusTooManyRequests, "busy"
	case errors.Is(err, errNotRegistered):
		return http.StatusServiceUnavailable, "agent-gone"
	case errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable, "canceled"
	case errors.As(err, &transfer):
		return http.StatusInternalServerError, transfer.Rule
	case errors.As(err, &row):
		return http.StatusInternalServerError, "wrong-row"
	case errors.As(err, &late):
		return http.StatusInternalServerError, "late-write"
	case errors.As(err, &write):
		return http.StatusInternalServerError, "wrong-write"
	}
	return http.StatusInternalServerError, ""
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status, body := describe(err)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	reply(w, status, body)
}

func reply(w http.ResponseWriter, status int, body any) {
	out, err := json.Marshal(body)
	if err != nil { // no type here can fail
		status, out = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(out, '\n')) // a client that is gone needs no answer
}
