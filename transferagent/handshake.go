package transferagent

import (
	"context"
	"errors"
	"fmt"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// answerHandshake serves one message of the handshake port: two messages for a
// request, as MoRIIO does. A request that can't be answered yet ends the
// connection, which tells the dialler at once.
func (l *loop) answerHandshake(p *zmtp.Peer, frames [][]byte) {
	if len(frames) != 1 || string(frames[0]) != moriio.GetMetadata {
		l.metrics.drop(portHandshake, "unknown-request")
		return
	}
	metadata := l.door.metadata.Load()
	if metadata == nil {
		l.metrics.handshakes.WithLabelValues("not-ready").Inc()
		p.Close()
		return
	}
	err := p.Send(nil, *metadata)
	if err == nil {
		err = p.Send(nil, moriio.LayerMap{}.Append(nil))
	}
	if err != nil {
		l.metrics.drop(portHandshake, reasonOf(err))
		p.Close()
		return
	}
	l.metrics.handshakes.WithLabelValues("served").Inc()
}

// describe makes the answer of a handshake: the ranks, of which there is at least
// one, and the engine's names for the regions of the first.
func (l *loop) describe(ranks []moriio.AgentRank, names []string) ([]byte, error) {
	self := l.self
	self.Ranks = ranks
	layout := self.Layout.Defaulted()
	m := moriio.Metadata{
		EngineID:        endpoint(l.limits.own.String(), l.ports.Handshake),
		EngineDesc:      []byte{},
		Backend:         "pdpool",
		AttentionBlocks: make(map[string]int, len(names)),
		DCP:             layout.DCP,
		Interleave:      layout.Interleave,
		PDPool:          &self,
	}
	for i, r := range ranks[0].Regions {
		m.NumBlocks = r.Blocks
		m.BlockLen = max(m.BlockLen, int(r.RowBytes)*r.BlockTokens*r.Heads.Count)
		m.BaseAddresses = append(m.BaseAddresses, uint64(r.Offset))
		if i < len(names) {
			m.AttentionBlocks[names[i]] = r.BlockTokens
		}
	}
	b := m.Append(nil)
	if len(b) > moriio.MaxMessage {
		return nil, fmt.Errorf("metadata of %d bytes, the limit is %d", len(b), moriio.MaxMessage)
	}
	return b, nil
}

// handshake dials a peer for its metadata and, when it has them, opens and keeps
// a connection to its notify port.
func (l *loop) handshake(ctx context.Context, at session.Peer) {
	err := checkPeer(at, l.limits.own)
	if err == nil && l.dialing >= l.limits.dials {
		err = fmt.Errorf("%d handshakes are under way already", l.dialing)
	}
	if err != nil {
		l.shaken(ctx, at, nil, err)
		return
	}
	l.dialing++
	l.group.Go(func() {
		within, stop := context.WithTimeout(ctx, l.limits.dial)
		m, err := fetchMetadata(within, at)
		stop()
		l.do(func(ctx context.Context) {
			l.dialing--
			l.shaken(ctx, at, m, err)
		})
	})
}

// shaken ends a handshake.
func (l *loop) shaken(ctx context.Context, at session.Peer, m *moriio.Metadata, err error) {
	if err != nil {
		l.metrics.handshakes.WithLabelValues("failed").Inc()
		l.log.Warn("handshake failed", "peer", at, "error", err)
	} else {
		l.metrics.handshakes.WithLabelValues("dialled").Inc()
	}
	l.raise(session.Handshaken{Peer: at, Metadata: m, Err: err})
	if err == nil && l.renew(ctx, at) == nil {
		l.raise(session.PeerGone{Peer: at})
	}
}

// fetchMetadata asks the handshake port of a peer.
func fetchMetadata(ctx context.Context, at session.Peer) (*moriio.Metadata, error) {
	d, err := zmtp.Dial(ctx, endpoint(at.Host, at.Handshake), zmtp.Options{MaxFrame: moriio.MaxMessage})
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // always nil
	if err := d.Send(ctx, []byte(moriio.GetMetadata)); err != nil {
		return nil, err
	}
	b, err := receivePayload(ctx, d)
	if err != nil {
		return nil, err
	}
	m, err := moriio.ParseMetadata(b)
	if err != nil {
		return nil, err
	}
	if b, err = receivePayload(ctx, d); err != nil {
		return nil, err
	}
	if _, err := moriio.ParseLayerMap(b); err != nil {
		return nil, err
	}
	return m, nil
}

func receivePayload(ctx context.Context, d *zmtp.Dealer) ([]byte, error) {
	frames, err := d.Receive(ctx)
	if ended := (*zmtp.Error)(nil); errors.As(err, &ended) && ended.Reason() == zmtp.Closed {
		return nil, fmt.Errorf("its engine is not ready: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if len(frames) != 2 || len(frames[0]) != 0 {
		return nil, fmt.Errorf("answer of %d frames, not an empty one and the payload", len(frames))
	}
	return frames[1], nil
}
