package router

import (
	"bytes"

	"github.com/pdpool/pdpool/kvlayout"
)

// renaming puts one text in place of another in a stream that comes in pieces. A nil
// one leaves all as it is.
type renaming struct {
	from, to []byte
	held     []byte // the end of what came, which may be the beginning of from
}

// renaming is for answers of stock engines: their id repeats X-Request-Id, in which
// the addresses of both pods are. The id has no character that JSON would escape.
func (a *attempt) renaming() *renaming {
	if a.pair.mover() != kvlayout.MoverEngine {
		return nil
	}
	return &renaming{
		from: []byte(a.pair.requestID(a.request.id, a.transfer)),
		to:   []byte(publicID(a.request.id, a.transfer)),
	}
}

// pass returns what can be sent on of all that came. It may be part of b.
func (r *renaming) pass(b []byte) []byte {
	if r == nil {
		return b
	}
	if len(r.held) > 0 {
		b, r.held = append(r.held, b...), nil
	}
	if bytes.Contains(b, r.from) {
		b = bytes.ReplaceAll(b, r.from, r.to)
	}
	for n := min(len(r.from)-1, len(b)); n > 0; n-- {
		if bytes.HasSuffix(b, r.from[:n]) {
			r.held = bytes.Clone(b[len(b)-n:])
			return b[:len(b)-n]
		}
	}
	return b
}

// rest is what was held when nothing more came.
func (r *renaming) rest() []byte {
	if r == nil {
		return nil
	}
	rest := r.held
	r.held = nil
	return rest
}
