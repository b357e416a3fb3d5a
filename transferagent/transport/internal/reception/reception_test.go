package reception_test

import (
	"errors"
	"maps"
	"net"
	"runtime"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
	"github.com/pdpool/pdpool/transferagent/transport/internal/reception"
)

func TestReception(t *testing.T) {
	defer goleak.VerifyNone(t)
	var drops ledger.Drops
	r := reception.New[int, string](reception.Bounds{Open: 2, Unproved: 9, PerHost: 9}, &drops)
	type arrival struct {
		conn int
		err  error
	}
	arrivals, served, ended := make(chan arrival), make(chan int), make(chan int)
	leave := make(chan struct{})
	r.Accept(reception.Door[int]{
		Next: func() (int, error) {
			a := <-arrivals
			return a.conn, a.err
		},
		Serve: func(c int) {
			served <- c
			<-leave
		},
		Cut: func(c int) { t.Errorf("%d was cut", c) },
		End: func(c int) { ended <- c },
	})

	arrivals <- arrival{err: errors.New("no descriptors")}
	for c := range 2 {
		arrivals <- arrival{conn: c}
		if got := <-served; got != c {
			t.Errorf("%d is served, not %d", got, c)
		}
	}
	arrivals <- arrival{conn: 2}
	if got := <-ended; got != 2 {
		t.Errorf("%d was turned away, not the third", got)
	}
	if got := r.Incoming(); len(got) != 2 || slices.Contains(got, 2) {
		t.Errorf("served are %v", got)
	}

	if !r.Enter("a") || !r.Enter("b") {
		t.Error("a session was refused")
	}
	r.Forget("a")
	if sessions, first := r.Close(); !first || !slices.Equal(sessions, []string{"b"}) {
		t.Errorf("closed with %v, first %t", sessions, first)
	}
	if _, first := r.Close(); first || r.Enter("c") {
		t.Error("it was closed, and is open")
	}
	arrivals <- arrival{conn: 3}
	<-ended
	arrivals <- arrival{err: net.ErrClosed}
	close(leave)
	<-ended
	<-ended
	r.Wait()
	if got, want := drops.Counts(), map[string]int64{"accept": 1, "crowded": 2}; !maps.Equal(got, want) {
		t.Errorf("dropped %v, want %v", got, want)
	}
}

// guest is a connection of the test below.
type guest struct {
	host string
	cut  chan struct{}
}

// TestStrangersGiveWay: the oldest stranger of a host that brings too many has to
// go, or of all; who has proved itself stays.
func TestStrangersGiveWay(t *testing.T) {
	defer goleak.VerifyNone(t)
	var drops ledger.Drops
	r := reception.New[*guest, string](reception.Bounds{Open: 9, Unproved: 3, PerHost: 2}, &drops)
	arrivals, ended := make(chan *guest), make(chan *guest)
	r.Accept(reception.Door[*guest]{
		Next: func() (*guest, error) {
			if g := <-arrivals; g != nil {
				return g, nil
			}
			return nil, net.ErrClosed
		},
		Host:  func(g *guest) string { return g.host },
		Serve: func(g *guest) { <-g.cut },
		Cut:   func(g *guest) { close(g.cut) },
		End:   func(g *guest) { ended <- g },
	})
	come := func(host string) *guest {
		g := &guest{host, make(chan struct{})}
		arrivals <- g
		return g
	}
	goes := func(why string, want *guest) {
		t.Helper()
		if got := <-ended; got != want {
			t.Errorf("%s: another one had to go", why)
		}
	}
	peer := come("a")
	for len(r.Incoming()) < 1 { // it is admitted after it was accepted
		runtime.Gosched()
	}
	r.Proved(peer)
	a1, a2 := come("a"), come("a")
	a3 := come("a")
	goes("third of a host", a1)
	b1 := come("b")
	b2 := come("b")
	goes("fourth of all", a2)
	b3 := come("b")
	goes("third of a host that is not the oldest", b1)
	if got := r.Incoming(); len(got) != 4 || !slices.Contains(got, peer) {
		t.Errorf("%d are served, the peer among them: %t", len(got), slices.Contains(got, peer))
	}
	arrivals <- nil
	r.Close()
	for _, g := range []*guest{peer, a3, b2, b3} {
		close(g.cut)
		goes("close", g)
	}
	r.Wait()
	if got, want := drops.Counts(), map[string]int64{"crowded": 3}; !maps.Equal(got, want) {
		t.Errorf("dropped %v, want %v", got, want)
	}
}
