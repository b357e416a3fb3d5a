package ending_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/pdpool/pdpool/transferagent/transport"
	"github.com/pdpool/pdpool/transferagent/transport/internal/challenge"
	"github.com/pdpool/pdpool/transferagent/transport/internal/ending"
)

func TestOf(t *testing.T) {
	own := errors.New("malformed")
	for _, c := range []struct{ err, want error }{
		{os.ErrDeadlineExceeded, transport.ErrFrozen},
		{net.ErrClosed, transport.ErrClosed},
		{io.EOF, transport.ErrPeerGone},
		{io.EOF, io.EOF},
		{own, own},
		{transport.ErrUnproved, transport.ErrUnproved},
		{challenge.ErrMagic, challenge.ErrMagic},
	} {
		got := ending.Of(fmt.Errorf("read: %w", c.err), own)
		if !errors.Is(got, c.want) {
			t.Errorf("%v is %v, not %v", c.err, got, c.want)
		}
		if gone := errors.Is(got, transport.ErrPeerGone); gone != (c.err == io.EOF) { //nolint:errorlint // of the table
			t.Errorf("%v means that the peer has gone: %t", c.err, gone)
		}
	}
}
