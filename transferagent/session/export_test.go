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
		add("copy orders", len(m.orders))
	case *Decode:
		shared = &m.machine
		add("transfers", len(m.transfers))
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
	for _, s := range shared.peers {
		if s.known == nil {
			continue
		}
		for _, memory := range s.known.memory {
			n += len(memory.regions)
		}
		if s.known.agent != nil {
			for _, r := range s.known.agent.Ranks {
				n += len(r.Regions)
			}
		}
	}
	return n
}
