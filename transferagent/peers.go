package transferagent

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// peer is another agent: the connection to its notify port, which is opened at
// the handshake and kept, so that its end says that the peer's process has ended,
// and the mover's session with it.
type peer struct {
	at      session.Peer
	notes   *queue[[]byte] // encoded notifications
	cancel  context.CancelFunc
	courier *courier
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

// peer finds or opens the peer at an address; nil when there are too many.
func (l *loop) peer(ctx context.Context, at session.Peer) *peer {
	if p := l.peers[at]; p != nil {
		return p
	}
	if len(l.peers) >= l.limits.peers {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &peer{at: at, notes: newQueue[[]byte](l.limits.peerQueue), cancel: cancel}
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
// was raised already.
func (l *loop) lose(ctx context.Context, p *peer, unsent [][]byte, why error) {
	if now := l.peers[p.at]; now != p {
		for _, note := range unsent {
			l.queue(ctx, now, note)
		}
		return
	}
	delete(l.peers, p.at)
	p.close()
	l.log.Info("peer is gone", "peer", p.at, "error", why)
	l.raise(session.PeerGone{Peer: p.at})
}

// send queues a notification for a peer.
func (l *loop) send(ctx context.Context, m session.Outgoing) {
	b, err := appendNotify(m.Message)
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
	l.queue(ctx, p, b)
}

// queue has a note sent, unless the peer, which may be nil, is lost.
func (l *loop) queue(ctx context.Context, p *peer, note []byte) {
	if p == nil || l.peers[p.at] != p {
		return
	}
	if err := p.notes.put(note); err != nil {
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
func (l *loop) notifyPeer(ctx context.Context, p *peer) ([][]byte, error) {
	dialCtx, stop := context.WithTimeout(ctx, l.limits.dial)
	d, err := zmtp.Dial(dialCtx, endpoint(p.at.Host, p.at.Notify), zmtp.Options{})
	stop()
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // always nil
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.group.Go(func() {
		select {
		case <-d.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		note, ok := p.notes.take(ctx)
		if !ok {
			return nil, fmt.Errorf("connection to the notify port: %w", cmp.Or(d.Err(), errClosed))
		}
		sendCtx, stop := context.WithTimeout(ctx, l.limits.send)
		err := d.Send(sendCtx, note)
		stop()
		if err != nil {
			return [][]byte{note}, err
		}
	}
}
