package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// Socket types, as READY names them.
const (
	dealer = "DEALER"
	router = "ROUTER"
)

const (
	signatureLength = 10
	greetingLength  = 64
	mechanismLength = 20

	maxIdentity = 255
)

// signature begins every greeting. Its second-last byte makes the first nine a
// frame length of 1 to a peer that speaks ZMTP 1.0.
var signature = []byte{0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f}

// greeting is that of version 3.1 with the mechanism NULL.
func greeting() []byte {
	b := make([]byte, greetingLength)
	n := copy(b, signature)
	n += copy(b[n:], []byte{3, 1})
	copy(b[n:], "NULL")
	return b
}

// readSignature reads the first bytes of a peer, and no more of it than is needed
// to see that it is something else.
func readSignature(r *bufio.Reader) error {
	first, err := r.ReadByte()
	if err != nil {
		return err
	}
	if first != signature[0] {
		return errorf(NotZMTP, "first byte is 0x%02x", first)
	}
	var rest [signatureLength - 1]byte
	if _, err := io.ReadFull(r, rest[:]); err != nil {
		return unexpected(err)
	}
	if last := rest[len(rest)-1]; last != 0x7f {
		return errorf(NotZMTP, "tenth byte is 0x%02x", last)
	}
	return nil
}

// readGreeting reads what follows the signature. The version comes first, since a
// peer of version 2.0 sends less than the rest and waits.
func readGreeting(r *bufio.Reader) error {
	major, err := r.ReadByte()
	if err != nil {
		return unexpected(err)
	}
	if major < 3 {
		return errorf(OldVersion, "peer speaks revision %d of ZMTP", major)
	}
	var rest [greetingLength - signatureLength - 1]byte
	if _, err := io.ReadFull(r, rest[:]); err != nil {
		return unexpected(err)
	}
	mechanism := rest[1 : 1+mechanismLength]
	if name := bytes.TrimRight(mechanism, "\x00"); string(name) != "NULL" {
		return errorf(Mechanism, "peer wants the mechanism %q", name)
	}
	return nil
}

// property is one that READY has besides the socket's type and identity.
type property struct{ name, value string }

// appendReady appends the READY command of a socket without an identity.
func appendReady(b []byte, socketType string, more ...property) []byte {
	data := appendProperty(nil, "Socket-Type", []byte(socketType))
	data = appendProperty(data, "Identity", nil)
	for _, p := range more {
		data = appendProperty(data, p.name, []byte(p.value))
	}
	return appendCommand(b, "READY", data)
}

func appendProperty(b []byte, name string, value []byte) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// ready is what a peer's READY says of it.
type ready struct {
	identity  []byte // usually empty
	challenge string // the value of Options.Challenge, empty without
}

// readReady reads the READY of a peer that has to be a socket of the wanted kind.
func readReady(r *bufio.Reader, wanted, challenge string) (said ready, err error) {
	flags, body, err := readFrame(r, maxCommand, uncharged)
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			return said, errorf(BadHandshake, "no READY: %w", e.err)
		}
		return said, unexpected(err)
	}
	if flags&flagCommand == 0 {
		return said, errorf(BadHandshake, "message before READY")
	}
	name, data, err := parseCommand(body)
	switch {
	case err != nil:
		return said, errorf(BadHandshake, "no READY: %w", err)
	case name == "ERROR":
		return said, errorf(PeerError, "peer refuses the connection: %q", errorText(data))
	case name != "READY":
		return said, errorf(BadHandshake, "command %q before READY", name)
	}
	return parseReady(data, wanted, challenge)
}

func parseReady(data []byte, wanted, challenge string) (said ready, err error) {
	kind := ""
	for len(data) > 0 {
		var name string
		var value []byte
		if name, value, data, err = cutProperty(data); err != nil {
			return said, err
		}
		switch {
		case strings.EqualFold(name, "Socket-Type"):
			kind = string(value)
		case strings.EqualFold(name, "Identity"):
			said.identity = value
		case strings.EqualFold(name, challenge):
			said.challenge = string(value)
		}
	}
	switch {
	case kind != wanted:
		return said, errorf(SocketType, "peer is a %.16q socket, %s belongs here", kind, wanted)
	case len(said.identity) > maxIdentity:
		return said, errorf(BadHandshake, "identity of %d bytes, the limit is %d", len(said.identity), maxIdentity)
	}
	return said, nil
}

func cutProperty(b []byte) (name string, value, rest []byte, err error) {
	n := int(b[0])
	if n == 0 || len(b) < 1+n+4 {
		return "", nil, nil, errorf(BadHandshake, "READY with a broken property name")
	}
	name, b = string(b[1:1+n]), b[1+n:]
	length := binary.BigEndian.Uint32(b)
	if b = b[4:]; uint64(length) > uint64(len(b)) {
		return "", nil, nil, errorf(BadHandshake, "READY with a property of %d bytes where %d are left", length, len(b))
	}
	return name, b[:length], b[length:], nil
}

// errorText is what an ERROR command says.
func errorText(data []byte) []byte {
	if len(data) > 0 && int(data[0]) <= len(data)-1 {
		return data[1 : 1+int(data[0])]
	}
	return nil
}
