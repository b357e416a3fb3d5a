package router

import (
	"context"
	"errors"
	"math"
	"net"
	"sync/atomic"
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

// expiry ends a context with a cause when it was not put off for some time. Putting
// off is cheap: the timer looks when it was done last.
type expiry struct {
	timer  *time.Timer
	after  time.Duration
	began  time.Time
	last   atomic.Int64 // nanoseconds from began
	cancel context.CancelCauseFunc
	cause  error
}

func newExpiry(after time.Duration, cancel context.CancelCauseFunc, cause error) *expiry {
	e := &expiry{after: after, began: time.Now(), cancel: cancel, cause: cause}
	e.timer = time.AfterFunc(math.MaxInt64, e.fire)
	e.timer.Reset(after)
	return e
}

func (e *expiry) fire() {
	if quiet := time.Since(e.began) - time.Duration(e.last.Load()); quiet < e.after {
		e.timer.Reset(e.after - quiet)
		return
	}
	e.cancel(e.cause)
}

func (e *expiry) putOff(now time.Time) { e.last.Store(int64(now.Sub(e.began))) }
func (e *expiry) stop()                { e.timer.Stop() }
