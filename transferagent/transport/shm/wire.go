package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/transferagent/transport"
)

// The protocol. Each message is one packet of the socket (SOCK_SEQPACKET keeps
// them apart), all of one form, numbers big endian:
//
//	magic "PDS" and the version (a byte), u8 kind, u8 status, u16 length of name, u32 memory, u32 zero,
//	u64 sequence, u64 bytes, 4 * i32 writer dp, tp, reader dp, tp, name
//
// The writer dials. It says hello and is welcomed. It asks for leave before it
// writes into a memory for a transfer, and is answered, the first time with the
// memory's descriptor. It records each batch that it has copied, and the reader
// acks; with the last that it has for now of a transfer it gives the leave back.
// Each answer lets it copy for the length of the lease, counted from when it sent
// what is answered; it has that renewed while it copies. The reader withdraws memory
// and revokes transfers; the writer answers that when it copies there no more.
type kind uint8

const (
	hello     kind = iota + 1 // name: token
	welcome                   // status, bytes: nanoseconds of a lease
	ask                       // memory, name: transfer
	answer                    // memory, name, status, bytes: size; with a descriptor or without
	record                    // sequence, memory, bytes, ranks, name: transfer, status: last or not
	acked                     // sequence
	withdraw                  // memory
	withdrawn                 // memory
	revoke                    // name: transfer
	revoked                   // name; also unasked, when leave is given back without a record
	renew                     // nothing
	granted                   // nothing
)

const (
	version    = 2
	fixedSize  = 48
	packetSize = fixedSize + transport.MaxTransferName
	tokenSize  = 16
)

var magic = [4]byte{'P', 'D', 'S', version}

// message is any of them; fields that its kind does not use are zero.
type message struct {
	kind   kind
	status status
	memory transport.MemoryID
	seq    uint64
	bytes  int64
	flow   transport.Flow // Transfer is the name
}

// status is the reader's decision in a welcome or an answer.
type status uint8

const (
	statusOK status = iota
	statusUnknownMemory
	statusRevoked
	statusStale
)

// last is the status of a record that gives the leave of its transfer back.
const last status = 1

// err is nil for statusOK.
func (s status) err() error {
	switch s {
	case statusOK:
		return nil
	case statusUnknownMemory:
		return transport.ErrUnknownMemory
	case statusRevoked:
		return transport.ErrRevoked
	case statusStale:
		return transport.ErrStale
	}
	return fmt.Errorf("peer answered with status %d", uint8(s))
}

// errMessage: a packet is not a message of this protocol.
var errMessage = errors.New("malformed message")

func (m message) append(b []byte) []byte {
	b = append(b, magic[:]...)
	b = append(b, byte(m.kind), byte(m.status))
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.flow.Transfer)))
	b = binary.BigEndian.AppendUint32(b, uint32(m.memory))
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint64(b, m.seq)
	b = binary.BigEndian.AppendUint64(b, uint64(m.bytes))
	for _, n := range []int{m.flow.Writer.DP, m.flow.Writer.TP, m.flow.Reader.DP, m.flow.Reader.TP} {
		b = binary.BigEndian.AppendUint32(b, uint32(int32(n)))
	}
	return append(b, m.flow.Transfer...)
}

func parse(b []byte) (message, error) {
	if len(b) < fixedSize || [4]byte(b[:4]) != magic {
		return message{}, fmt.Errorf("packet of %d bytes: %w", len(b), errMessage)
	}
	name := int(binary.BigEndian.Uint16(b[6:]))
	if name > transport.MaxTransferName || len(b) != fixedSize+name {
		return message{}, fmt.Errorf("packet of %d bytes with a name of %d: %w", len(b), name, errMessage)
	}
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	rank := func(at int) transport.Rank {
		return transport.Rank{DP: int(int32(u32(at))), TP: int(int32(u32(at + 4)))}
	}
	m := message{
		kind: kind(b[4]), status: status(b[5]), memory: transport.MemoryID(u32(8)),
		seq: binary.BigEndian.Uint64(b[16:]), bytes: int64(binary.BigEndian.Uint64(b[24:])),
		flow: transport.Flow{Transfer: string(b[fixedSize:]), Writer: rank(32), Reader: rank(40)},
	}
	if m.kind < hello || m.kind > granted || m.bytes < 0 {
		return message{}, fmt.Errorf("message of kind %d with %d bytes: %w", m.kind, m.bytes, errMessage)
	}
	return m, nil
}

// write sends a message, with a descriptor if f is not nil.
func write(conn *net.UnixConn, m message, f *os.File) error {
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	_, _, err := conn.WriteMsgUnix(m.append(make([]byte, 0, packetSize)), rights, nil)
	return err
}

// read receives a message and the descriptor that came with it, or nil. More
// than one descriptor is thrown away.
func read(conn *net.UnixConn) (message, *os.File, error) {
	var b [packetSize + 1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(b[:], oob)
	file := descriptor(oob[:oobn])
	if err == nil {
		var m message
		if m, err = parse(b[:n]); err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0 {
			return m, file, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("packet cut off at %d bytes: %w", n, errMessage)
	}
	if file != nil {
		err = errors.Join(err, file.Close())
	}
	return message{}, nil, err
}

func descriptor(oob []byte) *os.File {
	if len(oob) == 0 {
		return nil
	}
	controls, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var first *os.File
	for _, c := range controls {
		fds, err := unix.ParseUnixRights(&c)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if first == nil {
				first = os.NewFile(uintptr(fd), "memory of a peer")
			} else {
				unix.Close(fd) //nolint:errcheck // nobody asked for it
			}
		}
	}
	return first
}

const addressMagic = "PDS1"

// address is what a peer on the same node needs.
type address struct {
	name  string // of the socket, without directory
	token [tokenSize]byte
}

func (a address) bytes() []byte {
	return append(append([]byte(addressMagic), a.token[:]...), a.name...)
}

func parseAddress(b []byte) (address, error) {
	const fixed = len(addressMagic) + tokenSize
	if len(b) <= fixed || len(b) > fixed+maxSocketPath || string(b[:len(addressMagic)]) != addressMagic {
		return address{}, fmt.Errorf("shm address of %d bytes: %w", len(b), transport.ErrAddress)
	}
	a := address{name: string(b[fixed:]), token: [tokenSize]byte(b[len(addressMagic):])}
	if err := checkName(a.name); err != nil {
		return address{}, fmt.Errorf("%w: %w", err, transport.ErrAddress)
	}
	return a, nil
}
