package transferagent

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/pdpool/pdpool/transferagent/session"
)

// needy is a machine that needs some peers.
type needy struct {
	session.Machine
	peers []session.Peer
}

func (n needy) Needs(at session.Peer) bool { return slices.Contains(n.peers, at) }

// Peers that nobody needs keep no other out, however long they stay connected; of those
// the one unused for longest makes room. Peers that are needed do not.
func TestUnneededPeersMakeRoom(t *testing.T) {
	at := func(port int) session.Peer { return session.Peer{Host: "127.0.0.1", Handshake: port, Notify: 1} }
	l := &loop{
		log: slog.New(slog.DiscardHandler), peers: map[session.Peer]*peer{}, limits: defaultLimits(ownIP), keys: &keyring{},
		inbox: make(chan turn, 8), ended: make(chan struct{}), metrics: newMetrics(), machine: needy{peers: []session.Peer{at(1), at(4)}},
	}
	l.limits.peers = 3
	ctx, cancel := context.WithCancel(t.Context())
	defer l.group.Wait()
	defer cancel()
	for port := 1; port <= 3; port++ {
		l.peers[at(port)] = &peer{at: at(port), notes: newQueue[note](1), cancel: func() {}, used: time.Unix(int64(port), 0)}
	}
	l.peer(ctx, at(2)) // which is not the oldest any more
	if l.peer(ctx, at(4)) == nil || l.peers[at(3)] != nil || len(l.peers) != 3 {
		t.Fatalf("kept are %v", l.peers)
	}
	if len(l.events) != 1 || l.events[0] != (session.PeerGone{Peer: at(3)}) {
		t.Fatalf("the machine is told %+v", l.events)
	}
	if l.peer(ctx, at(5)) == nil || l.peers[at(2)] != nil {
		t.Fatalf("kept are %v", l.peers)
	}
	l.machine = needy{peers: []session.Peer{at(1), at(4), at(5)}}
	if l.peer(ctx, at(6)) != nil || len(l.peers) != 3 {
		t.Fatalf("kept are %v", l.peers)
	}
}
