package router

import "bytes"

// maxHeld bounds the part of an event that is kept until its end has come. A longer
// event is passed on in pieces.
const maxHeld = 256 << 10

// events passes a stream of server-sent events on, whole events only: one that breaks
// off never reaches the client, and errors that an engine tells in mid stream lose the
// addresses in them. A nil one leaves all as it is.
type events struct {
	mask func(string) string
	held []byte // the beginning of an event
	part bool   // part of an event was passed

	done   bool // the last event says that the stream is done
	failed bool // an event tells an error
}

// pass returns what can be sent on of all that came. It may be part of b, and is good
// until the next call.
func (e *events) pass(b []byte) []byte {
	if e == nil || len(b) == 0 {
		return b
	}
	if len(e.held) > 0 {
		b = append(e.held, b...)
		e.held = nil
	}
	n := eventsEnd(b)
	if n == 0 {
		if len(b) > maxHeld || e.part {
			e.part = true
			return b
		}
		e.held = bytes.Clone(b)
		return nil
	}
	if n < len(b) {
		e.held = bytes.Clone(b[n:])
	}
	e.part = false
	return e.look(b[:n])
}

// end returns what was held when the stream has come to its end: some engines leave out
// the blank line after their last event.
func (e *events) end() []byte {
	if e == nil || len(e.held) == 0 {
		return nil
	}
	held := e.held
	e.held = nil
	return e.look(held)
}

// look notes what whole events say, and masks errors.
func (e *events) look(b []byte) []byte {
	e.done = bytes.HasSuffix(bytes.TrimRight(b, "\r\n"), doneData)
	if !bytes.Contains(b, errorKey) {
		return b
	}
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		n := eventEnd(b)
		event := b[:n]
		b = b[n:]
		if data, ok := dataOf(event); ok && isError(data) {
			event = []byte(e.mask(string(event)))
			e.failed = true
		}
		out = append(out, event...)
	}
	return out
}

var (
	errorKey = []byte(`"error"`)
	doneData = []byte("[DONE]")
	dataKey  = []byte("data:")
)

// eventsEnd is the index behind the last event that is whole.
func eventsEnd(b []byte) int {
	n := bytes.LastIndex(b, []byte("\n\n")) + 2
	if m := bytes.LastIndex(b, []byte("\n\r\n")) + 3; m > n && m > 2 {
		return m
	}
	if n == 1 {
		return 0
	}
	return n
}

// eventEnd is the index behind the first event; all of b if it is not whole.
func eventEnd(b []byte) int {
	n := len(b)
	if i := bytes.Index(b, []byte("\n\n")); i >= 0 {
		n = i + 2
	}
	if i := bytes.Index(b[:n], []byte("\n\r\n")); i >= 0 {
		n = i + 3
	}
	return n
}

// dataOf is what the first event that has data says, when it is whole.
func dataOf(b []byte) ([]byte, bool) {
	for whole := b[:eventsEnd(b)]; len(whole) > 0; {
		n := eventEnd(whole)
		var data []byte
		found := false
		for line := range bytes.Lines(whole[:n]) {
			if text, ok := bytes.CutPrefix(line, dataKey); ok {
				data, found = append(data, bytes.TrimSpace(text)...), true
			}
		}
		if found {
			return data, true
		}
		whole = whole[n:]
	}
	return nil, false
}
