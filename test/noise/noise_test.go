package noise

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// A target that takes everything gets about as many frames as were asked for, and one
// that closes each connection gets new ones.
func TestNoiseArrives(t *testing.T) {
	var got atomic.Int64
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				n, _ := io.Copy(io.Discard, conn)
				got.Add(n)
				_ = conn.Close()
			}()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var d net.Dialer
	tallies := Make(ctx, d.DialContext, []Target{{Name: "it", Address: listener.Addr().String(), ZMTP: true}}, Options{Frames: 2000, Scans: 5, Seed: 1})
	_ = listener.Close()
	<-done
	tally := tallies["it"]
	if n := tally.Frames.Load(); n < 500 || n > 2100 {
		t.Errorf("%d frames in a second, not about 2000", n)
	}
	if tally.Connections.Load() < 5 || got.Load() == 0 {
		t.Errorf("%s; the target read %d bytes", tally, got.Load())
	}
}
