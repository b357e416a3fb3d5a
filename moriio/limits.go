package moriio

import (
	"math"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// Limits of what the parsers accept. Append does not apply them: what a caller
// puts over a limit is refused by the peer.
const (
	MaxLayers  = 4096    // layers of one model, entries of a map by layer name
	MaxRanks   = 1024    // ranks of one agent, and any parallel degree
	MaxRegions = 4096    // regions of one rank
	MaxMemory  = 1 << 16 // regions of all ranks of one agent
	MaxBlocks  = 1 << 18 // block ids of one message, over all groups
	MaxGroups  = 64      // transfer groups of one message
	MaxString  = 1 << 10 // bytes of any text
	MaxAddress = 4 << 10 // bytes of a mover's address
	MaxDesc    = 64 << 10
	MaxMessage = 4 << 20 // bytes of one message; the metadata of a large pod is the longest
)

// maxNumber bounds numbers that only describe geometry in bytes.
const maxNumber = math.MaxInt64 >> 1

// Error says why a message was refused. Reason is one of the constants below, fit
// for a metric label.
type Error = msgpack.Error

// The reasons of an Error.
const (
	Truncated   = msgpack.Truncated
	TooLong     = msgpack.TooLong
	BadField    = msgpack.BadField
	UnknownType = msgpack.UnknownType
	Malformed   = msgpack.Malformed
)

// parse reads one map into a new T.
func parse[T any](b []byte, fields func(*msgpack.Codec, *T)) (*T, error) {
	c, err := open(b)
	if err != nil {
		return nil, err
	}
	return read(c, fields)
}

func open(b []byte) (*msgpack.Codec, error) {
	if len(b) > MaxMessage {
		return nil, msgpack.Errorf(TooLong, "", "message of %d bytes, the limit is %d", len(b), MaxMessage)
	}
	return msgpack.Reader(b)
}

func read[T any](c *msgpack.Codec, fields func(*msgpack.Codec, *T)) (*T, error) {
	m := new(T)
	fields(c, m)
	if err := c.Err(); err != nil {
		return nil, err
	}
	return m, nil
}

func write[T any](b []byte, m *T, fields func(*msgpack.Codec, *T)) []byte {
	c := msgpack.Writer(b)
	fields(c, m)
	return c.Bytes()
}
