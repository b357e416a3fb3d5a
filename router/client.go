package router

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// idleEngine is how long a connection to an engine is kept for the next request: a
// little less than the 5 s after which vLLM's server closes it.
const idleEngine = 4 * time.Second

// newTransport makes the client's side to engines and agents: HTTP/1.1, no
// compression, no proxy from the environment.
func newTransport(dial time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: dial, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3}}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		DisableCompression:     true,
		MaxIdleConns:           8192,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        idleEngine,
		MaxResponseHeaderBytes: 64 << 10,
		WriteBufferSize:        16 << 10,
		ReadBufferSize:         16 << 10,
	}
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
