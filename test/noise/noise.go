// Package noise is the strangers of a network: port scanners, clients of other
// protocols, random bytes, and floods of frames that nothing valid is in. It knows no
// secret and speaks no protocol of a pool further than a stranger could.
package noise

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Dial connects to an address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Target is a port that gets noise.
type Target struct {
	Name    string
	Address string
	// ZMTP says that frames come after a good greeting of ZMTP, so that they reach
	// what takes messages.
	ZMTP bool
}

// Options say how much noise.
type Options struct {
	// Frames is how many malformed frames a second each target gets; Scans how often a
	// second each target is scanned, spoken to in TLS and in HTTP, and sent random bytes.
	Frames, Scans int
	Seed          uint64
}

// Tally is what was sent.
type Tally struct {
	Connections, Frames, Bytes atomic.Int64
	// Refused are connections that were not taken, Closed those that the target ended.
	Refused, Closed atomic.Int64
}

// String is one line.
func (t *Tally) String() string {
	return fmt.Sprintf("%d connections (%d not taken, %d closed by the target), %d frames, %d bytes",
		t.Connections.Load(), t.Refused.Load(), t.Closed.Load(), t.Frames.Load(), t.Bytes.Load())
}

const (
	// tick is how often frames are written, a batch at a time.
	tick = 10 * time.Millisecond
	// dialWithin and writeWithin give up on a target that doesn't listen any more.
	dialWithin  = time.Second
	writeWithin = time.Second
)

// Make sends noise to all targets until ctx ends.
func Make(ctx context.Context, dial Dial, targets []Target, o Options) map[string]*Tally {
	out := map[string]*Tally{}
	var all sync.WaitGroup
	for i, target := range targets {
		tally := &Tally{}
		out[target.Name] = tally
		source := func(n uint64) *stranger {
			return &stranger{dial: dial, target: target, tally: tally, random: rand.New(rand.NewPCG(o.Seed, uint64(i)<<8|n))} //nolint:gosec // noise
		}
		all.Go(func() { source(0).flood(ctx, o.Frames) })
		all.Go(func() { source(1).probe(ctx, o.Scans) })
	}
	all.Wait()
	return out
}

// stranger is one sender.
type stranger struct {
	dial   Dial
	target Target
	tally  *Tally
	random *rand.Rand
}

func (s *stranger) connect(ctx context.Context) net.Conn {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	s.tally.Connections.Add(1)
	conn, err := s.dial(ctx, "tcp", s.target.Address)
	if err != nil {
		s.tally.Refused.Add(1)
		return nil
	}
	return conn
}

// flood writes so many malformed frames a second, over one connection as long as the
// target keeps it and over a new one with each tick else.
func (s *stranger) flood(ctx context.Context, rate int) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	var conn net.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	// Frames are made once and sent from a random place on, so that the noise is not
	// what keeps the machine busy.
	stock := s.stock(rate)
	due, began := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		batch := int(time.Since(began).Seconds()*float64(rate)) - due
		due += batch
		if conn == nil {
			if conn = s.connect(ctx); conn == nil {
				continue
			}
			if s.target.ZMTP {
				s.write(conn, greeting())
			}
			go discard(conn)
		}
		if !s.write(conn, stock.some(s.random, batch)) {
			s.tally.Closed.Add(1)
			_ = conn.Close()
			conn = nil
			continue
		}
		s.tally.Frames.Add(int64(batch))
	}
}

func (s *stranger) write(conn net.Conn, b []byte) bool {
	if conn.SetWriteDeadline(time.Now().Add(writeWithin)) != nil {
		return false
	}
	n, err := conn.Write(b)
	s.tally.Bytes.Add(int64(n))
	return err == nil
}

// discard reads what a target answers until the connection ends.
func discard(conn net.Conn) {
	b := make([]byte, 4096)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
	}
}

// probe is one scan, one hello of TLS, one request of HTTP and some random bytes, so
// many times a second.
func (s *stranger) probe(ctx context.Context, rate int) {
	if rate < 1 {
		return
	}
	clock := time.NewTicker(time.Second / time.Duration(rate))
	defer clock.Stop()
	for {
		for _, talk := range []func(context.Context, net.Conn){
			func(context.Context, net.Conn) {}, s.speakTLS, s.speakHTTP, s.babble,
		} {
			conn := s.connect(ctx)
			if conn == nil {
				continue
			}
			talk(ctx, conn)
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
	}
}

func (s *stranger) speakTLS(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nobody is believed
}

func (s *stranger) speakHTTP(_ context.Context, conn net.Conn) {
	s.write(conn, []byte("GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n"))
}

func (s *stranger) babble(_ context.Context, conn net.Conn) {
	b := make([]byte, 1+s.random.IntN(4096))
	for i := range b {
		b[i] = byte(s.random.Uint32())
	}
	s.write(conn, b)
}
