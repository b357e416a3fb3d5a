package router

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/pdpool/pdpool/router/wire"
)

// idleEngine is how long a connection to an engine is kept for the next request: a
// little less than the 5 s after which vLLM's server closes it.
const idleEngine = 4 * time.Second

// Limits of the client's side to engines and agents.
const (
	idlePerPod      = 1024     // connections kept
	maxAnswerHeader = 64 << 10 // bytes
)

// newTransport makes the client's side to engines and agents.
func newTransport(dial time.Duration) *wire.Client {
	return wire.New(wire.Options{Dial: dial, Idle: idleEngine, MaxIdle: idlePerPod, MaxHeader: maxAnswerHeader})
}

// unreachable says that no connection came about, so that the engine has not seen
// the request.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// expiry is a timer that ends a context with a cause, and can be put off.
type expiry struct {
	timer *time.Timer
	after time.Duration
}

func newExpiry(after time.Duration, cancel context.CancelCauseFunc, cause error) *expiry {
	return &expiry{time.AfterFunc(after, func() { cancel(cause) }), after}
}

func (e *expiry) putOff() { e.timer.Reset(e.after) }
func (e *expiry) stop()   { e.timer.Stop() }
