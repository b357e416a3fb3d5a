package router

// choice are the slots that a policy chooses from, at one time.
type choice struct {
	slots    []*slot
	partners map[*Instance][]*slot // of prefills: without one that answers they serve nobody
	now      int64
	most     int64       // legs that a decode rank is to have; 0: any number
	wary     []*Instance // passed over by this request
}

// How much a slot is to be avoided: a full one answers late, a suspected one perhaps never.
const (
	good = iota
	full // or this request's transfer has failed there
	suspected
)

// Len implements policy.Candidates.
func (c choice) Len() int { return len(c.slots) }

// Load implements policy.Candidates.
func (c choice) Load(i int) int64 { return c.slots[i].open.Load() }

// Avoid implements policy.Candidates.
func (c choice) Avoid(i int) int {
	s := c.slots[i]
	if c.partners == nil {
		return c.grade(s, c.most)
	}
	own, others := c.grade(s, 0), suspected
	for _, d := range c.partners[s.instance] {
		if others = min(others, c.grade(d, c.most)); others <= own {
			break
		}
	}
	return max(own, others)
}

// grade says how much a slot by itself is to be avoided.
func (c choice) grade(s *slot, most int64) int {
	switch {
	case s.avoided(c.now):
		return suspected
	case most > 0 && s.open.Load() >= most, len(c.wary) > 0 && s.instance.among(c.wary):
		return full
	}
	return good
}
