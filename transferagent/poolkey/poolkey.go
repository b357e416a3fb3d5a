// Package poolkey is the secret that the agents of one pool share, and what they
// prove with it: that a message is from another agent of the pool. It is pure.
//
// A proof is HMAC-SHA256 over a purpose and parts, each with its length before it,
// so that a proof for one purpose or cut is none for another.
package poolkey

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Size is the length of a proof, in bytes.
const Size = sha256.Size

// The bounds of a secret, in bytes.
const (
	MinSecret = 16
	MaxSecret = 1024
)

// Purpose separates the proofs of one secret.
type Purpose string

// The purposes of this version.
const (
	HandshakeRequest Purpose = "handshake-request"
	HandshakeAnswer  Purpose = "handshake-answer"
	Notification     Purpose = "notification"
	DataDialler      Purpose = "data-dialler"
	DataListener     Purpose = "data-listener"
)

// Keys are the secrets that an agent accepts, the one that it signs with first.
// The zero value signs nothing and accepts everything: agents outside a pool, in
// tests and benchmarks, run without.
type Keys struct {
	secrets [][]byte
}

// New takes secrets, the one to sign with first. Each has MinSecret to MaxSecret bytes.
func New(secrets ...[]byte) (Keys, error) {
	var k Keys
	for _, s := range secrets {
		if len(s) < MinSecret || len(s) > MaxSecret {
			return Keys{}, fmt.Errorf("a pool secret has %d to %d bytes, not %d", MinSecret, MaxSecret, len(s))
		}
		k.secrets = append(k.secrets, append([]byte(nil), s...))
	}
	return k, nil
}

// Set says whether there is a secret.
func (k Keys) Set() bool { return len(k.secrets) > 0 }

// Sign appends the proof to b, by the first secret. Without one it appends nothing.
func (k Keys) Sign(b []byte, purpose Purpose, parts ...[]byte) []byte {
	if !k.Set() {
		return b
	}
	return append(b, proof(k.secrets[0], purpose, parts)...)
}

// Valid says whether one of the secrets made this proof. Without a secret any is valid.
func (k Keys) Valid(given []byte, purpose Purpose, parts ...[]byte) bool {
	valid := !k.Set()
	for _, s := range k.secrets {
		valid = hmac.Equal(given, proof(s, purpose, parts)) || valid
	}
	return valid
}

func proof(secret []byte, purpose Purpose, parts [][]byte) []byte {
	h := hmac.New(sha256.New, secret)
	write := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	write([]byte(purpose))
	for _, p := range parts {
		write(p)
	}
	return h.Sum(nil)
}
