package engine

// openGroup begins commands in braces. Those that a test is in front of are a frame.
func (s *shell) openGroup() {
	n := len(s.frames)
	if !s.guarded || s.unframed > 0 || n == maxFrames || s.framed >= maxFramesInAll {
		if n > 0 {
			s.frames[n-1].braces++
		}
		return
	}
	s.open("group")
	f := s.innermost("group")
	f.test, f.either = s.verdict, s.either
	if f.either {
		f.taken(f.test.not())
	} else {
		f.absent = s.lacking
		f.taken(f.test)
	}
	s.joined, s.guarded = false, false
}

// closeGroup ends commands in braces. How they ended is not known, if they ran.
func (s *shell) closeGroup() {
	n := len(s.frames)
	switch {
	case n == 0:
	case s.frames[n-1].braces > 0:
		s.frames[n-1].braces--
	case s.innermost("group") != nil:
		s.verdict, s.either = s.frames[n-1].test, s.frames[n-1].either
		s.guarded = true
		s.close()
	}
}
