//go:build linux

package shm

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Margin is what a writer may need beyond the lease: to end the portion that it is
// at, of at most 1 MiB, on a machine that is short of processors.
const Margin = time.Second

// maxLease is the longest lease that a writer believes. A reader that asks for more
// would only harm itself; it is refused as malformed.
const maxLease = time.Minute

// begin is when this process did; times of leases are counted from it.
var begin = time.Now()

// lease is what a writer may copy under. Every answer of the reader's renews it,
// counted from when the writer sent what is answered: so it never outlasts, by more
// than its length, the last moment at which the reader was alive, whatever lay in a
// socket meanwhile and without clocks that agree.
type lease struct {
	length time.Duration // as the reader has told
	until  atomic.Int64  // since begin

	thirsty chan struct{} // someone wants to copy, and the lease wears off
	pending atomic.Bool   // a renewal was asked for and not answered
}

// set takes the length that a welcome told.
func (l *lease) set(length int64) error {
	if length <= 0 || length > int64(maxLease) {
		return fmt.Errorf("a lease of %v, not above 0 and at most %v: %w", time.Duration(length), maxLease, errMessage)
	}
	l.length = time.Duration(length)
	l.thirsty = make(chan struct{}, 1)
	return nil
}

// renew extends the lease by an answer to what was sent then.
func (l *lease) renew(sent time.Time) {
	l.until.Store(int64(sent.Add(l.length).Sub(begin)))
}

// holds reports whether copying is allowed now. It has a renewal sent when a
// quarter of the lease is over.
func (l *lease) holds() bool {
	left := time.Duration(l.until.Load()) - time.Since(begin)
	if left < l.length*3/4 && l.pending.CompareAndSwap(false, true) {
		select {
		case l.thirsty <- struct{}{}:
		default: // it was not heard yet
		}
	}
	return left > 0
}

// keep asks for renewals until the session ends.
func (s *session) keep() {
	for {
		select {
		case <-s.lease.thirsty:
			s.send(message{kind: renew})
		case <-s.box.Ending():
			return
		}
	}
}
