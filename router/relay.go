package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
)

// pool keeps buffers of one size.
type pool struct {
	sync.Pool
	size int
}

// Buffers for reading what engines and clients send. A small one is enough for events
// and for who has sent little so far: hundreds may wait with one each.
var (
	buffers = pool{size: 32 << 10}
	small   = pool{size: 8 << 10}
)

func (p *pool) take() *[]byte {
	if b, ok := p.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, p.size)
	return &b
}

func (p *pool) give(b *[]byte) { p.Put(b) }

// relay passes decode's answer to the client byte for byte, but for the id that
// stock engines repeat and for addresses in errors that are told in mid stream.
func (a *attempt) relay(o *opened) string {
	a.metrics.firstByte.WithLabelValues(a.request.endpoint).Observe(time.Since(a.began).Seconds())
	defer a.finish(&a.decode)
	defer o.close()
	defer a.endPrefill()
	passHeader(a.w.Header(), o.answer.Header)
	a.request.stream = eventStream(o.answer.Header)
	through := a.passing()
	o.first = through.pass(o.first)
	switch {
	case o.whole:
		o.first = append(o.first, through.rest(true)...)
		a.w.Header().Set("Content-Length", strconv.Itoa(len(o.first)))
	case o.answer.ContentLength >= 0 && through == (passing{}):
		a.w.Header().Set("Content-Length", strconv.FormatInt(o.answer.ContentLength, 10))
	}
	a.w.WriteHeader(o.answer.StatusCode)
	a.sent = true
	f := a.pass(o, through)
	switch {
	case f == nil:
		a.count(&a.decode, nil)
		return strconv.Itoa(o.answer.StatusCode)
	case f.leg == kvlayout.Prefill || f.code == codeClientGone:
		a.count(&a.decode, &failure{outcome: outcomeCancelled})
	default:
		a.count(&a.decode, f)
	}
	return a.fail(f)
}

// passing is what is done to an answer on its way.
type passing struct {
	events *events
	names  *renaming
}

func (a *attempt) passing() passing {
	p := passing{names: a.renaming()}
	if a.request.stream {
		p.events = &events{mask: func(text string) string { return a.masker(a.pair).event(text) }}
	}
	return p
}

// pass returns what can be sent on of all that came.
func (p passing) pass(b []byte) []byte { return p.names.pass(p.events.pass(b)) }

// rest is what was held when nothing more came. An event that breaks off is not sent.
func (p passing) rest(whole bool) []byte {
	var last []byte
	if whole {
		last = p.names.pass(p.events.end())
	}
	return append(last, p.names.rest()...)
}

// pass copies the stream until its end.
func (a *attempt) pass(o *opened, through passing) *failure {
	out := newFlow(a.w, a.Idle)
	out.flush = a.request.stream
	defer out.end()
	if err := out.write(o.first); err != nil {
		return gone()
	}
	if o.whole {
		return nil
	}
	unwatch := context.AfterFunc(a.client.Context(), func() { a.decode.cancel(errClientGone) })
	defer unwatch()
	idle := newExpiry(a.Idle, a.decode.cancel, &failure{
		leg: kvlayout.Decode, status: http.StatusGatewayTimeout, code: codeSilent, outcome: outcomeSilent,
		text: "nothing came for " + a.Idle.String() + " in mid stream",
	})
	defer idle.stop()
	from := &buffers
	if a.request.stream {
		from = &small
	}
	buffer := from.take()
	defer from.give(buffer)
	for {
		n, err := o.answer.Body.Read(*buffer)
		if n > 0 {
			now := time.Now()
			idle.putOff(now)
			a.decode.slot.hear(now)
			if out.writeAt(now, through.pass((*buffer)[:n])) != nil {
				return gone()
			}
		}
		if err == nil {
			continue
		}
		whole := errors.Is(err, io.EOF)
		if out.write(through.rest(whole)) != nil {
			return gone()
		}
		a.request.cutEvent = out.inEvent()
		if whole {
			return a.ended(through.events)
		}
		return a.broken(err)
	}
}

// ended says whether a stream that has come to its end was whole.
func (a *attempt) ended(e *events) *failure {
	f := &failure{leg: kvlayout.Decode, status: http.StatusBadGateway, code: codeLost, outcome: outcomeLost, text: "the stream ended before it was done"}
	switch {
	case e == nil || e.done && !e.failed:
		return nil
	case e.failed:
		f.code, f.outcome, f.text, f.sent = codeFailed, outcomeFailed, "the engine tells an error in the stream", !e.cut
	default:
		a.suspect(a.decode.slot, codeLost, holdFailed)
	}
	return f
}

func gone() *failure { return &failure{code: codeClientGone, text: errClientGone.Error()} }

// broken says why the stream ended before its end.
func (a *attempt) broken(err error) *failure {
	why := context.Cause(a.decode.ctx)
	var f *failure
	switch {
	case errors.As(why, &f):
		if f.code == codeSilent && f.leg == kvlayout.Decode {
			a.suspect(a.decode.slot, codeSilent, holdSilent)
		}
		return f
	case errors.Is(why, errClientGone):
		return gone()
	}
	return a.legError(&a.decode, err)
}

// breakStream tells the client of a stream that no more comes. There is no [DONE].
func (a *attempt) breakStream(f *failure) {
	if !a.request.stream || f.sent {
		return
	}
	event := append([]byte("data: "), f.errorBody()...)
	event = append(event, "\n\n"...)
	if a.request.cutEvent {
		event = append([]byte("\n\n"), event...)
	}
	out := newFlow(a.w, a.Idle)
	out.flush = true
	defer out.end()
	_ = out.write(event) // the client may have gone
}

// flow writes an answer to a client that must take it.
type flow struct {
	w       http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	flush   bool
	armed   time.Time // when the write deadline was last put off
	tail    [4]byte   // last bytes written
}

func newFlow(w http.ResponseWriter, stall time.Duration) *flow {
	return &flow{w: w, control: http.NewResponseController(w), stall: stall}
}

// write sends a piece, at once if it is one of a stream.
func (f *flow) write(b []byte) error { return f.writeAt(time.Now(), b) }

// writeAt is write at a time that the caller knows.
func (f *flow) writeAt(now time.Time, b []byte) error {
	if now.Sub(f.armed) > time.Second {
		f.armed = now
		// Only a writer that wraps another has no deadline; then nothing is lost but the bound.
		_ = f.control.SetWriteDeadline(now.Add(f.stall))
	}
	if len(b) == 0 {
		return nil
	}
	if _, err := f.w.Write(b); err != nil {
		return err
	}
	if n := len(b); n >= len(f.tail) {
		copy(f.tail[:], b[n-len(f.tail):])
	} else {
		copy(f.tail[:], f.tail[n:])
		copy(f.tail[len(f.tail)-n:], b)
	}
	if !f.flush {
		return nil
	}
	return f.control.Flush()
}

// copy sends all of a body.
func (f *flow) copy(body io.Reader) error {
	buffer := buffers.take()
	defer buffers.give(buffer)
	for {
		n, err := body.Read(*buffer)
		if n > 0 {
			if err := f.write((*buffer)[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// inEvent says that the last event is not complete.
func (f *flow) inEvent() bool {
	for _, end := range []string{"\n\n", "\r\n\r\n", "\r\r"} {
		if bytes.HasSuffix(f.tail[:], []byte(end)) {
			return false
		}
	}
	return true
}

// end sends what is still in a buffer while the deadline stands, then takes the
// deadline away: the connection may serve another request.
func (f *flow) end() {
	_ = f.control.Flush() // the client may have gone
	_ = f.control.SetWriteDeadline(time.Time{})
}
