package noise

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A target that takes everything gets about as many frames as were asked for, in
// simulated time.
func TestNoiseArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got atomic.Int64
		dial := func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() {
				n, _ := io.Copy(io.Discard, far)
				got.Add(n)
				_ = far.Close()
			}()
			return near, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		tally := Make(ctx, dial, []Target{{Name: "it", Address: "it:1", ZMTP: true}}, Options{Frames: 2000, Scans: 5, Seed: 1})["it"]
		synctest.Wait() // what was sent has come
		if n := tally.Frames.Load(); n < 1900 || n > 2000 {
			t.Errorf("%d frames in a second, not about 2000", n)
		}
		if tally.Connections.Load() < 5 || got.Load() < tally.Bytes.Load() {
			t.Errorf("%s; the target read %d bytes", tally, got.Load())
		}
	})
}
