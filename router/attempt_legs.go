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
)

// opened is decode's answer, from which at least one byte was read.
type opened struct {
	answer *http.Response
	first  []byte
	whole  bool // first is all
	failed *failure
}

// runPrefill sends the prefill leg and reads its answer, which is thrown away.
func (a *attempt) runPrefill(r *http.Request) {
	l := &a.prefill
	began := time.Now()
	l.failed = a.prefillOnce(r)
	a.judge(l.slot, a.decode.slot, l.failed)
	a.count(l, l.failed)
	if l.failed == nil {
		a.metrics.prefill.Observe(time.Since(began).Seconds())
	}
	close(l.done)
	// Who waits for decode's answer sees done; who passes it on is ended this way.
	if l.failed != nil && l.failed.outcome != outcomeCancelled && a.streaming.Load() {
		a.decode.cancel(l.failed)
	}
	a.finish(l)
}

func (a *attempt) prefillOnce(r *http.Request) *failure {
	l := &a.prefill
	answer, err := a.transport.RoundTrip(r)
	if err != nil {
		return a.legError(l, err)
	}
	defer func() { _ = answer.Body.Close() }()
	l.slot.hear(time.Now())
	if answer.StatusCode != http.StatusOK {
		return a.engineError(l, answer)
	}
	head, err := io.ReadAll(io.LimitReader(answer.Body, maxWhole))
	if err == nil {
		_, err = io.Copy(io.Discard, answer.Body)
	}
	if err != nil {
		return a.legError(l, err)
	}
	if text, bad := saysError(head); bad {
		return &failure{
			leg: l.role, status: http.StatusBadGateway, engine: http.StatusInternalServerError, code: codeFailed,
			text: a.masker(a.pair).conceal(text), outcome: outcomeFailed,
		}
	}
	return nil
}

// saysError finds an error in an answer with status 200.
func saysError(body []byte) (string, bool) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' {
		return "the engine's answer is empty or no JSON object", true
	}
	if isError(body) {
		return messageOf(body), true
	}
	return gaveUp(body)
}

// gaveUp finds an answer or event by which an engine ends a request that it can't serve.
func gaveUp(body []byte) (string, bool) {
	if !bytes.Contains(body, []byte("abort")) && !bytes.Contains(body, errorWord) {
		return "", false // as nearly all
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
func (a *attempt) openDecode(r *http.Request) {
	o := a.decodeOnce(r)
	a.judge(a.decode.slot, a.prefill.slot, o.failed)
	if o.failed != nil {
		a.count(&a.decode, o.failed)
	}
	select {
	case a.opened <- o:
		return
	case <-a.left:
	}
	if o.failed == nil {
		a.count(&a.decode, &failure{outcome: outcomeCancelled})
	}
	a.decode.cancel(errAnswered)
	o.close()
	a.finish(&a.decode)
}

func (a *attempt) decodeOnce(r *http.Request) *opened {
	l := &a.decode
	answer, err := a.transport.RoundTrip(r) //nolint:bodyclose // opened.close does
	if err != nil {
		return &opened{failed: a.legError(l, err)}
	}
	o := &opened{answer: answer}
	l.slot.hear(time.Now())
	if answer.StatusCode != http.StatusOK {
		o.failed = a.engineError(l, answer)
		o.close()
		return o
	}
	switch {
	case eventStream(answer.Header):
		o.first, err = a.firstEvent(o)
	case answer.ContentLength > maxWhole:
		o.first, err = firstOf(answer.Body)
	default:
		o.first, err = io.ReadAll(io.LimitReader(answer.Body, maxWhole))
		// An error shows by its key, even if it is too long to be read whole.
		if o.whole = len(o.first) < maxWhole; err == nil {
			o.failed = a.badAnswer(o.first, isError(o.first))
		}
	}
	if err == nil && len(o.first) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && o.failed == nil {
		o.failed = a.legError(l, err)
	}
	if o.failed != nil {
		o.close()
	}
	return o
}

// firstOf waits for the beginning of a body.
func firstOf(body io.Reader) ([]byte, error) {
	buffer := buffers.take()
	defer buffers.give(buffer)
	n, err := io.ReadAtLeast(body, *buffer, 1)
	return bytes.Clone((*buffer)[:n]), err
}

// firstEvent waits for the first event of a stream that says something. Nothing of a
// stream that begins with an error goes to the client: another pair may do better.
func (a *attempt) firstEvent(o *opened) ([]byte, error) {
	buffer := small.take()
	defer small.give(buffer)
	n := 0
	for n < len(*buffer) {
		k, err := o.answer.Body.Read((*buffer)[n:])
		n += k
		a.decode.slot.hear(time.Now())
		event, ok := firstSaid((*buffer)[:n])
		o.failed = a.badAnswer(event.data, event.failed)
		if ok {
			break
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return bytes.Clone((*buffer)[:n]), nil
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
func (a *attempt) legError(l *leg, err error) *failure {
	f := &failure{leg: l.role, status: http.StatusBadGateway}
	var cause *failure
	switch why := context.Cause(l.ctx); {
	case errors.As(why, &cause):
		ended := *cause
		if ended.leg != l.role {
			ended.outcome = outcomeCancelled
		}
		return &ended
	case errors.Is(why, errTooOld), why == nil && late(a.until):
		// A deadline shows in a dial and in a read before it shows as the context's cause.
		f = tooOld(a.until.Sub(a.began))
		f.leg, f.outcome = l.role, outcomeSilent
	case errors.Is(why, errShutdown):
		f.leg, f.status, f.code, f.text, f.outcome = "", http.StatusServiceUnavailable, codeShuttingDown, why.Error(), outcomeCancelled
	case why != nil:
		f.code, f.text, f.outcome = codeLost, why.Error(), outcomeCancelled
	case unreachable(err):
		a.suspect(l.slot, codeUnreachable, holdFailed)
		f.code, f.text, f.outcome = codeUnreachable, "the engine accepts no connection", outcomeUnreachable
	default:
		a.suspect(l.slot, codeLost, holdFailed)
		f.code, f.text, f.outcome = codeLost, "the connection to the engine ended before its answer did", outcomeLost
	}
	a.log.Info("leg ended", "leg", l.role, "transfer", a.transfer, "pod", l.slot.pod.address(), "error", err, "cause", f.text)
	return f
}

// engineError makes a failure of an answer that is not 200. What the client did
// wrong it gets as the engine tells it, without addresses of pods. A refusal by
// prefill is the client's doing unless it is about what only the router sends: of
// the fields that the router changes there, the others get their least value, and
// what is wrong with that is wrong with the client's.
func (a *attempt) engineError(l *leg, answer *http.Response) *failure {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxError))
	if err != nil {
		return a.legError(l, err)
	}
	status := answer.StatusCode
	if status >= 400 && status < 500 && (l.role == kvlayout.Decode || !aboutEdits(body)) {
		return a.refusal(l.role, status, answer.Header, body)
	}
	f := a.toldError(l.role, status, body)
	f.retry = answer.Header.Get("Retry-After")
	return f
}

// eventError makes a failure of an error that decode tells under status 200, as its
// whole answer or in the first event of a stream.
func (a *attempt) eventError(body []byte) *failure {
	status := http.StatusInternalServerError
	for _, path := range []string{"error.code", "code"} {
		if v := gjson.GetBytes(body, path); v.Type == gjson.Number && v.Num >= 400 && v.Num < 600 {
			status = int(v.Num)
		}
	}
	if status < 500 {
		return a.refusal(kvlayout.Decode, status, http.Header{"Content-Type": {"application/json"}}, body)
	}
	return a.toldError(kvlayout.Decode, status, body)
}

// badAnswer makes a failure of what decode says under status 200, unless it is good.
func (a *attempt) badAnswer(body []byte, isError bool) *failure {
	if isError {
		return a.eventError(body)
	}
	if text, ended := gaveUp(body); ended {
		return &failure{
			leg: kvlayout.Decode, status: http.StatusInternalServerError, engine: http.StatusInternalServerError,
			code: codeFailed, outcome: outcomeFailed, text: text,
		}
	}
	return nil
}

// refusal is an engine's answer that the client gets as it is.
func (a *attempt) refusal(leg kvlayout.Role, status int, h http.Header, body []byte) *failure {
	return &failure{
		leg: leg, status: status, engine: status, code: codeFailed, outcome: outcomeRefused, text: "the engine refuses the request",
		asIs: &verbatim{status, h, []byte(a.masker(a.pair).body(string(body)))},
	}
}

// toldError is what an engine tells of its own failure.
func (a *attempt) toldError(leg kvlayout.Role, status int, body []byte) *failure {
	f := &failure{leg: leg, status: status, engine: status, code: codeFailed, outcome: outcomeFailed}
	if status < 500 || leg == kvlayout.Prefill && status != http.StatusServiceUnavailable {
		f.status = http.StatusBadGateway
	}
	f.text = a.masker(a.pair).conceal(messageOf(bytes.TrimSpace(body)))
	// PDPool's own engines tell the rule that was broken.
	if rule := gjson.GetBytes(body, "error.rule"); rule.Type == gjson.String && rule.Str != "" {
		f.code, f.told = rule.Str, true
		if _, text, ok := strings.Cut(f.text, rule.Str+": "); ok {
			f.text = text // the rule is told once
		}
	}
	if f.text == "" {
		f.text = fmt.Sprintf("the engine answers %d", status)
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
func (a *attempt) count(l *leg, f *failure) {
	outcome := outcomeOK
	if f != nil {
		outcome = f.outcome
	}
	a.metrics.legs.WithLabelValues(string(l.role), outcome).Inc()
}
