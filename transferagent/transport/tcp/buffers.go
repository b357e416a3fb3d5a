package tcp

import (
	"net"
	"sync"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
)

// Buffers of a mover, for all its connections together: a connection has one only
// while a frame is being written or read. As many as these are large; whoever finds
// them all in use takes a small one and goes on, with shorter frames or reads, rather
// than wait for another connection's peer. With p peers and two connections to and
// from each of them, all in mid-frame, a mover has at most
//
//	largeFrames * 1.4 MiB + 2p * 85 KiB    to send: 11 + 11 MiB for 64 peers
//	largeIntakes * 380 KiB + 2p * 153 KiB  to receive: 3 + 19 MiB for 64 peers
//
// and a third of the latter where frames have as few runs as those of KV blocks.
const (
	largeFrames  = 8
	largeIntakes = 8
)

// stock lends things of two sizes: a number of large ones, and small ones without
// limit. What is not lent is left to the garbage collector.
type stock[T any] struct {
	large, small sync.Pool
	places       chan struct{} // of large ones that are lent
}

func newStock[T any](large int, makeLarge, makeSmall func() *T) *stock[T] {
	return &stock[T]{
		large:  sync.Pool{New: func() any { return makeLarge() }},
		small:  sync.Pool{New: func() any { return makeSmall() }},
		places: make(chan struct{}, large),
	}
}

// take lends a large one if there is a place for it, or else a small one. back takes
// it back.
func (s *stock[T]) take() (t *T, back func()) {
	select {
	case s.places <- struct{}{}:
		t = s.large.Get().(*T)
		return t, func() { s.large.Put(t); <-s.places }
	default:
		t = s.small.Get().(*T)
		return t, func() { s.small.Put(t) }
	}
}

// frame is what it takes to send a frame of up to payload bytes and runs.
type frame struct {
	payload int64
	runs    int
	staging []byte // headers and short pieces; never grows, since vectors point into it
	vectors net.Buffers
	copies  []kvlayout.Copy
}

func newFrame(payload int64, runs int) *frame {
	return &frame{
		payload: payload, runs: runs,
		staging: make([]byte, 0, headerSize+transport.MaxTransferName+runs*runSize+int(payload)),
		copies:  make([]kvlayout.Copy, 0, runs),
	}
}

func newFrames() *stock[frame] {
	return newStock(largeFrames,
		func() *frame { return newFrame(framePayload, maxRuns) },
		func() *frame { return newFrame(framePayload/16, maxRuns/16) })
}

// intake is what it takes to receive a frame.
type intake struct {
	rest    []byte   // transfer and runs; grows up to the caps of a header
	vectors [][]byte // long pieces that wait for one read
	staging []byte   // short pieces on their way to their places; longer than direct
}

func newIntakes() *stock[intake] {
	with := func(staging int) func() *intake {
		return func() *intake {
			return &intake{staging: make([]byte, staging), vectors: make([][]byte, 0, maxVectors)}
		}
	}
	return newStock(largeIntakes, with(stagingSize), with(2*direct))
}
