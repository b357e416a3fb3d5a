package transferagent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/zmtp"
)

// metadataBytes is the most that the answers of all peers that are asked take until they
// are read, without the first metadataFree bytes of each: few pods have more to say.
const (
	metadataBytes = 32 << 20
	metadataFree  = 64 << 10
)

// description is what peers are told in a handshake, without the proof and ready for it.
type description struct{ plain, open []byte }

// answerHandshake serves one message of the handshake port: two messages for a
// request, as MoRIIO does. A request that can't be answered yet ends the
// connection, which tells the dialler at once. In a pool with a secret so does one
// without its proof, and the answer proves itself by the request's nonce.
func (l *loop) answerHandshake(p *zmtp.Peer, frames [][]byte) {
	if string(frames[0]) != moriio.GetMetadata {
		l.metrics.drop(portHandshake, "unknown-request")
		if l.keys.current().Set() {
			p.Close()
		}
		return
	}
	nonce, ok := l.challenged(p, frames)
	if !ok {
		return
	}
	metadata := l.door.metadata.Load()
	if metadata == nil {
		l.metrics.handshakes.WithLabelValues("not-ready").Inc()
		p.Close()
		return
	}
	answer := metadata.plain
	if keys := l.keys.current(); keys.Set() {
		answer = keys.Sign(slices.Clip(metadata.open), poolkey.HandshakeAnswer, nonce, metadata.open)
	}
	err := p.Send(nil, answer)
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

// challenged checks the proof of a handshake's request, where there has to be one, and
// returns its nonce.
func (l *loop) challenged(p *zmtp.Peer, frames [][]byte) (nonce []byte, ok bool) {
	if !l.keys.current().Set() {
		return nil, true
	}
	if len(frames) != 2 {
		l.stranger(p, portHandshake)
		return nil, false
	}
	signed, proof, ok := moriio.CutAuth(frames[1])
	if !ok || !l.keys.valid(proof, poolkey.HandshakeRequest, []byte(p.Challenge()), frames[0], signed) {
		l.stranger(p, portHandshake)
		return nil, false
	}
	c, err := moriio.ParseChallenge(frames[1])
	if err != nil {
		l.metrics.drop(portHandshake, reasonOf(err))
		p.Close()
		return nil, false
	}
	p.Prove(memberName(c.Epoch))
	return c.Nonce, true
}

// describe makes the answer of a handshake: the ranks, of which there is at least
// one, and the engine's names for the regions of the first.
func (l *loop) describe(ranks []moriio.AgentRank, names []string) (*description, error) {
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
	open, err := moriio.OpenAuth(slices.Clone(b))
	if err != nil {
		return nil, err
	}
	return &description{plain: b, open: open}, nil
}

// askMetadata asks a peer for its metadata, again if that fails at once in a pool with a secret.
func (l *loop) askMetadata(ctx context.Context, at session.Peer) (m *moriio.Metadata, err error) {
	err = l.persist(ctx, func() error {
		m, err = l.fetchMetadata(ctx, at)
		return err
	})
	return m, err
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
func (l *loop) fetchMetadata(ctx context.Context, at session.Peer) (*moriio.Metadata, error) {
	d, err := l.dialControl(ctx, endpoint(at.Host, at.Handshake), zmtp.Options{MaxFrame: moriio.MaxMessage, Budget: l.answers})
	if err != nil {
		return nil, err
	}
	defer d.Close() //nolint:errcheck // always nil
	request, nonce, err := l.request(d.Challenge())
	if err != nil {
		return nil, err
	}
	var b []byte
	if err = d.Send(ctx, request...); err == nil {
		b, err = receivePayload(ctx, d)
	}
	if ended := (*zmtp.Error)(nil); errors.As(err, &ended) && ended.Reason() == zmtp.Closed {
		return nil, fmt.Errorf("its engine is not ready, or the secret of its pool is another: %w", err)
	}
	if err != nil {
		return nil, err
	}
	if l.keys.current().Set() {
		signed, proof, ok := moriio.CutAuth(b)
		if !ok || !l.keys.valid(proof, poolkey.HandshakeAnswer, nonce, signed) {
			return nil, errors.New("its answer is without the proof of this pool")
		}
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

// request makes the frames of a handshake's request on a connection with this challenge,
// and the nonce that its answer has to prove itself by.
func (l *loop) request(challenge string) (frames [][]byte, nonce []byte, err error) {
	frames = [][]byte{[]byte(moriio.GetMetadata)}
	keys := l.keys.current()
	if !keys.Set() {
		return frames, nil, nil
	}
	nonce = make([]byte, moriio.NonceBytes)
	_, _ = rand.Read(nonce) // it never fails
	c := moriio.Challenge{Version: moriio.ChallengeVersion, Epoch: l.self.Epoch, Nonce: nonce}
	open, err := moriio.OpenAuth(c.Append(nil))
	if err != nil {
		return nil, nil, err
	}
	return append(frames, keys.Sign(open, poolkey.HandshakeRequest, []byte(challenge), frames[0], open)), nonce, nil
}

func receivePayload(ctx context.Context, d *zmtp.Dealer) ([]byte, error) {
	frames, err := d.Receive(ctx)
	if err != nil {
		return nil, err
	}
	if len(frames) != 2 || len(frames[0]) != 0 {
		return nil, fmt.Errorf("answer of %d frames, not an empty one and the payload", len(frames))
	}
	return frames[1], nil
}
