package main

import (
	"runtime/debug"

	"github.com/pdpool/pdpool/memlimit"
)

// Shares of the container's memory, in percent: of the whole process, and of the
// bodies of requests, which are in memory about twice while they grow.
const (
	processShare = 90
	bodiesShare  = 25
)

// fit makes the router fit into the memory that text tells; empty: it is not told.
// The bounds of one body and of all become less, unless they were given.
func (o *options) fit(text string, body, buffered bool) error {
	limit, err := memlimit.Parse(text)
	if err != nil || limit == 0 {
		return err
	}
	debug.SetMemoryLimit(limit / 100 * processShare)
	if !body {
		o.limits.MaxBody = max(1, min(o.limits.MaxBody, limit/8))
	}
	if !buffered {
		o.limits.MaxBuffered = max(o.limits.MaxBody, min(o.limits.MaxBuffered, limit/100*bodiesShare))
	}
	return nil
}
