package session

import "fmt"

// Leftovers tells what a machine still keeps besides ended transfers and, when
// withPeers is false, peers that answered a handshake.
func Leftovers(m Machine, withPeers bool) []string {
	var left []string
	add := func(name string, n int) {
		if n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, name))
		}
	}
	var shared *machine
	switch m := m.(type) {
	case *Prefill:
		shared = &m.machine
		add("transfers", len(m.transfers))
		add("early asks", len(m.early))
		add("blocks of early asks", m.waiting)
		add("releases of unknown transfers", m.foregone.order.Len())
		add("copy orders", len(m.orders))
		add("pieces of copy orders", m.pieces)
		add("peers with traffic", len(m.traffic))
		add("blocks", m.blocks)
	case *Decode:
		shared = &m.machine
		add("transfers", len(m.transfers))
		add("blocks", m.blocks)
	}
	for at, s := range shared.peers {
		if withPeers || s.users != 0 || len(s.waiting) > 0 || s.asked {
			left = append(left, fmt.Sprintf("peer %s: %+v", at, *s))
		}
	}
	if withPeers {
		add("alarms", len(shared.alarms.set))
	}
	for key := range shared.alarms.set {
		if key.transfer != "" {
			left = append(left, fmt.Sprintf("alarm of %q", key.transfer))
		}
	}
	return left
}

// KeptRegions is how many regions of peers' memory a machine keeps.
func KeptRegions(m Machine) int {
	var shared *machine
	switch m := m.(type) {
	case *Prefill:
		shared = &m.machine
	case *Decode:
		shared = &m.machine
	}
	n := 0
	for _, s := range shared.shapes() {
		n += len(s.regions)
	}
	for _, s := range shared.peers {
		if s.known != nil && s.known.agent != nil {
			for _, r := range s.known.agent.Ranks {
				n += len(r.Regions)
			}
		}
	}
	return n
}

// Crowded tells what breaks the rules of the orders that are open with a peer: no more
// than the limit, and what waits for room waits for an answer.
func Crowded(m Machine) []string {
	p, ok := m.(*Prefill)
	if !ok {
		return nil
	}
	var wrong []string
	orders, pieces := 0, 0
	for at, x := range p.traffic {
		orders += x.orders
		pieces += x.pieces
		if x.orders > p.cfg.Limits.Orders || x.orders < 1 {
			wrong = append(wrong, fmt.Sprintf("%d orders open with %s and %d flows waiting, %d orders are the most", x.orders, at, len(x.waiting), p.cfg.Limits.Orders))
		}
	}
	if orders != len(p.orders) || pieces != p.pieces {
		wrong = append(wrong, fmt.Sprintf("%d orders of %d pieces, counted are %d of %d", len(p.orders), p.pieces, orders, pieces))
	}
	return wrong
}

// Stuck lists live transfers and waits that neither a deadline nor an answer ends.
func Stuck(m Machine) []string {
	var stuck []string
	switch m := m.(type) {
	case *Prefill:
		for id, t := range m.transfers {
			if _, timed := m.alarms.set[alarmKey{transfer: id}]; !timed && (t.failure == nil || t.inflight == 0) {
				stuck = append(stuck, "transfer "+id)
			}
		}
		for id := range m.early {
			if _, timed := m.alarms.set[alarmKey{transfer: id, early: true}]; !timed {
				stuck = append(stuck, "early ask "+id)
			}
		}
		for id := range m.foregone.byID {
			if _, timed := m.alarms.set[alarmKey{transfer: id, early: true}]; !timed {
				stuck = append(stuck, "release of "+id)
			}
		}
		return append(stuck, m.stuckPeers()...)
	case *Decode:
		for id, t := range m.transfers {
			if _, timed := m.alarms.set[alarmKey{transfer: id}]; !timed && (!t.revoking || t.revoked) {
				stuck = append(stuck, "transfer "+id)
			}
		}
		return append(stuck, m.stuckPeers()...)
	}
	return nil
}

func (m *machine) stuckPeers() []string {
	var stuck []string
	for at, s := range m.peers {
		if _, timed := m.alarms.set[alarmKey{peer: at}]; len(s.waiting) > 0 && !s.asked && !timed {
			stuck = append(stuck, "waiters for "+at.String())
		}
		if s.users < 0 {
			stuck = append(stuck, fmt.Sprintf("%d users of %s", s.users, at))
		}
	}
	return stuck
}

// IdlePeers is how many peers a machine keeps that no transfer uses.
func IdlePeers(m Machine) int {
	var peers map[Peer]*peerState
	switch m := m.(type) {
	case *Prefill:
		peers = m.peers
	case *Decode:
		peers = m.peers
	}
	n := 0
	for _, s := range peers {
		if s.users == 0 && !s.asked {
			n++
		}
	}
	return n
}
