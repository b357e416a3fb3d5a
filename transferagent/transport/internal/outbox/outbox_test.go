package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/outbox"
)

var errEnd = errors.New("end")

// TestDoneMayPost: the slot of a batch is free when its done runs.
func TestDoneMayPost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := outbox.New(1)
		second := make(chan *outbox.Entry, 1)
		e, err := b.Admit(t.Context(), transport.Batch{}, func(int64, error) {
			e, err := b.Admit(t.Context(), transport.Batch{}, func(int64, error) {})
			if err != nil {
				t.Error(err)
			}
			second <- e
		})
		if err != nil {
			t.Fatal(err)
		}
		e.Finish(nil)
		(<-second).Finish(nil)
		b.End(errEnd)
		b.Flush()
	})
}

// TestFlush finishes what is pending, in order, with the error of the end.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := outbox.New(3)
		var seen []int
		var entries []*outbox.Entry
		for i := range 3 {
			e, err := b.Admit(t.Context(), transport.Batch{}, func(moved int64, err error) {
				if moved != int64(i) || !errors.Is(err, errEnd) {
					t.Errorf("batch %d: %d, %v", i, moved, err)
				}
				seen = append(seen, i)
			})
			if err != nil {
				t.Fatal(err)
			}
			e.Count(int64(i))
			entries = append(entries, e)
		}
		blocked := make(chan error)
		go func() {
			_, err := b.Admit(context.Background(), transport.Batch{}, nil)
			blocked <- err
		}()
		synctest.Wait()
		b.End(errEnd)
		b.End(errors.New("later"))
		if err := <-blocked; !errors.Is(err, errEnd) {
			t.Errorf("a waiting Admit ended with %v", err)
		}
		b.Flush()
		if len(seen) != 3 || seen[0] != 0 || seen[1] != 1 || seen[2] != 2 {
			t.Errorf("done ran for %v", seen)
		}
		entries[0].Finish(nil) // too late, and without effect
		if _, err := b.Admit(t.Context(), transport.Batch{}, nil); !errors.Is(err, errEnd) {
			t.Errorf("admitted after the end: %v", err)
		}
		<-b.Ended()
	})
}

// TestDoneTakesNoTime: nothing waits between Finish and done, for a clock or for
// another batch.
func TestDoneTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := outbox.New(2)
		start, done := time.Now(), make(chan time.Time, 1)
		other, err := b.Admit(t.Context(), transport.Batch{}, func(int64, error) {})
		if err != nil {
			t.Fatal(err)
		}
		e, err := b.Admit(t.Context(), transport.Batch{}, func(int64, error) { done <- time.Now() })
		if err != nil {
			t.Fatal(err)
		}
		e.Finish(nil)
		if at := <-done; at != start {
			t.Errorf("done came %v later", at.Sub(start))
		}
		other.Finish(nil)
		b.End(errEnd)
		b.Flush()
	})
}
