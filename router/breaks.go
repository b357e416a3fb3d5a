package router

import "bytes"

// breaks finds the ends of server-sent events in a text that comes in pieces. A line
// ends by LF, CR LF or CR, an event by a blank line. A CR that may still get its LF is
// waited for, unless the line before ended by CR alone.
type breaks struct {
	inLine bool // something of the line has come
	cr     bool // the last byte was a CR
	blank  bool // the line that it ends is blank
	bare   bool // the last line ended by CR alone
}

// next returns the index behind the first event of b that ends at from or later, -1 if
// none does. Every byte is looked at once: from is what next returned last, or the
// length of what it has seen of b.
func (s *breaks) next(b []byte, from int) int {
	for i := from; i < len(b); i++ {
		c := b[i]
		if s.cr {
			ended := s.blank
			s.cr, s.blank, s.bare = false, false, c != '\n'
			switch {
			case !s.bare && ended:
				return i + 1
			case !s.bare:
				continue
			case ended:
				return i
			}
		}
		switch c {
		case '\n':
			if !s.inLine {
				return i + 1
			}
			s.inLine, s.bare = false, false
		case '\r':
			if !s.inLine && s.bare {
				return i + 1
			}
			s.cr, s.blank, s.inLine = true, !s.inLine, false
		default:
			s.inLine = true
		}
	}
	return -1
}

// cutLine splits a text behind its first line, whose end is not part of line.
func cutLine(b []byte) (line, end, rest []byte) {
	n := bytes.IndexAny(b, "\r\n")
	if n < 0 {
		return b, nil, nil
	}
	k := n + 1
	if b[n] == '\r' && k < len(b) && b[k] == '\n' {
		k++
	}
	return b[:n], b[n:k], b[k:]
}
