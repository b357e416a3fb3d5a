package session_test

import (
	"fmt"
	"strings"

	"github.com/pdpool/pdpool/moriio"
	"github.com/pdpool/pdpool/transferagent/session"
)

// checkEnd looks at what is left when nothing happens any more.
func (s *sim) checkEnd() {
	for _, a := range s.agents {
		if left := a.machine.Transfers(); len(left) > 0 {
			s.violation("%s: %d transfers never end: %+v", a.shape.host, len(left), left[0])
		}
		if left := session.Leftovers(a.machine, false); len(left) > 0 {
			s.violation("%s keeps %s", a.shape.host, strings.Join(left, ", "))
		}
		s.checkAnswered(a)
		for _, peer := range s.agents {
			s.step(a, session.PeerGone{Peer: peer.shape.peer()})
		}
		if left := session.Leftovers(a.machine, true); len(left) > 0 {
			s.violation("%s keeps after its peers are gone %s", a.shape.host, strings.Join(left, ", "))
		}
	}
	if s.faults {
		return
	}
	if s.failed > 0 || s.done != s.nextID {
		s.violation("without faults %d of %d transfers ended well, %d failed", s.done, s.nextID, s.failed)
	}
	for pair, n := range s.dials {
		if n > 1 {
			s.violation("%d handshakes %s without a fault", n, pair)
		}
	}
}

// checkEnded: the end of a transfer is told once, when it is not live any more.
func (s *sim) checkEnded(a *agent, ended []session.Transfer) {
	for _, t := range ended {
		if _, twice := a.ended[t.ID]; twice {
			s.violation("%s: the end of %s is told twice", a.shape.host, t.ID)
		}
		a.ended[t.ID] = struct{}{}
		if now, ok := a.machine.Transfer(t.ID); !ok || t.Ended.IsZero() || now.State != t.State || (t.State != session.Ended && t.State != session.Broken) {
			s.violation("%s: the end of %s is told as %+v, the transfer is %+v", a.shape.host, t.ID, t, now)
		}
	}
	if n := len(a.machine.Transfers()); a.machine.Live() != n {
		s.violation("%s: %d of %d live transfers are counted", a.shape.host, a.machine.Live(), n)
	}
}

// wire and unwire take messages through MoRIIO's encoding, so that nothing is sent
// that a peer would refuse to read.
func wire(message any) []byte {
	switch m := message.(type) {
	case *moriio.RemoteBlocks:
		return m.Append([]byte{'b'})
	case *moriio.WriteDone:
		return m.Append([]byte{'d'})
	case *moriio.WriteFailed:
		return m.Append([]byte{'f'})
	case *moriio.Release:
		return m.Append([]byte{'r'})
	}
	return nil
}

func unwire(b []byte) (any, error) {
	switch b[0] {
	case 'b':
		return moriio.ParseRemoteBlocks(b[1:])
	case 'd':
		return moriio.ParseWriteDone(b[1:])
	case 'f':
		return moriio.ParseWriteFailed(b[1:])
	case 'r':
		return moriio.ParseRelease(b[1:])
	}
	return nil, fmt.Errorf("a message of unknown kind %q", b[0])
}
