package router

import "bytes"

// maxHeld bounds the part of an event that is kept until its end has come. A longer
// event is passed on in pieces, unless it begins as an error.
const maxHeld = 256 << 10

// events passes a stream of server-sent events on, whole events only: one that breaks
// off never reaches the client, and errors that an engine tells in mid stream lose the
// addresses in them. A nil one leaves all as it is.
type events struct {
	mask   func(string) string
	breaks breaks
	held   []byte // the beginning of an event, in memory of its own
	ends   []int  // of the events that ended in the last piece
	part   bool   // part of an event was passed
	cut    bool   // an error was too long: nothing is passed any more

	done   bool // the last event says that the stream is done
	failed bool // an event tells an error
}

// pass returns what can be sent on of all that came. It may be part of b, and is good
// until the next call.
func (e *events) pass(b []byte) []byte {
	switch {
	case e == nil || len(b) == 0:
		return b
	case e.cut:
		return nil
	}
	seen := len(e.held)
	if seen > 0 {
		b = append(e.held, b...)
		e.held = nil
	}
	e.ends = e.ends[:0]
	for at := e.breaks.next(b, seen); at >= 0; at = e.breaks.next(b, at) {
		e.ends = append(e.ends, at)
	}
	if len(e.ends) == 0 {
		return e.hold(b, seen > 0)
	}
	n := e.ends[len(e.ends)-1]
	e.held = bytes.Clone(b[n:])
	return e.look(b[:n])
}

// hold keeps the beginning of an event, in the memory that it has if that is its own. Of
// one that is too long it returns what was kept.
func (e *events) hold(b []byte, own bool) []byte {
	switch {
	case e.part:
		return b
	case len(b) <= maxHeld:
		if e.held = b; !own {
			e.held = bytes.Clone(b)
		}
		return nil
	case parseEvent(b).failed:
		e.cut, e.failed, e.done = true, true, false
		return nil
	}
	e.part = true
	return b
}

// end returns what was held when the stream has come to its end: some engines leave out
// the blank line after their last event.
func (e *events) end() []byte {
	if e == nil || len(e.held) == 0 {
		return nil
	}
	held := e.held
	e.held = nil
	e.ends = append(e.ends[:0], len(held))
	return e.look(held)
}

// look notes what whole events say, and masks errors.
func (e *events) look(b []byte) []byte {
	switch {
	case bytes.HasSuffix(bytes.TrimRight(b, "\r\n"), doneData):
		e.done = true
	case e.done || bytes.Contains(b, doneData):
		e.done = e.lastIsDone(b)
	}
	tail := e.part // the first is the rest of one that was passed
	e.part = false
	if !mayFail(b) {
		return b
	}
	out := make([]byte, 0, len(b))
	from := 0
	for _, to := range e.ends {
		event := b[from:to]
		from = to
		if !tail && parseEvent(event).failed {
			event = []byte(e.mask(string(event)))
			e.failed = true
		}
		tail = false
		out = append(out, event...)
	}
	return out
}

// lastIsDone says that of the events that say something the last is the end; what says
// nothing changes nothing.
func (e *events) lastIsDone(b []byte) bool {
	done, from := e.done, 0
	for _, to := range e.ends {
		if event := parseEvent(b[from:to]); event.told || event.failed {
			done = bytes.Equal(event.data, doneData)
		}
		from = to
	}
	return done
}

var (
	errorWord = []byte("error")
	escape    = []byte(`\u`) // by which the word can be written otherwise
	doneData  = []byte("[DONE]")
	dataKey   = []byte("data:")
	eventKey  = []byte("event:")
)

// mayFail says that an event in b may be an error: the look at each costs more.
func mayFail(b []byte) bool { return bytes.Contains(b, errorWord) || bytes.Contains(b, escape) }

// said is what an event says.
type said struct {
	data   []byte
	told   bool // it has data
	failed bool // it is an error, by its name or by its data
}

// parseEvent reads an event. Of one that is not whole it says what can be seen.
func parseEvent(b []byte) (s said) {
	var line []byte
	for len(b) > 0 {
		line, _, b = cutLine(b)
		if text, ok := bytes.CutPrefix(line, dataKey); ok {
			s.data, s.told = append(s.data, bytes.TrimSpace(text)...), true
		}
		if name, ok := bytes.CutPrefix(line, eventKey); ok {
			s.failed = s.failed || bytes.Equal(bytes.TrimSpace(name), errorWord)
		}
	}
	s.failed = s.failed || s.told && mayFail(s.data) && isError(s.data)
	return s
}

// firstSaid is the first event of a stream's beginning that has data or is an error,
// when it is whole.
func firstSaid(b []byte) (said, bool) {
	var ends breaks
	from := 0
	for to := ends.next(b, 0); to >= 0; to = ends.next(b, to) {
		if s := parseEvent(b[from:to]); s.told || s.failed {
			return s, true
		}
		from = to
	}
	return said{}, false
}
