package zmtp_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/zmtp"
)

// Dealers that share a budget take no more than it together, and each gives back what it
// took with its end.
func TestDealersShareABudget(t *testing.T) {
	const size, free = 64 << 10, 1 << 10
	r := serve(t, "127.0.0.1:0", zmtp.Options{}, echo)
	o := zmtp.Options{Budget: zmtp.NewBudget(size+size/2, free)}
	long := strings.Repeat("x", size)
	for range 3 {
		first := dial(t, r.Addr().String(), o)
		ask(t, first, long)
		second := dial(t, r.Addr().String(), o)
		ask(t, second, long[:free])
		err := second.Send(t.Context(), []byte(long))
		if err == nil { // else the end was seen before the message was known to be written
			_, err = second.Receive(t.Context())
		}
		if ended, ok := errors.AsType[*zmtp.Error](err); !ok || ended.Reason() != zmtp.BuffersFull {
			t.Fatalf("the second long answer at a time: %v", err)
		}
		_ = first.Close()
		third := dial(t, r.Addr().String(), o)
		ask(t, third, long)
		_ = third.Close()
	}
}
