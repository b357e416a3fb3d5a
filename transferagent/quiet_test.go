package transferagent

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/kvclient"
	"github.com/pdpool/pdpool/transferagent/kvproto"
	"github.com/pdpool/pdpool/transferagent/session"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// stopped is a mover of which some writer may yet end a piece, until quiet is closed.
type stopped struct {
	transport.Mover
	quiet chan struct{}
}

func (s *stopped) Revoke(ctx context.Context, transfer string) error {
	select {
	case <-s.quiet:
		return s.Mover.Revoke(ctx, transfer)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// An engine that comes back takes the welcome for the word that its blocks are quiet. So
// it is not welcomed before they are.
func TestWelcomeWaitsUntilBlocksAreQuiet(t *testing.T) {
	n := memNetwork(1)
	writer := &stopped{Mover: memMover(t, n, "decode"), quiet: make(chan struct{})}
	p := &pair{
		prefill: startPod(t, podConfig(t, kvlayout.Prefill, latent, plain), memMover(t, n, "prefill")).connect(),
		decode:  startPod(t, podConfig(t, kvlayout.Decode, latent, dealt), writer).connect(),
	}
	p.serves(t, "tx-before", 1)
	n.Freeze("prefill", "decode")
	r := p.prompt("tx-lost", 2, 40)
	p.start(t, r)
	p.fill(t, r)
	p.prefill.pod.moves(r.id)
	_ = p.decode.sched.Close()
	eventually(t, func() error {
		if v, err := p.decode.pod.look(r.id); err != nil || v.State != session.Failing {
			return fmt.Errorf("decode has %+v, %w", v, err)
		}
		return nil
	})
	hello := p.decode.pod.hello(kvproto.Scheduler, 0)
	welcomed := make(chan *kvclient.Client, 1)
	go func() {
		defer close(welcomed)
		if c, err := p.decode.pod.dial(hello); err == nil {
			welcomed <- c
		}
	}()
	var again *kvclient.Client
	select {
	case again = <-welcomed:
		if again != nil {
			t.Error("the engine is welcomed while a copy may touch its blocks")
		}
	case <-time.After(200 * time.Millisecond):
	}
	close(writer.quiet)
	n.Thaw("prefill", "decode")
	if again == nil {
		again = <-welcomed
	}
	if again == nil { // a busy machine may have it turned away: it comes again
		again = p.decode.pod.mustDial(hello)
	}
	p.decode.sched = again
	p.decode.pod.await("/readyz", 200)
}
