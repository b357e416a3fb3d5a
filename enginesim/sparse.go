package enginesim

import (
	"sync"
	"time"
)

// sparse lets the first of many notices that are alike into the log, and then one a
// minute that tells how many it stands for.
type sparse struct {
	mu   sync.Mutex
	last time.Time
	left int
}

const sparseEvery = time.Minute

// admit says whether to log now, and how many were left out since the last time.
func (s *sparse) admit(now time.Time) (omitted int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.last.IsZero() && now.Sub(s.last) < sparseEvery {
		s.left++
		return 0, false
	}
	omitted = s.left
	s.last, s.left = now, 0
	return omitted, true
}
