package transporttest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// Proving is what RunProofs needs of a mover: what it has dropped.
type Proving interface {
	transport.Mover
	Dropped() map[string]int64
}

// MakeProving is Make for movers that take their secrets from these functions, and
// end a connection that proves nothing within a second or so. connect opens a
// connection to b that speaks by hand.
type MakeProving func(t *testing.T, a, b func() poolkey.Keys) (ma, mb Proving, host string, connect func() (net.Conn, error))

// RunProofs runs the cases of movers that prove the pool's secret to each other.
func RunProofs(t *testing.T, movers MakeProving) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, MakeProving)
	}{
		{"Proved", proved},
		{"OtherSecret", otherSecret},
		{"OneHasNone", oneHasNone},
		{"NewSecret", newSecret},
		{"SilentStrangers", silentStrangers},
		{"Noise", noise},
	} {
		t.Run(c.name, func(t *testing.T) {
			leaks := goleak.IgnoreCurrent()
			t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
			c.run(t, movers)
		})
	}
}

// ring holds the secrets of one agent, which change.
type ring struct{ keys atomic.Pointer[poolkey.Keys] }

func (r *ring) now() poolkey.Keys { return *r.keys.Load() }

func (r *ring) hold(t *testing.T, secrets ...string) {
	t.Helper()
	var all [][]byte
	for _, s := range secrets {
		all = append(all, []byte(s))
	}
	k, err := poolkey.New(all...)
	if err != nil {
		t.Fatal(err)
	}
	r.keys.Store(&k)
}

func ringOf(t *testing.T, secrets ...string) *ring {
	t.Helper()
	r := &ring{}
	r.hold(t, secrets...)
	return r
}

const (
	first  = "the-first-secret"
	second = "the-second-secret"
)

func proving(t *testing.T, movers MakeProving, a, b *ring) (*pair, Proving, Proving, func() (net.Conn, error)) {
	t.Helper()
	ma, mb, host, connect := movers(t, a.now, b.now)
	return &pair{t: t, a: ma, b: mb, host: host}, ma, mb, connect
}

// works dials and moves some bytes.
func (p *pair) works(name string) {
	p.t.Helper()
	p.move(p.dial(), transport.Batch{Flow: flow(name), Source: 1, Target: 2, Copies: whole(small)})
}

// refused demands that a dial fails with want, or with anything if want is nil.
func (p *pair) refused(want error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	s, err := p.a.Dial(ctx, p.host, p.b.Address())
	if err == nil {
		s.Close() //nolint:errcheck // it should not be there
		p.t.Error("dialled a peer of another secret")
	} else if want != nil && !errors.Is(err, want) {
		p.t.Errorf("dial: %v, want %v", err, want)
	}
}

// proved: with the same secret all goes as without.
func proved(t *testing.T, movers MakeProving) {
	p, a, b, _ := proving(t, movers, ringOf(t, first), ringOf(t, first))
	p.register(p.a, 1, small)
	p.register(p.b, 2, small)
	p.works("proved")
	if a, b := a.Dropped(), b.Dropped(); len(a)+len(b) != 0 {
		t.Errorf("dropped %v and %v", a, b)
	}
}

// otherSecret: both sides count it, and no byte moves.
func otherSecret(t *testing.T, movers MakeProving) {
	p, a, b, _ := proving(t, movers, ringOf(t, first), ringOf(t, second))
	p.refused(transport.ErrUnproved)
	if got := a.Dropped()["listener-proof"]; got != 1 {
		t.Errorf("the dialler has counted %v", a.Dropped())
	}
	if got := b.Dropped()["proof"]; got != 1 {
		t.Errorf("the listener has counted %v", b.Dropped())
	}
}

// oneHasNone: neither end takes one that proves nothing.
func oneHasNone(t *testing.T, movers MakeProving) {
	for name, keyed := range map[string]bool{"dialler": true, "listener": false} {
		t.Run(name, func(t *testing.T) {
			a, b := ringOf(t), ringOf(t, first)
			if keyed {
				a, b = b, a
			}
			p, _, mb, _ := proving(t, movers, a, b)
			p.refused(nil)
			if got := mb.Dropped()["hello"]; got != 1 {
				t.Errorf("the listener has counted %v", mb.Dropped())
			}
		})
	}
}

// newSecret: movers live on while the pool gets another secret. What is open stays;
// who does not know the new one yet cannot dial until it does.
func newSecret(t *testing.T, movers MakeProving) {
	a, b := ringOf(t, first), ringOf(t, first)
	p, _, _, _ := proving(t, movers, a, b)
	p.register(p.a, 1, small)
	p.register(p.b, 2, small)
	open := p.dial()
	b.hold(t, second, first)
	p.refused(transport.ErrUnproved)
	a.hold(t, second, first)
	p.works("new")
	b.hold(t, second)
	p.works("old is forgotten")
	p.move(open, transport.Batch{Flow: flow("open"), Source: 1, Target: 2, Copies: whole(small)})
}

// silentStrangers: a hundred connections that say nothing keep no peer out, and go.
func silentStrangers(t *testing.T, movers MakeProving) {
	const strangers = 100
	p, _, b, connect := proving(t, movers, ringOf(t, first), ringOf(t, first))
	p.register(p.a, 1, small)
	p.register(p.b, 2, small)
	var conns []net.Conn
	for range strangers {
		c, err := connect()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) //nolint:errcheck // it may be closed
		conns = append(conns, c)
	}
	p.works("among strangers")
	for _, c := range conns {
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("a stranger was told %d bytes", n)
		}
	}
	// Each is counted before it ends.
	if got := b.Dropped(); got["silent"]+got["crowded"] != strangers {
		t.Errorf("of %d strangers were counted %v", strangers, got)
	}
}

// noise: connections that send whatever comes to mind cost no peer a batch or a dial,
// and each is counted once.
func noise(t *testing.T, movers MakeProving) {
	const callers, calls = 4, 200
	p, _, b, connect := proving(t, movers, ringOf(t, first), ringOf(t, first))
	p.register(p.a, 1, small)
	p.register(p.b, 2, small)
	said := [][]byte{
		[]byte("GET /metrics HTTP/1.1\r\nHost: agent\r\n\r\n"),
		append([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}, make([]byte, 32)...),
		append([]byte("PDPC\x01\x00\x00\x00"), make([]byte, 64)...), // a challenge and a proof
		append([]byte("PDPC\x63\x00\x00\x00"), make([]byte, 64)...),
		[]byte("PDPC"),
		make([]byte, 4096),
	}
	var calling sync.WaitGroup
	for i := range callers {
		calling.Go(func() {
			for k := range calls {
				c, err := connect()
				if err != nil {
					t.Error(err)
					return
				}
				c.Write(said[(i+k)%len(said)]) //nolint:errcheck // it may be refused before it has ended
				end(c)
				io.Copy(io.Discard, c) //nolint:errcheck // likewise
				c.Close()              //nolint:errcheck // likewise
			}
		})
	}
	quiet := make(chan struct{})
	go func() { calling.Wait(); close(quiet) }()
	open := p.dial()
	for over := false; !over; {
		p.move(open, transport.Batch{Flow: flow("open"), Source: 1, Target: 2, Copies: whole(small)})
		s := p.dial()
		p.move(s, transport.Batch{Flow: flow("new"), Source: 1, Target: 2, Copies: whole(small)})
		s.Close() //nolint:errcheck // it has done what it was for
		select {
		case <-quiet:
			over = true
		default:
		}
	}
	sum := int64(0)
	for _, n := range b.Dropped() {
		sum += n
	}
	if sum != callers*calls {
		t.Errorf("of %d calls were counted %v", callers*calls, b.Dropped())
	}
}

// end says that nothing more is sent, where a connection knows that.
func end(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		h.CloseWrite() //nolint:errcheck // it may be closed by the other end
	}
}
