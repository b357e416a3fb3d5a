package enginesim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pdpool/pdpool/transferagent/kvproto"
)

// request is one generation.
type request struct {
	id     string
	tokens []uint32 // the prompt
	count  int      // tokens to answer at most
	pull   *pull    // decode: the prompt's rows come from a prefill instance
	push   string   // prefill: transfer id under which the rows go to a decode instance
	// emit takes the tokens of the answer one by one, and says whether to go on.
	emit func(token uint32) (more bool, err error)
}

// pull says where the rows of a prompt come from.
type pull struct {
	transfer string
	peer     kvproto.Peer
}

// generate runs a request to its end. It returns the ids of the blocks that the
// prompt took.
func (g *group) generate(ctx context.Context, r *request) ([]int32, error) {
	g.tally.live.Add(1)
	defer g.tally.live.Add(-1)
	g.tally.prompted.Add(int64(len(r.tokens)))
	ids, err := g.dispatch(ctx, r)
	if err == nil {
		g.tally.answered.Add(1)
	} else {
		g.tally.failed.Add(1)
	}
	return ids, err
}

func (g *group) dispatch(ctx context.Context, r *request) ([]int32, error) {
	switch {
	case r.push != "":
		return g.prefill(ctx, r)
	case r.pull != nil:
		return g.decode(ctx, r)
	}
	return g.whole(ctx, r)
}

// room is the number of blocks for the prompt and all of the answer but its last
// token, whose row nobody reads.
func (g *group) room(r *request) int {
	return g.cfg.Layout.blocksFor(len(r.tokens) + r.count - 1)
}

// whole prefills and decodes in one.
func (g *group) whole(ctx context.Context, r *request) ([]int32, error) {
	ids, err := g.take(ctx, g.room(r), holder{request: r.id})
	if err != nil {
		return nil, err
	}
	s := newSequence(g.cfg.Geometry, r.tokens, r.id)
	defer func() {
		if err := g.checkTail(ids, len(s.tokens), false); err != nil {
			g.violation(err.Error())
		}
		g.give(ids)
	}()
	if _, err := g.forward(ctx, s, ids, nil); err != nil {
		return nil, err
	}
	digest, err := g.read(ctx, s, ids, 0, len(s.tokens))
	if err != nil {
		return nil, err
	}
	return ids, g.speak(ctx, r, s, ids, digest)
}

// prefill computes the prompt, tells the agent of each layer as it is complete and
// answers; the blocks are kept until the agent releases them.
func (g *group) prefill(ctx context.Context, r *request) ([]int32, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	t, err := g.begin(r.push, false, fail)
	if err != nil {
		return nil, err
	}
	s := newSequence(g.cfg.Geometry, r.tokens, r.push)
	ids, err := g.admit(ctx, t, r)
	if err == nil {
		err = t.send(kvproto.Hold{Transfer: t.id, Blocks: ids[:g.cfg.Layout.blocksFor(len(r.tokens))], Tokens: len(r.tokens)})
	}
	var digest uint64
	if err == nil {
		digest, err = g.forward(ctx, s, ids, t)
	}
	if err == nil {
		err = g.speak(ctx, r, s, ids, digest)
	}
	g.letGo(t, ids, len(s.tokens), err != nil)
	if err != nil {
		return nil, fate(ctx, err)
	}
	return ids, nil
}

// decode lets the agent fill the prompt's rows, checks every one and goes on.
func (g *group) decode(ctx context.Context, r *request) ([]int32, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	t, err := g.begin(r.pull.transfer, true, fail)
	if err != nil {
		return nil, err
	}
	s := newSequence(g.cfg.Geometry, r.tokens, r.pull.transfer)
	ids, err := g.admit(ctx, t, r)
	if err == nil {
		err = t.send(kvproto.Receive{
			Transfer: t.id, Blocks: ids[:g.cfg.Layout.blocksFor(len(r.tokens))], Tokens: len(r.tokens), Peer: r.pull.peer,
		})
	}
	if err == nil {
		err = g.landed(ctx, t)
	}
	if err != nil {
		g.letGo(t, ids, len(s.tokens), true)
		return nil, fate(ctx, err)
	}
	defer func() {
		if err := g.checkTail(ids, len(s.tokens), true); err != nil {
			g.violation(err.Error())
		}
		g.give(ids)
	}()
	digest, err := g.read(ctx, s, ids, 0, len(s.tokens))
	if err != nil {
		return nil, err
	}
	if err := g.checkTail(ids, len(s.tokens), true); err != nil {
		return nil, &wrongWriteError{where: err.Error()}
	}
	return ids, g.speak(ctx, r, s, ids, digest)
}

// landed waits until the agent says that all rows are in place.
func (g *group) landed(ctx context.Context, t *transfer) error {
	patience := g.patienceWith(t.link)
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-t.ended:
		return t.outcome()
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		// Settled here, as what follows from it may end the link before the client is told.
		t.end(&TransferError{"deadline-engine", fmt.Sprintf("the agent has said nothing of transfer %s for %s", t.id, patience)}, false)
		return t.outcome()
	}
}

// patienceWith is how long the agent at the other end of a link may say nothing of a transfer.
func (g *group) patienceWith(l *link) time.Duration {
	return cmp.Or(g.patience, l.scheduler.Silence(), unsaidPatience)
}

// begin opens a transfer on the group's link.
func (g *group) begin(id string, decode bool, fail context.CancelCauseFunc) (*transfer, error) {
	l, err := g.link.current()
	if err != nil {
		return nil, err
	}
	return l.begin(id, decode, fail)
}

// admit announces a transfer and takes its blocks.
func (g *group) admit(ctx context.Context, t *transfer, r *request) ([]int32, error) {
	expect := kvproto.Expect{Transfer: t.id, Tokens: len(r.tokens), Hash: promptHash(r.tokens)}
	if t.decode {
		expect.Peer = r.pull.peer
	}
	if err := t.send(expect); err != nil {
		return nil, err
	}
	return g.take(ctx, g.room(r), holder{request: r.id, transfer: t.id})
}

// promptHash is what both sides of a transfer compare.
func promptHash(tokens []uint32) []byte {
	buf := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, t)
	}
	sum := sha256.Sum256(buf)
	return sum[:]
}

// fate prefers the reason for which a request was ended to what it broke.
func fate(ctx context.Context, err error) error {
	if t, ok := errors.AsType[*TransferError](context.Cause(ctx)); ok {
		return t
	}
	return err
}

// forward fills the rows of the prompt layer by layer. With a transfer, each layer
// of each rank is announced as soon as it is complete.
func (g *group) forward(ctx context.Context, s *sequence, ids []int32, t *transfer) (uint64, error) {
	var digest uint64
	for layer := range g.cfg.Geometry.Layers {
		if err := pace(ctx, g.cfg.PerLayer); err != nil {
			return 0, err
		}
		digest += g.compute(s, ids, layer, 0, len(s.tokens))
		g.flip(s, ids, layer)
		if t == nil {
			continue
		}
		if err := g.save(t, layer); err != nil {
			return 0, err
		}
	}
	if t != nil {
		return digest, g.seal(t)
	}
	return digest, nil
}

// speak derives the answer from a digest of the rows before it. Each token's own
// rows are written by the same placement, and read again.
func (g *group) speak(ctx context.Context, r *request, s *sequence, ids []int32, digest uint64) error {
	for n := 1; ; n++ {
		if err := pace(ctx, g.cfg.PerToken); err != nil {
			return err
		}
		token := nextToken(digest, len(s.tokens))
		g.tally.generated.Add(1)
		more, err := r.emit(token)
		if err != nil || !more || n == r.count {
			return err
		}
		at := len(s.tokens)
		s.append(token)
		for layer := range g.cfg.Geometry.Layers {
			g.compute(s, ids, layer, at, at+1)
		}
		sum, err := g.read(ctx, s, ids, at, at+1)
		if err != nil {
			return err
		}
		digest += sum
	}
}

// pace lets simulated work take its time.
func pace(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
