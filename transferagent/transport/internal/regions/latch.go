package regions

import (
	"context"
	"sync"
)

// User is one goroutine's claim to copy. It is reused from piece to piece.
type User struct {
	// Hurry, if set, is called when what this user holds is being closed: it
	// makes a blocking read end soon. It must not block.
	Hurry func()
	// Cut, if set, is called when the user still holds it after the grace of
	// Withdraw: it ends whatever blocks. It must not block.
	Cut func()
}

// latch lets users in until it is closed, and tells when the last has left.
type latch struct {
	mu     sync.Mutex
	users  map[*User]int
	closed bool
	quiet  chan struct{} // closed when closed and without users
}

func (l *latch) init() {
	l.users, l.quiet = map[*User]int{}, make(chan struct{})
}

// Acquire lets u copy until Release. It reports false when that is over for
// good. A user may hold it more than once.
func (l *latch) Acquire(u *User) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.users[u]++
	return true
}

// Release ends what Acquire began.
func (l *latch) Release(u *User) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[u]--; l.users[u] > 0 {
		return
	}
	delete(l.users, u)
	if l.closed && len(l.users) == 0 {
		close(l.quiet)
	}
}

// Gone reports whether Acquire fails from now on.
func (l *latch) Gone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// close lets nobody in any more and hurries those who are.
func (l *latch) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for u := range l.users {
		if u.Hurry != nil {
			u.Hurry()
		}
	}
	if len(l.users) == 0 {
		close(l.quiet)
	}
}

func (l *latch) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for u := range l.users {
		if u.Cut != nil {
			u.Cut()
		}
	}
}

func (l *latch) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users) == 0
}

// MaxRevoked is how many revoked transfers a Gate remembers: the newest ones.
const MaxRevoked = 16384

// Gate lets copies of a transfer in until it is revoked. The zero value is ready.
type Gate struct {
	mu      sync.Mutex
	m       map[string]*latch
	revoked []string // oldest first
}

// Pass is what Enter gave and Leave takes back.
type Pass struct {
	gate     *Gate
	transfer string
	latch    *latch
}

// Enter lets u copy for a transfer until it leaves; false when it is revoked.
func (g *Gate) Enter(transfer string, u *User) (Pass, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.latch(transfer)
	return Pass{g, transfer, l}, l.Acquire(u)
}

// Leave ends what a successful Enter began.
func (p Pass) Leave(u *User) {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.latch.Release(u)
	if p.gate.m[p.transfer] == p.latch && !p.latch.Gone() && p.latch.idle() {
		delete(p.gate.m, p.transfer)
	}
}

// Gone reports whether the transfer has been revoked since Enter.
func (p Pass) Gone() bool { return p.latch.Gone() }

// Revoked reports whether a transfer was revoked, for as long as it is remembered.
func (g *Gate) Revoked(transfer string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.m[transfer]
	return l != nil && l.Gone()
}

// Revoke lets nobody in for a transfer from now on, hurries who is, and returns
// when all have left or with ctx's error.
func (g *Gate) Revoke(ctx context.Context, transfer string) error {
	quiet := g.Shut(transfer)
	select {
	case <-quiet:
		return nil
	default:
	}
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Shut is Revoke without the wait: the channel is closed when all have left.
func (g *Gate) Shut(transfer string) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.latch(transfer)
	if l.Gone() {
		return l.quiet
	}
	l.close()
	if g.revoked = append(g.revoked, transfer); len(g.revoked) > MaxRevoked {
		// A latch that is still held stays with its holders and the waiter.
		delete(g.m, g.revoked[0])
		g.revoked = g.revoked[1:]
	}
	return l.quiet
}

func (g *Gate) latch(transfer string) *latch {
	l := g.m[transfer]
	if l == nil {
		if g.m == nil {
			g.m = map[string]*latch{}
		}
		l = &latch{}
		l.init()
		g.m[transfer] = l
	}
	return l
}
