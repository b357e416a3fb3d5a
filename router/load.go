package router

// choice are the slots that a policy chooses from, at one time.
type choice struct {
	slots []*slot
	now   int64
	most  int64       // legs that a rank is to have; 0: any number
	wary  []*Instance // passed over by this request
}

// Len implements policy.Candidates.
func (c choice) Len() int { return len(c.slots) }

// Load implements policy.Candidates.
func (c choice) Load(i int) int64 { return c.slots[i].open.Load() }

// Avoid implements policy.Candidates.
func (c choice) Avoid(i int) bool {
	s := c.slots[i]
	return s.avoided(c.now) || c.most > 0 && s.open.Load() >= c.most || len(c.wary) > 0 && s.instance.among(c.wary)
}
