package zmtp_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/zmtp"
)

// proving serves a Router whose peers prove themselves by their first message, which
// is "proof"; all others end their connection. It answers each message.
func proving(t *testing.T, o zmtp.Options) *zmtp.Router {
	t.Helper()
	return serve(t, "127.0.0.1:0", o, func(p *zmtp.Peer, frames [][]byte) {
		switch string(frames[0]) {
		case "proof":
			p.Prove("")
		case "noise":
			p.Close()
			return
		}
		echo(p, frames)
	})
}

// ends waits for the Router to close a connection that it has said nothing on but
// its side of the handshake.
func ends(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("connection is still open: %v", err)
	}
}

// counts waits until connections have ended for these reasons, each as often as it is
// named; an end is seen before it is counted.
func counts(t *testing.T, r *zmtp.Router, reasons ...string) {
	t.Helper()
	want := map[string]uint64{}
	for _, reason := range reasons {
		want[reason]++
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		got := r.Stats().Ended
		delete(got, zmtp.Closed)
		if maps.Equal(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("ended by %v, not %v", got, want)
		}
	}
}

func TestStrangersTakeNoPlaceOfProvedPeers(t *testing.T) {
	r := proving(t, zmtp.Options{MaxConnections: 2, MaxPerHost: 2, Trial: &zmtp.Trial{Connections: 4, PerHost: 4, Within: patience}})
	first := dial(t, r.Addr().String(), zmtp.Options{})
	ask(t, first, "proof")
	var crowd []net.Conn
	for range 4 {
		crowd = append(crowd, connect(t, r, greeting+ready))
	}
	// The places on trial are taken: the oldest of them makes room for a peer.
	second := dial(t, r.Addr().String(), zmtp.Options{})
	ask(t, second, "proof")
	ends(t, crowd[0])
	ask(t, first, "still here")
	// Proved peers have their own limit.
	third := dial(t, r.Addr().String(), zmtp.Options{})
	// The end may be seen before the message is known to be written.
	if err := third.Send(t.Context(), []byte("proof")); err != nil && !errors.As(err, new(*zmtp.Error)) {
		t.Fatal(err)
	}
	within(t, third.Done())
	counts(t, r, zmtp.MadeRoom, zmtp.TooMany)
}

func TestMessagesOnTrialAreShort(t *testing.T) {
	r := proving(t, zmtp.Options{Trial: &zmtp.Trial{Message: 100, Within: patience}})
	long := strings.Repeat("x", 101)
	stranger := dial(t, r.Addr().String(), zmtp.Options{})
	if err := stranger.Send(t.Context(), []byte(long)); err != nil && !errors.As(err, new(*zmtp.Error)) {
		t.Fatal(err)
	}
	<-stranger.Done()
	pieces := dial(t, r.Addr().String(), zmtp.Options{})
	if err := pieces.Send(t.Context(), []byte(long[:60]), []byte(long[:60])); err != nil && !errors.As(err, new(*zmtp.Error)) {
		t.Fatal(err)
	}
	<-pieces.Done()
	peer := dial(t, r.Addr().String(), zmtp.Options{})
	ask(t, peer, "proof")
	ask(t, peer, long)
	counts(t, r, zmtp.FrameTooLong, zmtp.MessageTooLong)
}

// One host's strangers make room among themselves, not among those of others.
func TestHostsOnTrialAreApart(t *testing.T) {
	r := proving(t, zmtp.Options{Trial: &zmtp.Trial{Connections: 10, PerHost: 2, Within: patience}})
	from := func(host string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		c, err := d.DialContext(t.Context(), "tcp", r.Addr().String())
		if err != nil {
			t.Skipf("no second address: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, greeting+ready); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len(greeting)+len(ready))); err != nil {
			t.Fatal(err)
		}
		return c
	}
	other := from("127.0.0.2")
	var same []net.Conn
	for range 5 {
		same = append(same, from("127.0.0.1"))
	}
	for _, c := range same[:3] {
		ends(t, c)
	}
	if _, err := io.WriteString(other, "\x00\x05proof"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(other, make([]byte, 4)); err != nil {
		t.Fatalf("the other host's connection has ended: %v", err)
	}
}

func TestACrowdOfStrangersKeepsNoPeerOut(t *testing.T) {
	r := proving(t, zmtp.Options{MaxConnections: 4, MaxPerHost: 4, Trial: &zmtp.Trial{Within: patience}})
	stop, crowd := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(crowd)
		for i := range 4000 {
			select {
			case <-stop:
				return
			default:
			}
			c, err := net.Dial("tcp", r.Addr().String())
			if err != nil {
				continue
			}
			_, _ = io.WriteString(c, []string{greeting + ready + "\x00\x05noise", "GET / HTTP/1.1\r\n\r\n", greeting[:11], "\x16\x03\x01"}[i%4])
			if i%8 > 0 {
				_ = c.Close()
				continue
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	proves := func() (*zmtp.Dealer, error) {
		d, err := zmtp.Dial(t.Context(), r.Addr().String(), zmtp.Options{})
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = d.Close() })
		if err = d.Send(t.Context(), []byte("proof")); err == nil {
			_, err = d.Receive(t.Context())
		}
		return d, err
	}
	for i := range 50 {
		// On a busy machine the crowd may be faster than a peer, which tries again, as agents do.
		d, err := proves()
		for attempt := 1; err != nil; attempt++ {
			if attempt == 20 {
				t.Fatal(err)
			}
			d, err = proves()
		}
		ask(t, d, fmt.Sprint(i))
		_ = d.Close()
	}
	close(stop)
	<-crowd
}

// Who has filled the budget with half a message keeps neither a proof nor a short message
// out, and no other long one gets in.
func TestShortMessagesNeedNoBudget(t *testing.T) {
	const long = 64 << 10
	r := proving(t, zmtp.Options{Budget: zmtp.NewBudget(long, 16<<10), Trial: &zmtp.Trial{Within: patience}})
	proof := "\x00\x05proof"
	half := "\x02\x00\x00\x00\x00\x00\x01\x00\x00" + strings.Repeat("x", long/2)
	full := func() bool { return r.Stats().Ended[zmtp.BuffersFull] > 0 }
	for deadline := time.Now().Add(patience); !full(); {
		if time.Now().After(deadline) {
			t.Fatalf("the budget is not full: %v", r.Stats().Ended)
		}
		connect(t, r, greeting+ready+proof+half)
	}
	d := dial(t, r.Addr().String(), zmtp.Options{})
	ask(t, d, "proof")
	for range 3 {
		ask(t, d, strings.Repeat("x", 16<<10))
	}
	_ = d.Send(t.Context(), []byte(strings.Repeat("x", 2*long))) // cut off while it is sent, or after
	within(t, d.Done())
}

// A member that connects again and again has the places of its newest connections, and
// another of that name elsewhere, or one without a name, is none of it.
func TestMembersHaveTheirPlaces(t *testing.T) {
	r := serve(t, "127.0.0.1:0", zmtp.Options{MaxConnections: 6, MaxPerHost: 5, MaxPerMember: 2, Trial: &zmtp.Trial{Within: patience}}, func(p *zmtp.Peer, frames [][]byte) {
		p.Prove(string(frames[0]))
		echo(p, frames)
	})
	from := func(host, name string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
		c, err := d.DialContext(t.Context(), "tcp", r.Addr().String())
		if err != nil {
			t.Skipf("no second address: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(c, "%s%s\x00%c%s", greeting, ready, len(name), name); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, len(greeting)+len(ready)+4+len(name))); err != nil {
			t.Fatalf("%s at %s has no place: %v", name, host, err)
		}
		return c
	}
	from("127.0.0.1", "")
	from("127.0.0.1", "")
	other := from("127.0.0.2", "a")
	var same []net.Conn
	for range 8 {
		same = append(same, from("127.0.0.1", "a"))
	}
	for _, c := range same[:6] {
		ends(t, c)
	}
	counts(t, r, strings.Split(strings.Repeat(zmtp.TooManyOfMember+" ", 6), " ")[:6]...)
	for _, c := range append(same[6:], other) {
		if _, err := io.WriteString(c, "\x00\x01x"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Errorf("an open connection has ended: %v", err)
		}
	}
	// The places of those that have ended are free.
	for _, c := range same {
		_ = c.Close()
	}
	deadline := time.Now().Add(patience)
	for r.Stats().Open > 3 {
		if time.Now().After(deadline) {
			t.Fatalf("%d are open", r.Stats().Open)
		}
	}
	from("127.0.0.1", "b")
	from("127.0.0.1", "b")
}
