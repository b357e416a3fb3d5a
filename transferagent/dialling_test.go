package transferagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
)

// asked starts what has its turn and returns the hosts.
func (d *dialling) asked(cancelled map[string]error) (hosts []string) {
	for n := d.next(); n != nil; n = d.next() {
		host := n.at.Host
		n.cancel = func(why error) { cancelled[fmt.Sprint(host, " ", n.at.Handshake)] = why }
		hosts = append(hosts, host)
	}
	return hosts
}

func TestHandshakesHaveTheirTurn(t *testing.T) {
	now := time.Unix(0, 0)
	d := &dialling{total: 4, perHost: 2, within: time.Minute}
	cancelled := map[string]error{}
	for port := range 5 {
		d.ask(now, session.Peer{Host: "crowd", Handshake: port})
	}
	d.ask(now, session.Peer{Host: "a"})
	d.ask(now, session.Peer{Host: "b"})
	d.ask(now, session.Peer{Host: "c"})
	// A host with none under way comes before those that have some.
	if got := fmt.Sprint(d.asked(cancelled)); got != "[crowd a b c]" {
		t.Fatalf("asked are %s", got)
	}
	d.makeRoom()
	if len(cancelled) != 0 {
		t.Fatalf("handshakes that have just begun make room: %v", cancelled)
	}
	// Places are given back, and one host never takes more than it may have.
	for _, a := range append([]*dial{}, d.active[1:]...) {
		d.over(a)
	}
	if got := fmt.Sprint(d.asked(cancelled)); got != "[crowd]" {
		t.Fatalf("asked are %s", got)
	}
	// Of the old ones as many make room as others wait for their places: the three that
	// wait wait for those of their host.
	d.ask(now, session.Peer{Host: "d"})
	d.ask(now, session.Peer{Host: "e"})
	if got := fmt.Sprint(d.asked(cancelled)); got != "[d e]" {
		t.Fatalf("asked are %s", got)
	}
	d.active[0].old, d.active[2].old, d.active[3].old = true, true, true
	d.makeRoom()
	d.makeRoom()
	if len(cancelled) != 1 || !errors.Is(cancelled["crowd 0"], errMadeRoom) {
		t.Fatalf("cut are %v", cancelled)
	}
	d.ask(now, session.Peer{Host: "f"})
	d.makeRoom()
	d.makeRoom()
	if len(cancelled) != 2 || !errors.Is(cancelled["d 0"], errMadeRoom) {
		t.Fatalf("cut are %v", cancelled)
	}
	if late := d.late(now.Add(time.Minute - 1)); len(late) != 0 {
		t.Fatalf("%d are late before their time", len(late))
	}
	if late := d.late(now.Add(time.Minute)); len(late) != 4 || len(d.waiting) != 0 {
		t.Fatalf("%d are late, %d wait", len(late), len(d.waiting))
	}
}

// takes keeps the connections that come to a listener open until the end of the test, and
// calls each on every one of them, if it is given.
func takes(t *testing.T, l net.Listener, each func(net.Conn)) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			if each != nil {
				go each(c)
			}
		}
	}()
}

// silence takes connections at a port of many addresses, and says nothing.
func silence(t *testing.T, port int, hosts []string) {
	t.Helper()
	for _, host := range hosts {
		l, err := net.Listen("tcp", endpoint(host, port))
		if err != nil {
			t.Fatal(err)
		}
		takes(t, l, nil)
	}
}

// More peers that do not answer than handshakes at a time keep no good one out.
func TestSilentPeersDoNotStarveOthers(t *testing.T) {
	p := startPair(t, "tcp", latent, plain, dealt)
	port := freePort(t)
	hosts := make([]string, defaultLimits(ownIP).dials+16)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("127.0.7.%d", i+1)
	}
	silence(t, port, hosts)
	for i, host := range hosts {
		send(t, p.decode.sched, kvproto.Receive{
			Transfer: fmt.Sprintf("tx-silent-%d", i), Blocks: []int32{1}, Tokens: 1, Peer: kvproto.Peer{Host: host, Handshake: port, Notify: port, TPSize: 1},
		})
	}
	r := p.prompt("tx-good", 1, 40)
	p.start(t, r)
	p.fill(t, r)
	for done := false; !done; {
		select {
		case m := <-p.decode.sched.Messages():
			switch m := m.(type) {
			case kvproto.Done:
				done = m.Transfer == r.id
			case kvproto.Failed:
				if m.Transfer == r.id {
					t.Fatalf("the good one: %+v", m)
				}
			}
		case <-time.After(within):
			t.Fatal("no answer")
		}
	}
	p.check(t, r)
}

// What the movers find of another secret has the folder read again, as messages do.
func TestMoversProofsHaveTheSecretsReadAgain(t *testing.T) {
	for _, late := range []string{"listener", "dialler"} {
		t.Run(late, func(t *testing.T) {
			dirs := map[string]string{"listener": keyDir(t, "a", ""), "dialler": keyDir(t, "a", "")}
			open := func(who string) (*keyring, []byte, func([]byte) error) {
				cfg := podConfig(t, kvlayout.Decode, latent, dealt)
				keys, err := openKeys(dirs[who], slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				mover, _, err := openMover(Options{Config: cfg, PodIP: ownIP, Log: slog.New(slog.DiscardHandler)}, newMetrics(), keys)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = mover.Close() })
				return keys, mover.Address(), func(to []byte) error {
					ctx, cancel := context.WithTimeout(t.Context(), within)
					defer cancel()
					s, err := mover.Dial(ctx, ownIP.String(), to)
					if err == nil {
						err = s.Close()
					}
					return err
				}
			}
			listener, address, _ := open("listener")
			dialler, _, dial := open("dialler")
			if err := dial(address); err != nil {
				t.Fatal(err)
			}
			// One of the two has the new secret already, the other's folder too.
			for who, k := range map[string]*keyring{"listener": listener, "dialler": dialler} {
				writeKeys(t, dirs[who], "b", "")
				k.mu.Lock()
				k.read = time.Time{}
				if who != late {
					k.held = nil
					if _, err := k.load(time.Now()); err != nil {
						t.Error(err)
					}
				}
				k.mu.Unlock()
			}
			if err := dial(address); err == nil {
				t.Fatal("the two have no secret in common")
			}
			eventually(t, func() error { return dial(address) })
		})
	}
}
