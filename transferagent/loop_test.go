package transferagent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/zmtp"
)

// balky is a mover that can't revoke at once.
type balky struct {
	transport.Mover
	refusals chan error
}

func (b *balky) Revoke(context.Context, string) error {
	select {
	case err := <-b.refusals:
		return err
	default:
		return nil
	}
}

func TestRevokeThatFailsIsLoggedAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b := &balky{refusals: make(chan error, 1)}
		b.refusals <- errors.New("its lane is stuck")
		l := &loop{
			log: slog.New(slog.NewTextHandler(&log, nil)), mover: b, limits: limits{revoke: within, retry: 50 * time.Millisecond},
			inbox: make(chan turn, 1), ended: make(chan struct{}),
		}
		began := time.Now()
		l.revoke(t.Context(), "tx")
		(<-l.inbox)(t.Context())
		l.group.Wait()
		if took := time.Since(began); took != l.limits.retry {
			t.Errorf("tried again after %v", took)
		}
		if len(l.events) != 1 || l.events[0] != (session.Revoked{Transfer: "tx"}) {
			t.Errorf("events %+v", l.events)
		}
		if !strings.Contains(log.String(), "its lane is stuck") {
			t.Errorf("log %q", log.String())
		}
	})
}

// taken empties a queue that nobody reads.
func taken(q *queue[note]) string {
	var all []string
	for _, n := range q.drain() {
		all = append(all, string(n.bytes))
	}
	return strings.Join(all, " ")
}

func TestNotesOfARenewedConnectionAreKept(t *testing.T) {
	at := session.Peer{Host: "127.0.0.1", Handshake: 1, Notify: 2}
	open := func() *peer {
		return &peer{at: at, notes: newQueue[note](3), cancel: func() {}}
	}
	old, now := open(), open()
	l := &loop{log: slog.New(slog.DiscardHandler), peers: map[session.Peer]*peer{at: now}}
	l.lose(t.Context(), old, []note{{bytes: []byte("unsent")}, {bytes: []byte("queued")}}, errClosed)
	if len(l.events) != 0 || l.peers[at] != now {
		t.Fatalf("events %+v, peers %v", l.events, l.peers)
	}
	if got := taken(now.notes); got != "unsent queued" {
		t.Fatalf("the new connection has %q", got)
	}
	// A queue that takes no more is told, once.
	l.lose(t.Context(), old, []note{{bytes: []byte("unsent")}, {bytes: []byte("queued")}}, errClosed)
	if len(l.events) != 1 || l.events[0] != (session.PeerGone{Peer: at}) || len(l.peers) != 0 {
		t.Fatalf("events %+v, peers %v", l.events, l.peers)
	}
}

func TestOnlyAStaleSocketIsRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv.sock")
	stale, err := bindKV(path)
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if _, err := listenKV(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("beside a live one: %v", err)
	}
	_ = stale.Close()
	l, err := listenKV(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenKV(t.Context(), path); err == nil {
		t.Fatal("a file was taken for a socket")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "kept" {
		t.Fatalf("the file has %q, %v", b, err)
	}
}

// A peer may end one connection and live on: what it has not been told goes by the next.
func TestUnsentNotesAreTriedOnceMore(t *testing.T) {
	port := freePort(t)
	at := session.Peer{Host: "127.0.0.1", Handshake: 1, Notify: port}
	first, err := net.Listen("tcp", endpoint(at.Host, port))
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{
		log: slog.New(slog.DiscardHandler), peers: map[session.Peer]*peer{}, limits: defaultLimits(ownIP), keys: &keyring{},
		inbox: make(chan turn, 4), ended: make(chan struct{}), metrics: newMetrics(),
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer l.group.Wait()
	defer cancel()
	l.queue(ctx, l.peer(ctx, at), note{bytes: []byte("unsent")})
	c, err := first.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = first.Close(), c.Close()
	lost := <-l.inbox
	got := make(chan string, 2)
	second, err := zmtp.Listen(t.Context(), endpoint(at.Host, port), zmtp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- second.Serve(ctx, func(_ *zmtp.Peer, frames [][]byte) { got <- string(frames[0]) })
	}()
	lost(ctx)
	select {
	case told := <-got:
		if told != "unsent" || len(l.events) != 1 {
			t.Errorf("the peer is told %q, events %+v", told, l.events)
		}
	case <-time.After(within):
		t.Error("the peer is told nothing")
	}
	// A connection that has sent something is like any other: what the next loss leaves
	// unsent goes by one more.
	now := l.peers[at]
	eventually(t, func() error {
		if now.again.Load() {
			return errors.New("the connection counts as one that has sent nothing")
		}
		return nil
	})
	l.lose(ctx, now, []note{{bytes: []byte("later")}}, errClosed)
	select {
	case told := <-got:
		if told != "later" {
			t.Errorf("the peer is told %q", told)
		}
	case <-time.After(within):
		t.Error("what the second loss left is not told")
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
