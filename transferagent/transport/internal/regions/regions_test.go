package regions_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
)

// TestWithin compares with walking over all pieces.
func TestWithin(t *testing.T) {
	const size = 6
	for offset := int64(-2); offset <= size+1; offset++ {
		for stride := int64(-4); stride <= 4; stride++ {
			for length := int64(-1); length <= size+1; length++ {
				for count := int64(-1); count <= 4; count++ {
					want := length >= 0 && count >= 0 && offset >= 0 && offset+length <= size
					for i := range max(count, 0) {
						at := offset + i*stride
						want = want && at >= 0 && at+length <= size
					}
					if got := regions.Within(offset, stride, length, count, size); got != want {
						t.Fatalf("offset %d stride %d length %d count %d: %v", offset, stride, length, count, got)
					}
				}
			}
		}
	}
}

func TestWithinDoesNotOverflow(t *testing.T) {
	extremes := []int64{math.MinInt64, math.MinInt64 + 1, -1, 1, 10, math.MaxInt64 - 1, math.MaxInt64}
	for _, offset := range extremes {
		for _, stride := range extremes {
			for _, length := range extremes {
				for _, count := range extremes {
					if !regions.Within(offset, stride, length, count, 10) {
						continue
					}
					end := offset + (count-1)*stride
					if count > 11 || end < 0 || end+length > 10 {
						t.Errorf("offset %d stride %d length %d count %d is not inside", offset, stride, length, count)
					}
				}
			}
		}
	}
}

func TestCheckBatchCapsBytes(t *testing.T) {
	b := transport.Batch{Copies: []kvlayout.Copy{{Length: 8, Count: math.MaxInt}}} // stride 0: inside, without end
	if _, err := regions.CheckBatch(b, 8); err == nil {
		t.Error("an endless batch was taken")
	}
}

func TestWithdrawHurriesThenCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table regions.Table
		if err := table.Register(1, transport.Memory{Bytes: make([]byte, 8)}); err != nil {
			t.Fatal(err)
		}
		r, err := table.Find(1)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var events []string
		var u regions.User
		note := func(what string) { events = append(events, fmt.Sprint(what, " ", time.Since(start))) }
		u.Hurry = func() { note("hurry") }
		u.Cut = func() { note("cut"); go r.Release(&u) }
		if !r.Acquire(&u) {
			t.Fatal("not acquired")
		}
		table.Unregister(1, time.Second, func() { note("after") })
		if got, want := fmt.Sprint(events), "[hurry 0s cut 1s after 1s]"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if r.Acquire(&u) {
			t.Error("withdrawn memory was acquired")
		}
		if _, err := table.Find(1); !errors.Is(err, transport.ErrUnknownMemory) {
			t.Errorf("%v, want ErrUnknownMemory", err)
		}
		if err := table.Register(1, transport.Memory{Bytes: make([]byte, 8)}); err != nil {
			t.Errorf("the id is not free: %v", err)
		}
	})
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g regions.Gate
		var u regions.User
		one, ok := g.Enter("x", &u)
		if !ok {
			t.Fatal("not let in")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Revoke(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("revoke while a copy runs: %v", err)
		}
		if _, ok := g.Enter("x", &u); ok || !one.Gone() || !g.Revoked("x") {
			t.Error("the refusal did not stay")
		}
		if _, ok := g.Enter("y", &u); !ok {
			t.Error("another transfer was refused")
		}
		go one.Leave(&u)
		if err := g.Revoke(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	})
}

// TestGateForgetsTheOldest while a copy for it still runs.
func TestGateForgetsTheOldest(t *testing.T) {
	var g regions.Gate
	var u regions.User
	over, cancel := context.WithCancel(t.Context())
	cancel()
	pass, _ := g.Enter("0", &u)
	for i := range regions.MaxRevoked + 1 {
		g.Revoke(over, fmt.Sprint(i)) //nolint:errcheck // the first one is in use
	}
	if g.Revoked("0") || !g.Revoked("1") || !g.Revoked(fmt.Sprint(regions.MaxRevoked)) {
		t.Error("not exactly the oldest was forgotten")
	}
	again, ok := g.Enter("0", &u)
	if !ok || again.Gone() || !pass.Gone() {
		t.Error("old and new copies of a transfer were mixed up")
	}
	pass.Leave(&u)
	again.Leave(&u)
}
