package engine

// certain says that all branches that are read are taken, from a frame on.
func (s *shell) certain(from int) bool {
	for _, f := range s.frames[from:] {
		if !f.settled || f.unsure {
			return false
		}
	}
	return s.unframed == 0 && !s.guarded
}

// returns leaves the function that is read, where that is certain.
func (s *shell) returns() {
	if s.callDepth > 0 && s.certain(s.outside) {
		s.pos = len(s.src)
	}
}

// leaves ends a loop, or a round of it.
func (s *shell) leaves(name string) {
	for i := len(s.frames) - 1; i >= s.outside; i-- {
		f := &s.frames[i]
		switch {
		case f.kind != "loop":
			continue
		case s.certain(i):
			f.dead, f.skips = true, name == "continue"
		default:
			f.unsure = true
		}
		return
	}
}
