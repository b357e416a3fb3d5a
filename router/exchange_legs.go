package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/pdpool/pdpool/kvlayout"
)

const (
	maxError = 64 << 10 // bytes that are read of an engine's error
	maxWhole = 1 << 20  // bytes of an answer that is not streamed and read before it is passed on
	oneRead  = 32 << 10
)

// opened is decode's answer, from which at least one byte was read.
type opened struct {
	answer *http.Response
	first  []byte
	whole  bool // first is all
	failed *failure
}

// runPrefill sends the prefill leg and reads its answer, which is thrown away.
func (x *exchange) runPrefill(r *http.Request) {
	l := &x.prefill
	began := time.Now()
	l.failed = x.prefillOnce(r)
	x.count(l, l.failed)
	if l.failed == nil {
		x.metrics.prefill.Observe(time.Since(began).Seconds())
	}
	close(l.done)
	// Who waits for decode's answer sees done; who passes it on is ended this way.
	if l.failed != nil && l.failed.outcome != outcomeCancelled && x.streaming.Load() {
		x.decode.cancel(l.failed)
	}
	x.finish(l)
}

func (x *exchange) prefillOnce(r *http.Request) *failure {
	l := &x.prefill
	answer, err := x.transport.RoundTrip(r)
	if err != nil {
		return x.legError(l, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return x.engineError(l, answer)
	}
	head, err := io.ReadAll(io.LimitReader(answer.Body, maxWhole))
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	if err != nil {
		return x.legError(l, err)
	}
	if text, bad := saysError(head); bad {
		return &failure{leg: l.role, status: http.StatusBadGateway, code: codeFailed, text: conceal(text, x.pair), outcome: outcomeFailed}
	}
	return nil
}

// saysError finds an error in an answer with status 200.
func saysError(body []byte) (string, bool) {
	if len(body) == 0 || body[0] != '{' {
		return "the engine's answer is empty or no JSON object", true
	}
	if isError(body) {
		return messageOf(body), true
	}
	switch reason := gjson.GetBytes(body, "choices.0.finish_reason").Str; reason {
	case "abort", "error":
		return "the engine ended the request with finish_reason " + reason, true
	}
	return "", false
}

// isError says that an engine tells an error, whatever its status.
func isError(body []byte) bool {
	return gjson.GetBytes(body, "error").Type != gjson.Null || gjson.GetBytes(body, "object").Str == "error"
}

// messageOf is the message of an engine's error.
func messageOf(body []byte) string {
	for _, path := range []string{"error.message", "message", "detail", "error"} {
		if v := gjson.GetBytes(body, path); v.Type == gjson.String && v.Str != "" {
			return v.Str
		}
	}
	return ""
}

// openDecode sends the decode leg and reads the beginning of its answer: that the
// answer has begun says that the rows have come.
func (x *exchange) openDecode(r *http.Request) {
	o := x.decodeOnce(r)
	if o.failed != nil {
		x.count(&x.decode, o.failed)
	}
	select {
	case x.opened <- o:
		return
	case <-x.left:
	}
	if o.failed == nil {
		x.count(&x.decode, &failure{outcome: outcomeCancelled})
	}
	x.decode.cancel(errAnswered)
	o.close()
	x.finish(&x.decode)
}

func (x *exchange) decodeOnce(r *http.Request) *opened {
	l := &x.decode
	answer, err := x.transport.RoundTrip(r) //nolint:bodyclose // opened.close does
	if err != nil {
		return &opened{failed: x.legError(l, err)}
	}
	o := &opened{answer: answer}
	if answer.StatusCode != http.StatusOK {
		o.failed = x.engineError(l, answer)
		o.close()
		return o
	}
	if eventStream(answer.Header) || answer.ContentLength > maxWhole {
		o.first, err = firstOf(answer.Body)
	} else {
		o.first, err = io.ReadAll(io.LimitReader(answer.Body, maxWhole))
		o.whole = len(o.first) < maxWhole
	}
	if err == nil && len(o.first) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		o.failed = x.legError(l, err)
		o.close()
	}
	return o
}

// firstOf waits for the beginning of a stream.
func firstOf(stream io.Reader) ([]byte, error) {
	buffer := buffers.take()
	defer buffers.give(buffer)
	n, err := io.ReadAtLeast(stream, *buffer, 1)
	return bytes.Clone((*buffer)[:n]), err
}

func (o *opened) close() {
	if o.answer != nil {
		_ = o.answer.Body.Close()
	}
}

func eventStream(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

// legError makes a failure of a leg without a whole answer.
func (x *exchange) legError(l *leg, err error) *failure {
	f := &failure{leg: l.role, status: http.StatusBadGateway}
	var cause *failure
	switch why := context.Cause(l.ctx); {
	case errors.As(why, &cause):
		ended := *cause
		ended.outcome = outcomeCancelled
		return &ended
	case errors.Is(why, errTooOld):
		f.status, f.code, f.outcome = http.StatusGatewayTimeout, codeTooOld, outcomeSilent
		f.text = "the request took longer than " + x.Request.String()
	case errors.Is(why, errShutdown):
		f.leg, f.status, f.code, f.text, f.outcome = "", http.StatusServiceUnavailable, codeShuttingDown, why.Error(), outcomeCancelled
	case why != nil:
		f.code, f.text, f.outcome = codeLost, why.Error(), outcomeCancelled
	case unreachable(err):
		l.slot.shun(time.Now())
		f.code, f.text, f.outcome = codeUnreachable, "the engine accepts no connection", outcomeUnreachable
	default:
		f.code, f.text, f.outcome = codeLost, "the connection to the engine ended before its answer did", outcomeLost
	}
	x.log.Info("leg ended", "leg", l.role, "transfer", x.transfer, "pod", l.slot.pod.address(), "error", err, "cause", f.text)
	return f
}

// engineError makes a failure of an answer that is not 200. What the client did
// wrong it gets as the engine tells it, without addresses of pods. A refusal by
// prefill is the client's doing unless it is about what only the router sends: of
// the fields that the router changes there, the others get their least value, and
// what is wrong with that is wrong with the client's.
func (x *exchange) engineError(l *leg, answer *http.Response) *failure {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxError))
	if err != nil {
		return x.legError(l, err)
	}
	f := &failure{leg: l.role, status: answer.StatusCode, code: codeFailed, outcome: outcomeFailed}
	if f.status >= 400 && f.status < 500 && (l.role == kvlayout.Decode || !aboutEdits(body)) {
		f.asIs = &verbatim{f.status, answer.Header, []byte(masked(string(body), x.pair))}
		f.outcome = outcomeRefused
		f.text = "the engine refuses the request"
		return f
	}
	f.retry = answer.Header.Get("Retry-After")
	if f.status < 500 || l.role == kvlayout.Prefill && f.status != http.StatusServiceUnavailable {
		f.status = http.StatusBadGateway
	}
	f.text = conceal(messageOf(bytes.TrimSpace(body)), x.pair)
	// PDPool's own engines tell the rule that was broken.
	if rule := gjson.GetBytes(body, "error.rule"); rule.Type == gjson.String && rule.Str != "" {
		f.code, f.told = rule.Str, true
		if _, text, ok := strings.Cut(f.text, rule.Str+": "); ok {
			f.text = text // the rule is told once
		}
	}
	if f.text == "" {
		f.text = fmt.Sprintf("the engine answers %d", answer.StatusCode)
	}
	return f
}

// aboutEdits says that an error is about a field of prefill's request whose value the
// client's does not have: by its param, else by its message. A message may repeat
// the whole request at its end, as the input that was refused.
func aboutEdits(body []byte) bool {
	text, _, _ := strings.Cut(messageOf(body), "'input'")
	for _, path := range []string{"error.param", "param"} {
		if v := gjson.GetBytes(body, path); v.Type == gjson.String && v.Str != "" {
			text = v.Str
		}
	}
	for _, name := range []string{"kv_transfer_params", "ignore_eos", "min_tokens"} {
		if strings.Contains(text, name) {
			return true
		}
	}
	return false
}

// count counts how a leg ended.
func (x *exchange) count(l *leg, f *failure) {
	outcome := outcomeOK
	if f != nil {
		outcome = f.outcome
	}
	x.metrics.legs.WithLabelValues(string(l.role), outcome).Inc()
}
