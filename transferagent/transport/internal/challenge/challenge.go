// Package challenge lets both ends of a mover's connection prove that they belong to
// the pool, before anything else is said on it. All is of constant size: what a
// stranger sends costs two small reads, and it is told nothing but a random number.
//
//	dialler   challenge  magic "PDPC", u8 version, 3 zero bytes, 32 random bytes
//	listener  challenge
//	dialler   proof      32 bytes, for poolkey.DataDialler
//	listener  proof      32 bytes, for poolkey.DataListener
//
// A proof is over the kind of mover and both random numbers, the dialler's first.
// So it holds for one connection, one direction and one kind. It says who opened the
// connection; it does not keep somebody on the path from changing what follows.
package challenge

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pdpool/pdpool/transferagent/poolkey"
	"github.com/pdpool/pdpool/transferagent/transport"
)

const (
	version   = 1
	headSize  = 8
	nonceSize = 32
)

var magic = [4]byte{'P', 'D', 'P', 'C'}

// Why what came is no challenge.
var (
	ErrMagic   = errors.New("not a mover's challenge")
	ErrVersion = errors.New("another version of the movers' challenge")
)

type nonce [nonceSize]byte

// Dial proves this end to the listener and demands its proof. Without a secret, or
// keys, it does nothing. The caller bounds the time by the connection's deadline. It fails with
// transport.ErrUnproved when the listener's proof is wrong, or when it ends the
// connection on ours.
func Dial(conn io.ReadWriter, now func() poolkey.Keys, kind string) error {
	keys := held(now)
	if !keys.Set() {
		return nil
	}
	mine := fresh()
	if err := send(conn, mine); err != nil {
		return fmt.Errorf("send challenge: %w", err)
	}
	theirs, err := receive(conn)
	if err != nil {
		return fmt.Errorf("await challenge: %w", err)
	}
	if _, err := conn.Write(keys.Sign(nil, poolkey.DataDialler, []byte(kind), mine[:], theirs[:])); err != nil {
		return fmt.Errorf("send proof: %w", err)
	}
	var given [poolkey.Size]byte
	switch _, err := io.ReadFull(conn, given[:]); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("await proof: %w", err)
	case err != nil:
		return fmt.Errorf("the peer ended the connection on our proof: %w (%w)", transport.ErrUnproved, err)
	case !keys.Valid(given[:], poolkey.DataListener, []byte(kind), mine[:], theirs[:]):
		return fmt.Errorf("the listener's proof is not of this pool's secret: %w", transport.ErrUnproved)
	}
	return nil
}

// Accept demands the dialler's proof and answers with this end's. Without a secret,
// or keys, it does nothing. The caller bounds the time by the connection's deadline, and ends
// the connection on an error. It fails with transport.ErrUnproved when the proof is
// wrong. Reason names the error.
func Accept(conn io.ReadWriter, now func() poolkey.Keys, kind string) error {
	keys := held(now)
	if !keys.Set() {
		return nil
	}
	theirs, err := receive(conn)
	if err != nil {
		return fmt.Errorf("await challenge: %w", err)
	}
	mine := fresh()
	if err := send(conn, mine); err != nil {
		return fmt.Errorf("send challenge: %w", err)
	}
	var given [poolkey.Size]byte
	if _, err := io.ReadFull(conn, given[:]); err != nil {
		return fmt.Errorf("await proof: %w", err)
	}
	if !keys.Valid(given[:], poolkey.DataDialler, []byte(kind), theirs[:], mine[:]) {
		return fmt.Errorf("the dialler's proof is not of this pool's secret: %w", transport.ErrUnproved)
	}
	if _, err := conn.Write(keys.Sign(nil, poolkey.DataListener, []byte(kind), theirs[:], mine[:])); err != nil {
		return fmt.Errorf("send proof: %w", err)
	}
	return nil
}

// Reason is the name under which an error of Accept is counted: proof, hello,
// version, or silent for whatever ended before it was whole.
func Reason(err error) string {
	switch {
	case errors.Is(err, transport.ErrUnproved):
		return "proof"
	case errors.Is(err, ErrMagic):
		return "hello"
	case errors.Is(err, ErrVersion):
		return "version"
	default:
		return "silent"
	}
}

func held(now func() poolkey.Keys) poolkey.Keys {
	if now == nil {
		return poolkey.Keys{}
	}
	return now()
}

func fresh() (n nonce) {
	rand.Read(n[:])
	return n
}

func send(w io.Writer, n nonce) error {
	b := append(magic[:], version, 0, 0, 0)
	_, err := w.Write(append(b, n[:]...))
	return err
}

// receive reads a challenge. What begins otherwise is refused before the rest has
// come. A socket that keeps packets apart gives all of it in the first read.
func receive(r io.Reader) (nonce, error) {
	var b [headSize + nonceSize]byte
	n, err := io.ReadAtLeast(r, b[:], headSize)
	switch {
	case err != nil:
		return nonce{}, err
	case [4]byte(b[:4]) != magic:
		return nonce{}, fmt.Errorf("it begins with %q: %w", b[:4], ErrMagic)
	case b[4] != version:
		return nonce{}, fmt.Errorf("version %d: %w", b[4], ErrVersion)
	}
	if _, err := io.ReadFull(r, b[n:]); err != nil {
		return nonce{}, err
	}
	return nonce(b[headSize:]), nil
}
