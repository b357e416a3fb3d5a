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

// pool keeps buffers of oneRead bytes.
type pool struct{ sync.Pool }

// buffers are for reading what engines and clients send.
var buffers pool

func (p *pool) take() *[]byte {
	if b, ok := p.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, oneRead)
	return &b
}

func (p *pool) give(b *[]byte) { p.Put(b) }

// relay passes decode's answer to the client byte for byte, but for the id that
// stock engines repeat and for addresses in what is an error in spite of its status.
func (x *exchange) relay(o *opened) string {
	x.metrics.firstByte.WithLabelValues(x.request.endpoint).Observe(time.Since(x.began).Seconds())
	defer o.close()
	x.streaming.Store(true)
	select {
	case <-x.prefill.done:
		if x.prefill.failed != nil {
			x.count(&x.decode, &failure{outcome: outcomeCancelled})
			return x.fail(x.prefill.failed)
		}
	default:
		defer x.endPrefill()
	}
	passHeader(x.w.Header(), o.answer.Header)
	x.request.stream = eventStream(o.answer.Header)
	names := x.renaming()
	o.first = names.pass(o.first)
	switch {
	case o.whole:
		o.first = append(o.first, names.rest()...)
		if isError(o.first) {
			o.first = []byte(masked(string(o.first), x.pair))
		}
		x.w.Header().Set("Content-Length", strconv.Itoa(len(o.first)))
	case o.answer.ContentLength >= 0 && names == nil:
		x.w.Header().Set("Content-Length", strconv.FormatInt(o.answer.ContentLength, 10))
	}
	x.w.WriteHeader(o.answer.StatusCode)
	x.sent = true
	f := x.pass(o, names)
	switch {
	case f == nil:
		x.count(&x.decode, nil)
		return strconv.Itoa(o.answer.StatusCode)
	case f.leg == kvlayout.Prefill || f.code == codeClientGone:
		x.count(&x.decode, &failure{outcome: outcomeCancelled})
	default:
		x.count(&x.decode, f)
	}
	return x.fail(f)
}

// pass copies the stream until its end.
func (x *exchange) pass(o *opened, names *renaming) *failure {
	out := newFlow(x.w, x.Idle)
	out.flush = x.request.stream
	defer out.end()
	if err := out.write(o.first); err != nil {
		return gone()
	}
	if o.whole {
		return nil
	}
	unwatch := context.AfterFunc(x.client.Context(), func() { x.decode.cancel(errClientGone) })
	defer unwatch()
	idle := newExpiry(x.Idle, x.decode.cancel, &failure{
		leg: kvlayout.Decode, status: http.StatusGatewayTimeout, code: codeSilent, outcome: outcomeSilent,
		text: "nothing came for " + x.Idle.String() + " in mid stream",
	})
	defer idle.stop()
	buffer := buffers.take()
	defer buffers.give(buffer)
	for {
		n, err := o.answer.Body.Read(*buffer)
		if n > 0 {
			idle.putOff()
			if out.write(names.pass((*buffer)[:n])) != nil {
				return gone()
			}
		}
		if err != nil && out.write(names.rest()) != nil {
			return gone()
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			x.request.cutEvent = out.inEvent()
			return x.broken(err)
		}
	}
}

// endPrefill lets a prefill leg that goes on after decode's whole answer do so for a
// moment: it tells nothing new.
func (x *exchange) endPrefill() {
	select {
	case <-x.prefill.done:
		return
	default:
	}
	x.legs.Go(func() {
		grace := time.NewTimer(prefillGrace)
		defer grace.Stop()
		select {
		case <-x.prefill.done:
		case <-grace.C:
			x.prefill.cancel(errAnswered)
		}
	})
}

func gone() *failure { return &failure{code: codeClientGone, text: errClientGone.Error()} }

// broken says why the stream ended before its end.
func (x *exchange) broken(err error) *failure {
	why := context.Cause(x.decode.ctx)
	var f *failure
	switch {
	case errors.As(why, &f):
		return f
	case errors.Is(why, errClientGone):
		return gone()
	}
	return x.legError(&x.decode, err)
}

// breakStream tells the client of a stream that no more comes. There is no [DONE].
func (x *exchange) breakStream(f *failure) {
	if !x.request.stream {
		return
	}
	event := append([]byte("data: "), f.errorBody()...)
	event = append(event, "\n\n"...)
	if x.request.cutEvent {
		event = append([]byte("\n\n"), event...)
	}
	out := newFlow(x.w, x.Idle)
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
func (f *flow) write(b []byte) error {
	if now := time.Now(); now.Sub(f.armed) > time.Second {
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
	return !bytes.HasSuffix(f.tail[:], []byte("\n\n")) && !bytes.HasSuffix(f.tail[:], []byte("\r\n\r\n"))
}

// end sends what is still in a buffer while the deadline stands, then takes the
// deadline away: the connection may serve another request.
func (f *flow) end() {
	_ = f.control.Flush() // the client may have gone
	_ = f.control.SetWriteDeadline(time.Time{})
}
