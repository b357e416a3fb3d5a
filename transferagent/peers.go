package transferagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// peer is another agent: the connection to its notify port, which is opened at
// the handshake and kept, so that its end says that the peer's process has ended,
// and the mover's session with it.
type peer struct {
	at      session.Peer
	notes   *queue[note]
	cancel  context.CancelFunc
	courier *courier
	used    time.Time   // last
	again   atomic.Bool // nothing was sent yet, and its notes were another connection's before
}

// note is an encoded notification, with room for its proof in a pool with a secret.
// Since is when the last that it tells of came, for a write_done.
type note struct {
	bytes []byte
	since time.Time
}

func (p *peer) close() {
	p.cancel()
	if p.courier != nil {
		p.courier.cancel()
	}
}

// checkPeer refuses addresses that no peer of a pool can have, since they come
// out of messages: what is no IP, and loopback, unspecified, link-local or
// multicast ones. An agent that is on loopback itself has peers there.
func checkPeer(at session.Peer, own netip.Addr) error {
	ip, err := netip.ParseAddr(at.Host)
	if err != nil {
		return fmt.Errorf("peer %q is not an IP address", at.Host)
	}
	ip = ip.Unmap()
	switch {
	case ip.Zone() != "", ip.IsUnspecified(), ip.IsMulticast(), ip.IsLinkLocalUnicast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}),
		ip.IsLoopback() && !own.IsLoopback():
		return fmt.Errorf("peer address %s is not one of a pod", at.Host)
	case at.Handshake < 1 || at.Handshake > 65535 || at.Notify < 1 || at.Notify > 65535:
		return fmt.Errorf("peer %s has handshake port %d and notify port %d", at.Host, at.Handshake, at.Notify)
	}
	return nil
}

func endpoint(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// errUnneeded ends the connections to a peer that others need the place of.
var errUnneeded = errors.New("no transfer needs it, and another peer needs its place")

// makeRoom ends the connections to the peer that is unused for longest, of those that no
// transfer needs: some take them and keep them for ever.
func (l *loop) makeRoom(ctx context.Context) {
	byUse := func(a, b *peer) int { return a.used.Compare(b.used) }
	for _, p := range slices.SortedFunc(maps.Values(l.peers), byUse) {
		if !l.machine.Needs(p.at) {
			l.lose(ctx, p, nil, errUnneeded)
			return
		}
	}
}

// peer finds or opens the peer at an address; nil when there are too many.
func (l *loop) peer(ctx context.Context, at session.Peer) *peer {
	if p := l.peers[at]; p != nil {
		p.used = time.Now()
		return p
	}
	if len(l.peers) >= l.limits.peers {
		l.makeRoom(ctx)
	}
	if len(l.peers) >= l.limits.peers {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &peer{at: at, notes: newQueue[note](l.limits.peerQueue), cancel: cancel, used: time.Now()}
	l.peers[at] = p
	l.group.Go(func() {
		defer cancel()
		unsent, err := l.notifyPeer(ctx, p)
		unsent = append(unsent, p.notes.drain()...)
		l.do(func(ctx context.Context) { l.lose(ctx, p, unsent, err) })
	})
	return p
}

// renew opens a connection that is younger than the metadata of a handshake: the
// end of an older one may be that of the incarnation before, and says nothing of
// this one. What waits on the older one is still sent.
func (l *loop) renew(ctx context.Context, at session.Peer) *peer {
	old := l.peers[at]
	if old == nil {
		return l.peer(ctx, at)
	}
	delete(l.peers, at)
	old.notes.finish()
	p := l.peer(ctx, at)
	p.courier = old.courier
	return p
}

// lose forgets a peer whose control connection has ended. What a renewed one had
// not sent yet goes out by the connection that took its place; without one PeerGone
// was raised already. Otherwise it is sent by a new connection, once unless that sends
// anything: the peer may have ended this one only, and waits for the end of its transfers.
func (l *loop) lose(ctx context.Context, p *peer, unsent []note, why error) {
	if now := l.peers[p.at]; now != p {
		for _, n := range unsent {
			l.queue(ctx, now, n)
		}
		return
	}
	delete(l.peers, p.at)
	p.close()
	l.log.Info("peer is gone", "peer", p.at, "error", why)
	l.raise(session.PeerGone{Peer: p.at})
	if p.again.Load() || len(unsent) == 0 {
		return
	}
	if now := l.peer(ctx, p.at); now != nil {
		now.again.Store(true)
		for _, n := range unsent {
			l.queue(ctx, now, n)
		}
	}
}

// send queues a notification for a peer.
func (l *loop) send(ctx context.Context, m session.Outgoing) {
	b, err := appendNotify(m.Message)
	if err == nil {
		b, err = l.open(b)
	}
	if err == nil {
		err = checkPeer(m.Peer, l.limits.own)
	}
	if err != nil {
		l.log.Error("notification not sent", "peer", m.Peer, "error", err)
		l.raise(session.PeerGone{Peer: m.Peer})
		return
	}
	p := l.peer(ctx, m.Peer)
	if p == nil {
		l.log.Warn("too many peers", "peer", m.Peer, "peers", len(l.peers))
		l.raise(session.PeerGone{Peer: m.Peer})
		return
	}
	n := note{bytes: b}
	if _, done := m.Message.(*moriio.WriteDone); done {
		n.since = l.cause
	}
	l.queue(ctx, p, n)
}

// queue has a note sent, unless the peer, which may be nil, is lost.
func (l *loop) queue(ctx context.Context, p *peer, n note) {
	if p == nil || l.peers[p.at] != p {
		return
	}
	if err := p.notes.put(n); err != nil {
		l.lose(ctx, p, nil, fmt.Errorf("peer does not take its notifications: %w", err))
	}
}

func appendNotify(message any) ([]byte, error) {
	a, ok := message.(interface{ Append(b []byte) []byte })
	if !ok {
		return nil, fmt.Errorf("a notification of type %T", message)
	}
	return a.Append(nil), nil
}

// notifyPeer connects to a peer's notify port and sends what is queued until the
// connection or ctx ends. It returns the note that it could not send, if any.
func (l *loop) notifyPeer(ctx context.Context, p *peer) ([]note, error) {
	d, err := l.dialNotify(ctx, p.at)
	if err != nil {
		return nil, err
	}
	defer d.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.group.Go(func() {
		select {
		case <-d.dealer.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		n, ok := p.notes.take(ctx)
		if !ok {
			return nil, fmt.Errorf("connection to the notify port: %w", cmp.Or(d.dealer.Err(), errClosed))
		}
		sendCtx, stop := context.WithTimeout(ctx, l.limits.send)
		err := d.send(sendCtx, n.bytes)
		stop()
		if err != nil {
			return []note{n}, err
		}
		p.again.Store(false)
		l.metrics.told(n.since)
	}
}

// maxAnswer bounds the messages of a notify port, which has nothing to say.
const maxAnswer = 1 << 10

// line is a connection to a peer's notify port.
type line struct {
	dealer *zmtp.Dealer
	keys   *keyring
	said   uint64 // messages
}

// send sends an open notification, proved for its place on this line where the pool has
// a secret. After an error the line is of no use.
func (n *line) send(ctx context.Context, open []byte) error {
	if keys := n.keys.current(); keys.Set() {
		open = keys.Sign(slices.Clip(open), poolkey.Notification, placeOf(n.dealer.Challenge(), n.said, open)...)
	}
	n.said++
	return n.dealer.Send(ctx, open)
}

func (n *line) close() { _ = n.dealer.Close() } // always nil

// dialNotify connects to a peer's notify port and says who connects, where the pool
// has a secret.
func (l *loop) dialNotify(ctx context.Context, at session.Peer) (*line, error) {
	ctx, stop := context.WithTimeout(ctx, l.limits.dial)
	defer stop()
	n := &line{keys: l.keys}
	err := l.persist(ctx, func() (err error) {
		n.dealer, err = l.dialControl(ctx, endpoint(at.Host, at.Notify), zmtp.Options{MaxFrame: maxAnswer})
		return err
	})
	if err != nil {
		return nil, err
	}
	if !l.keys.current().Set() {
		return n, nil
	}
	hello, err := l.open((&moriio.Hello{Epoch: l.self.Epoch}).Append(nil))
	if err == nil {
		err = n.send(ctx, hello)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

// errNoChallenge says that there is nothing to prove the pool's secret by.
var errNoChallenge = errors.New("it gives its connections no challenge, as an agent with its pool's secret does")

// dialControl connects to a control port of a peer; o bounds what the peer sends.
func (l *loop) dialControl(ctx context.Context, address string, o zmtp.Options) (*zmtp.Dealer, error) {
	o.Inbox, o.Challenge = 1, challengeProperty
	d, err := zmtp.Dial(ctx, address, o)
	if err == nil && l.keys.current().Set() && d.Challenge() == "" {
		return nil, errors.Join(errNoChallenge, d.Close())
	}
	return d, err
}

// In a pool with a secret a crowd of strangers may take the place of a connection
// that has not proved itself yet, so who dials tries again.
const (
	dialAttempts = 3
	dialAgain    = 25 * time.Millisecond
)

// persist calls dial, again after a pause while the pool has a secret and it fails.
func (l *loop) persist(ctx context.Context, dial func() error) error {
	for attempt := 1; ; attempt++ {
		err := dial()
		if err == nil || attempt == dialAttempts || ctx.Err() != nil || !l.keys.current().Set() {
			return err
		}
		pause(ctx, time.Duration(attempt)*dialAgain)
	}
}
