package noise

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// greeting is what a client of ZMTP 3 without security says before its messages: the
// signature, version, mechanism NULL, and the command READY of a DEALER.
func greeting() []byte {
	b := make([]byte, 64)
	b[0], b[9] = 0xff, 0x7f
	b[10] = 3
	copy(b[12:32], "NULL")
	ready := []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER")
	return append(append(b, 4, byte(len(ready))), ready...)
}

// stocked is malformed frames, one behind the other.
type stocked struct {
	bytes []byte
	at    []int // where each begins, and the end
}

// stock makes frames for a second and a half at a rate.
func (s *stranger) stock(rate int) stocked {
	var out stocked
	for range rate + rate/2 + 1 {
		out.at = append(out.at, len(out.bytes))
		out.bytes = s.frame(out.bytes)
	}
	out.at = append(out.at, len(out.bytes))
	return out
}

// some is n frames in a row, or all where there are fewer.
func (s stocked) some(random *rand.Rand, n int) []byte {
	n = min(n, len(s.at)-1)
	first := random.IntN(len(s.at) - n)
	return s.bytes[s.at[first]:s.at[first+n]]
}

// frame appends one malformed frame: of random flags, lengths that lie, maps without
// an end, and words of other protocols.
func (s *stranger) frame(b []byte) []byte {
	body := make([]byte, s.random.IntN(48))
	for i := range body {
		body[i] = byte(s.random.Uint32())
	}
	switch s.random.IntN(5) {
	case 0: // a message that is no MessagePack
		return append(append(b, 0, byte(len(body))), body...)
	case 1: // a map of very many entries
		body = binary.BigEndian.AppendUint32([]byte{0xdf}, s.random.Uint32())
		return append(append(b, 0, byte(len(body))), body...)
	case 2: // a message with fields of the protocol and nothing behind them
		body = append([]byte("\x83\xa4type\xadremote_blocks\xa6req_id\xd9"), body...)
		return append(append(b, 0, byte(len(body))), body...)
	case 3: // reserved flags
		return append(append(b, 0x78, byte(len(body))), body...)
	}
	// A length of many gigabytes, which the frame doesn't have.
	b = append(b, 2)
	b = binary.BigEndian.AppendUint64(b, 1<<40|uint64(s.random.Uint32()))
	return append(b, body...)
}

// Say sends one message to a port that speaks ZMTP, as a client without the pool's
// secret does, and waits until the port has ended the connection or a second has passed.
func Say(ctx context.Context, dial Dial, address string, message []byte) error {
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(writeWithin)); err != nil {
		return err
	}
	if _, err := conn.Write(greeting()); err != nil {
		return err
	}
	frame := binary.BigEndian.AppendUint64([]byte{2}, uint64(len(message)))
	if _, err := conn.Write(append(frame, message...)); err != nil {
		return err
	}
	discard(conn)
	return nil
}
