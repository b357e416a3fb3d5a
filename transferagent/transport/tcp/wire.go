package tcp

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/regions"
)

// The protocol, all numbers big endian. The dialling side writes a hello and
// reads a welcome; then it writes frames, and the listening side answers each,
// in order, with an ack.
//
//	hello    magic "PDPT", u8 version, 3 zero bytes, 16 bytes token
//	welcome  magic "PDPT", u8 version, u8 status, 2 zero bytes
//	frame    magic "PDPF", u32 memory, u64 sequence, u32 payload bytes, u32 runs,
//	         4 * i32 writer dp, tp, reader dp, tp, u16 length of transfer, u16 zero,
//	         transfer, runs, payload
//	run      i64 offset, i64 stride, i64 length, u32 count
//	ack      magic "PDPA", u32 status, u64 sequence, u64 bytes placed
const (
	version     = 1
	helloSize   = 24
	welcomeSize = 8
	headerSize  = 44
	runSize     = 28
	ackSize     = 24
	tokenSize   = 16

	maxPayload = 4 << 20 // accepted in one frame
	maxRuns    = 1 << 12 // sent and accepted in one frame
)

var (
	helloMagic = [4]byte{'P', 'D', 'P', 'T'}
	frameMagic = [4]byte{'P', 'D', 'P', 'F'}
	ackMagic   = [4]byte{'P', 'D', 'P', 'A'}
)

// status is the listening side's answer, in a welcome or an ack.
type status uint32

const (
	statusOK status = iota
	statusBounds
	statusUnknownMemory
	statusRevoked
	statusStale
)

// err is nil for statusOK.
func (s status) err() error {
	switch s {
	case statusOK:
		return nil
	case statusBounds:
		return transport.ErrBounds
	case statusUnknownMemory:
		return transport.ErrUnknownMemory
	case statusRevoked:
		return transport.ErrRevoked
	case statusStale:
		return transport.ErrStale
	}
	return fmt.Errorf("peer answered with status %d", uint32(s))
}

// Why bytes from the network are not ours.
var (
	errMagic   = errors.New("not the mover's protocol")
	errVersion = errors.New("another version of the mover's protocol")
	errFrame   = errors.New("malformed frame")
)

// token is the random part of an address: it tells incarnations apart, and who
// does not know it may not write.
type token [tokenSize]byte

func (t token) equal(o token) bool { return subtle.ConstantTimeCompare(t[:], o[:]) == 1 }

func helloBytes(t token) []byte {
	return append(append(helloMagic[:], version, 0, 0, 0), t[:]...)
}

func parseHello(b [helloSize]byte) (token, error) {
	if [4]byte(b[:4]) != helloMagic {
		return token{}, errMagic
	}
	if b[4] != version {
		return token{}, fmt.Errorf("version %d: %w", b[4], errVersion)
	}
	return token(b[8:]), nil
}

func welcomeBytes(s status) []byte {
	return append(helloMagic[:], version, byte(s), 0, 0)
}

func parseWelcome(b [welcomeSize]byte) (status, error) {
	if [4]byte(b[:4]) != helloMagic {
		return 0, errMagic
	}
	if b[4] != version {
		return 0, fmt.Errorf("version %d: %w", b[4], errVersion)
	}
	return status(b[5]), nil
}

// header is the fixed part of a frame.
type header struct {
	target  transport.MemoryID
	seq     uint64
	payload int // at most maxPayload
	runs    int // at most maxRuns
	flow    transport.Flow
	name    int // length of the transfer that follows; flow.Transfer is still empty
}

// rest is how many bytes lie between the fixed part and the payload.
func (h header) rest() int { return h.name + h.runs*runSize }

// appendHeader writes the fixed part and the transfer.
func appendHeader(b []byte, h header) []byte {
	b = append(b, frameMagic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(h.target))
	b = binary.BigEndian.AppendUint64(b, h.seq)
	b = binary.BigEndian.AppendUint32(b, uint32(h.payload))
	b = binary.BigEndian.AppendUint32(b, uint32(h.runs))
	for _, n := range []int{h.flow.Writer.DP, h.flow.Writer.TP, h.flow.Reader.DP, h.flow.Reader.TP} {
		b = binary.BigEndian.AppendUint32(b, uint32(int32(n)))
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.flow.Transfer)))
	b = binary.BigEndian.AppendUint16(b, 0)
	return append(b, h.flow.Transfer...)
}

// parseHeader reads the fixed part and checks every length in it.
func parseHeader(b [headerSize]byte) (header, error) {
	if [4]byte(b[:4]) != frameMagic {
		return header{}, fmt.Errorf("it begins with %q: %w", b[:4], errFrame)
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	rank := func(at int) transport.Rank {
		return transport.Rank{DP: int(int32(u32(at))), TP: int(int32(u32(at + 4)))}
	}
	payload, runs, name := u32(16), u32(20), binary.BigEndian.Uint16(b[40:])
	switch {
	case payload > maxPayload:
		return header{}, fmt.Errorf("payload of %d bytes, more than %d: %w", payload, maxPayload, errFrame)
	case runs > maxRuns:
		return header{}, fmt.Errorf("%d runs, more than %d: %w", runs, maxRuns, errFrame)
	case name > transport.MaxTransferName:
		return header{}, fmt.Errorf("transfer of %d bytes, more than %d: %w", name, transport.MaxTransferName, errFrame)
	}
	return header{
		target:  transport.MemoryID(u32(4)),
		seq:     binary.BigEndian.Uint64(b[8:]),
		payload: int(payload),
		runs:    int(runs),
		flow:    transport.Flow{Writer: rank(24), Reader: rank(32)},
		name:    int(name),
	}, nil
}

// run is a strided place at the target: count pieces of length bytes.
type run struct {
	offset, stride, length int64
	count                  int64
}

// target gives the place of a copy, as one piece where it has no gaps.
func target(c kvlayout.Copy) run {
	if c.DstStride == c.Length {
		return run{c.Dst, 0, c.Bytes(), 1}
	}
	return run{c.Dst, c.DstStride, c.Length, int64(c.Count)}
}

func appendRun(b []byte, r run) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(r.offset))
	b = binary.BigEndian.AppendUint64(b, uint64(r.stride))
	b = binary.BigEndian.AppendUint64(b, uint64(r.length))
	return binary.BigEndian.AppendUint32(b, uint32(r.count))
}

// runs are the places of a frame as they came, checked by parseRuns.
type runs []byte

func (r runs) len() int { return len(r) / runSize }

func (r runs) at(i int) run {
	b := r[i*runSize:][:runSize]
	u64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	return run{u64(0), u64(8), u64(16), int64(binary.BigEndian.Uint32(b[24:]))}
}

// parseRuns checks the runs in b: their bytes must sum up to payload. Whether they
// lie in the memory is not decided here.
func parseRuns(b []byte, payload int) (runs, error) {
	left := int64(payload)
	all := runs(b)
	for i := range all.len() {
		r := all.at(i)
		if r.length <= 0 || r.count <= 0 || r.length > left || r.count > left/r.length {
			return nil, fmt.Errorf("run of %d times %d bytes with %d of payload left: %w", r.count, r.length, left, errFrame)
		}
		left -= r.length * r.count
	}
	if left != 0 || len(b)%runSize != 0 {
		return nil, fmt.Errorf("%d bytes of payload without a run: %w", left, errFrame)
	}
	return all, nil
}

// within reports whether all runs lie inside a memory of size bytes.
func (r runs) within(size int64) bool {
	for i := range r.len() {
		k := r.at(i)
		if !regions.Within(k.offset, k.stride, k.length, k.count, size) {
			return false
		}
	}
	return true
}

// ack is the answer to one frame.
type ack struct {
	status status
	seq    uint64
	placed int64
}

func appendAck(b []byte, a ack) []byte {
	b = append(b, ackMagic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(a.status))
	b = binary.BigEndian.AppendUint64(b, a.seq)
	return binary.BigEndian.AppendUint64(b, uint64(a.placed))
}

func parseAck(b [ackSize]byte) (ack, error) {
	if [4]byte(b[:4]) != ackMagic {
		return ack{}, fmt.Errorf("answer begins with %q: %w", b[:4], errFrame)
	}
	a := ack{
		status: status(binary.BigEndian.Uint32(b[4:])),
		seq:    binary.BigEndian.Uint64(b[8:]),
		placed: int64(binary.BigEndian.Uint64(b[16:])),
	}
	if a.placed < 0 || a.placed > maxPayload {
		return ack{}, fmt.Errorf("answer of %d bytes placed: %w", a.placed, errFrame)
	}
	return a, nil
}

const addressMagic = "PDT1"

// address is what a peer needs beside the host.
type address struct {
	port  uint16
	token token
}

func (a address) bytes() []byte {
	return append(binary.BigEndian.AppendUint16([]byte(addressMagic), a.port), a.token[:]...)
}

func parseAddress(b []byte) (address, error) {
	if len(b) != len(addressMagic)+2+tokenSize || string(b[:len(addressMagic)]) != addressMagic {
		return address{}, fmt.Errorf("tcp address of %d bytes: %w", len(b), transport.ErrAddress)
	}
	b = b[len(addressMagic):]
	return address{port: binary.BigEndian.Uint16(b), token: token(b[2:])}, nil
}
