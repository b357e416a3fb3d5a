// Package ending says what the end of a connection means for its session.
package ending

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/challenge"
)

// Of names an error of a connection: transport.ErrFrozen for a deadline that passed,
// transport.ErrClosed for an end from this side, and transport.ErrPeerGone for what
// the kernel tells. What was wrong with the peer's bytes stays what it is, errors of
// the challenge and own ones.
func Of(err error, own ...error) error {
	for _, o := range append(own, transport.ErrUnproved, challenge.ErrMagic, challenge.ErrVersion) {
		if errors.Is(err, o) {
			return err
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return transport.ErrFrozen
	case errors.Is(err, net.ErrClosed):
		return transport.ErrClosed
	default:
		return fmt.Errorf("%w (%w)", transport.ErrPeerGone, err)
	}
}
