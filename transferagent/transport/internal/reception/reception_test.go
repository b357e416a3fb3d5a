package reception_test

import (
	"errors"
	"maps"
	"net"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/pdpool/pdpool/transferagent/transport/internal/ledger"
	"github.com/pdpool/pdpool/transferagent/transport/internal/reception"
)

func TestReception(t *testing.T) {
	defer goleak.VerifyNone(t)
	var drops ledger.Drops
	r := reception.New[int, string](2, &drops)
	type arrival struct {
		conn int
		err  error
	}
	arrivals, served, ended := make(chan arrival), make(chan int), make(chan int)
	leave := make(chan struct{})
	r.Accept(func() (int, error) {
		a := <-arrivals
		return a.conn, a.err
	}, func(c int) {
		served <- c
		<-leave
	}, func(c int) { ended <- c })

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
