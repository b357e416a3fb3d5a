package transferagent

import (
	"context"
	"testing"

	"github.com/pdpool/pdpool/transferagent/session"
)

// idler is a machine of which some transfers are live.
type idler struct{ session.Machine }

func (idler) Live() int  { return 2 }
func (idler) Asked() int { return 1 }

// What drain asks after its time may still be answered: nobody looks at that any more.
func TestRemnantThatIsNotWaitedFor(t *testing.T) {
	l := &loop{inbox: make(chan turn, 1), ended: make(chan struct{}), machine: idler{}}
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan int, 1)
		go func() {
			live, _, err := l.remnant(ctx)
			if err == nil && live != 3 {
				t.Errorf("%d are live", live)
			}
			done <- live
		}()
		late := <-l.inbox
		cancel()
		late(ctx)
		<-done
	}
}
