package zmtp

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats is what a Router has seen since it was made.
type Stats struct {
	Open      int               // connections now, those in the handshake included
	Accepted  uint64            // connections let in
	Connected uint64            // of them, those that completed the handshake
	Messages  uint64            // handed to the handler
	Ended     map[string]uint64 // connections that ended or were turned away, by reason
}

type stats struct {
	accepted, connected, messages atomic.Uint64

	mu    sync.Mutex
	ended map[string]uint64
}

func (s *stats) count(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = map[string]uint64{}
	}
	s.ended[reason]++
}

// Stats returns the numbers of this moment; the map is the caller's.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	open := len(r.open)
	r.mu.Unlock()
	r.stats.mu.Lock()
	defer r.stats.mu.Unlock()
	return Stats{
		Open:      open,
		Accepted:  r.stats.accepted.Load(),
		Connected: r.stats.connected.Load(),
		Messages:  r.stats.messages.Load(),
		Ended:     maps.Clone(r.stats.ended),
	}
}
