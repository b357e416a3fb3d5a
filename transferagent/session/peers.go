package session

import (
	"fmt"
	"slices"
	"time"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/moriio"
)

// metadata is what is kept of a peer's answer to a handshake: of a peer that this
// pod does not pair with only why. It is never changed.
type metadata struct {
	epoch   uint64
	refused *ending
	agent   *moriio.Agent    // without its ranks; nil when refused
	memory  map[rank]*memory // of decode's ranks, at prefill, which writes there
}

func (m *machine) learn(at Peer, said *moriio.Metadata) *metadata {
	d := &metadata{}
	if said.PDPool != nil {
		d.epoch = said.PDPool.Epoch
	}
	if d.refused = m.refusal(at, said.PDPool); d.refused != nil {
		return d
	}
	agent := *said.PDPool
	agent.Ranks = nil
	d.agent = &agent
	if m.cfg.Self.Role == kvlayout.Prefill {
		d.memory = make(map[rank]*memory, len(said.PDPool.Ranks))
		known := m.shapes()
		for _, r := range said.PDPool.Ranks {
			d.memory[rank{r.DP, r.TP}] = newMemory(r, &known)
		}
	}
	return d
}

// shapes are those of all peers' memory, each once.
func (m *machine) shapes() []*shape {
	var all []*shape
	seen := map[*shape]struct{}{}
	for _, s := range m.peers {
		if s.known == nil {
			continue
		}
		for _, memory := range s.known.memory {
			if _, ok := seen[memory.shape]; !ok {
				seen[memory.shape] = struct{}{}
				all = append(all, memory.shape)
			}
		}
	}
	return all
}

// peerState is what is known of one peer's incarnation, and who waits for it.
type peerState struct {
	known *metadata // nil until a handshake has succeeded
	// asked: a Dial has not been answered. There is never more than one.
	asked bool
	// stale: what is known of the memory may be out of date; ask before the next transfer.
	stale    bool
	failures int       // handshakes failed in a row
	retryAt  time.Time // no Dial before
	lastErr  string
	waiting  []waiter
	users    int       // live transfers with this peer
	used     time.Time // last
	doubted  time.Time // when a message made us ask whether it has restarted
}

// waiter is a transfer that waits for the answer of a handshake.
type waiter struct {
	transfer string
	joined   bool // it came when the Dial was under way: the answer may be older than it
}

// meet counts a transfer that needs the peer; leave takes it back.
func (m *machine) meet(now time.Time, at Peer) {
	s := m.peers[at]
	if s == nil {
		m.trim(m.cfg.Limits.Peers - 1)
		s = &peerState{}
		m.peers[at] = s
	}
	s.users++
	s.used = now
}

// Needs says that a live transfer is with a peer.
func (m *machine) Needs(at Peer) bool {
	s := m.peers[at]
	return s != nil && s.users > 0
}

// trim forgets peers that nobody uses, the one unused for longest first, until no
// more than most are kept, or all that are kept are in use.
func (m *machine) trim(most int) {
	for len(m.peers) > most {
		var oldest *Peer
		for at, s := range m.peers {
			if s.users == 0 && !s.asked && (oldest == nil || s.used.Before(m.peers[*oldest].used)) {
				oldest = &at
			}
		}
		if oldest == nil {
			return
		}
		m.forget(*oldest)
	}
}

// leave says that an ended transfer needs the peer no more.
func (m *machine) leave(now time.Time, at Peer, transfer string) {
	s := m.peers[at]
	if s == nil {
		return
	}
	s.users--
	s.used = now
	s.waiting = slices.DeleteFunc(s.waiting, func(w waiter) bool { return w.transfer == transfer })
	m.tidy(now, at, s)
}

// want returns the metadata of a peer's incarnation, epoch 0 meaning any. If it
// is not known, the transfer waits for a handshake and want returns nil.
func (m *machine) want(now time.Time, at Peer, epoch uint64, transfer string) *metadata {
	s := m.peers[at]
	if s.known != nil && !s.asked && !s.stale && (epoch == 0 || epoch == s.known.epoch) {
		return s.known
	}
	s.waiting = append(s.waiting, waiter{transfer: transfer, joined: s.asked})
	m.dial(now, at, s)
	return nil
}

// dial asks for a handshake unless one is under way; after a failed one not
// before its back-off has passed.
func (m *machine) dial(now time.Time, at Peer, s *peerState) {
	if s.asked {
		return
	}
	if now.Before(s.retryAt) {
		m.alarms.put(alarmKey{peer: at}, s.retryAt)
		return
	}
	s.asked = true
	m.out.Dials = append(m.out.Dials, at)
}

// retry dials again after a back-off if somebody still waits.
func (m *machine) retry(now time.Time, at Peer) {
	s := m.peers[at]
	if s == nil {
		return
	}
	if len(s.waiting) > 0 {
		m.dial(now, at, s)
		return
	}
	m.tidy(now, at, s)
}

// doubt asks a peer whether it has restarted, since a message names another
// epoch. The answer decides: the message may also be old or a stranger's.
func (m *machine) doubt(now time.Time, at Peer) {
	s := m.peers[at]
	if s == nil || s.known == nil || s.asked || now.Before(s.retryAt) || now.Before(s.doubted) {
		return
	}
	s.doubted = now.Add(m.cfg.Timeouts.Handshake)
	m.dial(now, at, s)
}

// current reports whether batches may go to this incarnation of the peer.
func (m *machine) current(at Peer, epoch uint64) bool {
	s := m.peers[at]
	return s != nil && !s.asked && s.known != nil && s.known.epoch == epoch
}

// answered takes the answer of a handshake. It returns who waited for it and,
// when the peer turns out to be another incarnation than before, the epoch that
// has ended.
func (m *machine) answered(now time.Time, ev Handshaken) (waiting []waiter, ended uint64, restarted bool, err error) {
	s := m.peers[ev.Peer]
	if s == nil || !s.asked {
		return nil, 0, false, wrongf(Unasked, "a handshake with %s that nobody asked for", ev.Peer)
	}
	s.asked = false
	waiting, s.waiting = s.waiting, nil
	if ev.Err != nil || ev.Metadata == nil {
		s.failures++
		s.retryAt = now.Add(m.backOff(s.failures))
		s.lastErr = "no answer"
		if ev.Err != nil {
			s.lastErr = ev.Err.Error()
		}
		m.tidy(now, ev.Peer, s)
		return waiting, 0, false, nil
	}
	before := s.known
	s.known, s.stale, s.failures, s.retryAt, s.lastErr = m.learn(ev.Peer, ev.Metadata), false, 0, time.Time{}, ""
	m.tidy(now, ev.Peer, s)
	if before != nil && before.epoch != s.known.epoch {
		return waiting, before.epoch, true, nil
	}
	return waiting, 0, false, nil
}

// backOff doubles from a 32nd of the handshake timeout to a half of it, so that a
// transfer that comes during the longest one still gets its own try.
func (m *machine) backOff(failures int) time.Duration {
	return min(m.cfg.Timeouts.Handshake/32<<min(failures-1, 4), m.cfg.Timeouts.Handshake/2)
}

// unknow forgets what was learned of a peer. While a handshake is under way its
// place stays, so that no second one starts.
func (m *machine) unknow(now time.Time, at Peer) {
	s := m.peers[at]
	if s == nil {
		return
	}
	*s = peerState{asked: s.asked, users: s.users, used: s.used}
	m.tidy(now, at, s)
}

// tidy forgets a peer that nobody uses and of which nothing is worth keeping, once
// its back-off has passed, and those that are too many since all were in use.
func (m *machine) tidy(now time.Time, at Peer, s *peerState) {
	switch {
	case s.users > 0 || s.asked || s.known != nil:
	case now.Before(s.retryAt):
		m.alarms.put(alarmKey{peer: at}, s.retryAt)
	default:
		m.forget(at)
	}
	m.trim(m.cfg.Limits.Peers)
}

func (m *machine) forget(at Peer) {
	delete(m.peers, at)
	m.alarms.drop(alarmKey{peer: at})
}

// String is the address of a peer as shown in texts.
func (p Peer) String() string { return fmt.Sprintf("%s:%d", p.Host, p.Handshake) }

// handshakeFailed is the ending of the transfers that waited in vain.
func (m *machine) handshakeFailed(at Peer) *ending {
	return endingf(RuleHandshake, "the handshake with %s failed: %s", at, m.peers[at].lastErr)
}

// handshakeLate is the ending of a transfer that has waited long enough.
func (m *machine) handshakeLate(at Peer) *ending {
	if s := m.peers[at]; s != nil && s.lastErr != "" {
		return endingf(RuleHandshakeDeadline, "no handshake with %s within %s; the last one failed: %s", at, m.cfg.Timeouts.Handshake, s.lastErr)
	}
	return endingf(RuleHandshakeDeadline, "%s did not answer the handshake within %s", at, m.cfg.Timeouts.Handshake)
}

// distrust has the peer asked again before the next transfer: its memory may be another one.
func (m *machine) distrust(at Peer) {
	if s := m.peers[at]; s != nil {
		s.stale = true
	}
}
