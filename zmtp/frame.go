package zmtp

import (
	"bufio"
	"encoding/binary"
	"io"
)

// Flags of a frame.
const (
	flagMore    = 1 << 0 // another frame of the message follows
	flagLong    = 1 << 1 // the length has 8 bytes
	flagCommand = 1 << 2

	knownFlags = flagMore | flagLong | flagCommand
)

const (
	maxHeader  = 9       // bytes of the longest frame header
	maxCommand = 4 << 10 // bytes of a command
)

// readFrame reads one frame. A length over limit, or maxCommand, is refused before
// anything is allocated for it, and what is allocated grows with what has come; charge is
// asked before each growth, but for commands: they are short, and over when they are read.
func readFrame(r *bufio.Reader, limit int, charge func(n int) error) (flags byte, body []byte, err error) {
	if flags, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^knownFlags != 0 {
		return 0, nil, errorf(BadFrame, "frame with the flags 0x%02x", flags)
	}
	if flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, nil, errorf(BadFrame, "command that is said to go on in another frame")
	}
	if flags&flagCommand != 0 {
		limit, charge = min(limit, maxCommand), uncharged
	}
	n, err := readLength(r, flags)
	if err != nil {
		return 0, nil, unexpected(err)
	}
	if n > uint64(limit) {
		return 0, nil, errorf(FrameTooLong, "frame of %d bytes, the limit is %d", n, limit)
	}
	body, err = readBody(r, int(n), charge)
	return flags, body, err
}

func readLength(r *bufio.Reader, flags byte) (uint64, error) {
	if flags&flagLong == 0 {
		n, err := r.ReadByte()
		return uint64(n), err
	}
	var b [8]byte
	_, err := io.ReadFull(r, b[:])
	return binary.BigEndian.Uint64(b[:]), err
}

// firstChunk is what is allocated for a frame before a byte of it has come.
const firstChunk = 64 << 10

// uncharged is the charge of what is too short to count.
func uncharged(int) error { return nil }

func readBody(r io.Reader, n int, charge func(n int) error) ([]byte, error) {
	if err := charge(min(n, firstChunk)); err != nil {
		return nil, err
	}
	body := make([]byte, min(n, firstChunk))
	for have := 0; ; {
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			return nil, unexpected(err)
		}
		if len(body) == n {
			return body, nil
		}
		have = len(body)
		if err := charge(min(n, 2*have) - have); err != nil {
			return nil, err
		}
		grown := make([]byte, min(n, 2*have))
		copy(grown, body)
		body = grown
	}
}

// unexpected marks an end of the stream where more belongs.
func unexpected(err error) error {
	if err == io.EOF { //nolint:errorlint // a reader returns io.EOF bare
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendHeader appends the header of a frame of n bytes.
func appendHeader(b []byte, flags byte, n int) []byte {
	if n <= 255 {
		return append(b, flags, byte(n))
	}
	return binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(n))
}

// appendCommand appends a whole command frame.
func appendCommand(b []byte, name string, data []byte) []byte {
	b = appendHeader(b, flagCommand, 1+len(name)+len(data))
	b = append(b, byte(len(name)))
	b = append(b, name...)
	return append(b, data...)
}

// parseCommand splits the body of a command frame.
func parseCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || int(body[0]) == 0 || 1+int(body[0]) > len(body) {
		return "", nil, errorf(BadCommand, "command of %d bytes without a name", len(body))
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}
