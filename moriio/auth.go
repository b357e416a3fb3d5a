package moriio

import (
	"bytes"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// ProofBytes is the length of the proof in a message of a pool with a secret.
const ProofBytes = 32

// authEntry is what the proof comes after: its key and the header of a bin of ProofBytes.
var authEntry = []byte("\xa4auth\xc4\x20")

// OpenAuth adds the field auth to the map pdpool of an encoded message, as the last of
// both, all but its value: the caller appends ProofBytes of proof over what OpenAuth
// returns. Message may be changed. The error, an *Error, says that it is no message of
// this package, or one for stock peers, without that map.
func OpenAuth(message []byte) ([]byte, error) {
	b, err := msgpack.Extend(message, "pdpool", "auth")
	if err != nil {
		return nil, err
	}
	return append(b, authEntry[len(authEntry)-2:]...), nil
}

// CutAuth returns the proof at the end of a message and the bytes that it is for, false
// when there is none. It looks at the last bytes only, so that what strangers send costs
// nothing: a message whose proof is good was made by OpenAuth, and Parse judges the rest.
func CutAuth(message []byte) (signed, proof []byte, ok bool) {
	at := len(message) - ProofBytes
	if at < 0 || !bytes.HasSuffix(message[:at], authEntry) {
		return nil, nil, false
	}
	return message[:at:at], message[at:], true
}

// ChallengeVersion is the version of the fields of Challenge.
const ChallengeVersion = 1

// NonceBytes is the length of a Challenge's nonce.
const NonceBytes = 16

// Challenge is the second frame of a handshake's request, from an agent of a pool with
// a secret: it proves the dialler, and its answer has to be for this nonce.
type Challenge struct {
	Version int
	Epoch   uint64 // of the dialler
	Nonce   []byte // NonceBytes, random
}

// Append appends c, without its proof.
func (c *Challenge) Append(b []byte) []byte { return write(b, c, challengeFields) }

// ParseChallenge reads the second frame of a handshake's request. The error is an *Error.
func ParseChallenge(b []byte) (*Challenge, error) {
	c, err := parse(b, challengeFields)
	if err == nil && len(c.Nonce) != NonceBytes {
		return nil, msgpack.Errorf(BadField, "nonce", "has %d bytes, not %d", len(c.Nonce), NonceBytes)
	}
	return c, err
}

func challengeFields(c *msgpack.Codec, m *Challenge) {
	msgpack.Struct(c, "pdpool", m, func(c *msgpack.Codec, m *Challenge) {
		msgpack.Int(c, "version", &m.Version, 1, msgpack.MaxInt32)
		msgpack.Int(c, "epoch", &m.Epoch, 0, ^uint64(0))
		msgpack.Bytes(c, "nonce", &m.Nonce, NonceBytes)
	})
}

// Hello is the first message that an agent of a pool with a secret sends to a notify
// port: it proves whose connection this is before anything long is sent.
type Hello struct {
	Epoch uint64 // of the sender
}

// Append appends m, without its proof.
func (m *Hello) Append(b []byte) []byte { return write(b, m, helloFields) }

func helloFields(c *msgpack.Codec, m *Hello) {
	c.Const("type", typeHello)
	msgpack.Struct(c, "pdpool", m, func(c *msgpack.Codec, m *Hello) {
		msgpack.Int(c, "epoch", &m.Epoch, 0, ^uint64(0))
	})
}
