package engine

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// scan reads one word with its quotes and expansions. An unquoted expansion may
// make several words of it, or none, unless whole is set.
func (s *shell) scan(whole bool) {
	s.b.reset()
	start := s.pos
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\r', '\n', ';', '&', '|', '(', ')':
			s.flush(start)
			return
		case '<', '>':
			if s.placeholder() {
				continue
			}
			if s.b.plain && !s.b.copied && strings.Trim(s.src[s.b.from:s.b.to], "0123456789") == "" {
				return // the file descriptor of a redirection
			}
			s.flush(start)
			return
		case '\\':
			s.escaped()
		case '\'':
			s.single()
		case '"':
			s.double()
		case '$':
			s.dollar(start, whole, false)
		case '`':
			s.backquoted()
		default:
			if c != '{' || !s.bareJSON() {
				s.characters()
			}
		}
	}
	s.flush(start)
}

// rest are the words up to the end of the source, where operators mean nothing. With whole,
// an expansion makes no further ones.
func (s *shell) rest(whole bool) []word {
	for {
		s.blanks()
		if s.pos >= len(s.src) {
			return s.words
		}
		before := s.pos
		if s.scan(whole); s.pos == before {
			s.pos++
		}
	}
}

// characters takes a run of characters without a meaning.
func (s *shell) characters() {
	const special = " \t\r\n;&|()<>\\'\"$`{"
	n := strings.IndexAny(s.src[s.pos+1:], special)
	end := len(s.src)
	if n >= 0 {
		end = s.pos + 1 + n
	}
	s.take(s.pos, end)
	s.pos = end
}

// flush ends the word.
func (s *shell) flush(start int) {
	if !s.b.any {
		return
	}
	if len(s.words) == maxWords {
		s.note(s.at(start), "a command has more than %d words: the rest was not read", maxWords)
	}
	if len(s.words) > maxWords {
		return
	}
	s.words = append(s.words, s.b.word(s.src, s.at(start)))
	s.b.reset()
}

func (s *shell) escaped() {
	s.b.plain = false
	if s.pos+1 == len(s.src) {
		s.take(s.pos, s.pos+1)
		s.pos++
		return
	}
	if rest := s.src[s.pos+1:]; rest[0] == '\n' || strings.HasPrefix(rest, "\r\n") {
		s.pos += 1 + strings.IndexByte(rest, '\n') + 1
		return
	}
	_, n := utf8.DecodeRuneInString(s.src[s.pos+1:])
	s.take(s.pos+1, s.pos+1+n)
	s.pos += 1 + n
}

func (s *shell) single() {
	s.b.plain = false
	from := s.pos + 1
	n := strings.IndexByte(s.src[from:], '\'')
	if n < 0 {
		s.unclosed(s.pos)
		n = len(s.src) - from
	}
	s.take(from, from+n)
	s.pos = min(from+n+1, len(s.src))
}

func (s *shell) unclosed(at int) {
	s.note(s.at(at), "the quote that opens here is not closed")
}

// double reads text in double quotes.
func (s *shell) double() {
	s.b.plain = false
	opened := s.pos
	s.pos++
	s.take(s.pos, s.pos)
	if !s.expands(opened, `"`) {
		s.unclosed(opened)
	}
}

// expands reads text from an offset on in which variables count, blanks do not and quotes
// do not but for one that ends it, "" for none. It says false at the end of the source.
func (s *shell) expands(opened int, quote string) bool {
	special := quote + "$`\\"
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case strings.IndexByte(quote, c) >= 0:
			s.pos++
			return true
		case c == '$':
			s.dollar(opened, true, true)
		case c == '`':
			s.backquoted()
		case c == '\\' && s.pos+1 < len(s.src) && (s.src[s.pos+1] == '\n' || strings.IndexByte(special, s.src[s.pos+1]) >= 0):
			if s.src[s.pos+1] != '\n' {
				s.take(s.pos+1, s.pos+2)
			}
			s.pos += 2
		default:
			n := strings.IndexAny(s.src[s.pos+1:], special)
			if n < 0 {
				n = len(s.src) - s.pos - 1
			}
			s.take(s.pos, s.pos+1+n)
			s.pos += 1 + n
		}
	}
	return false
}

// ansi reads $'..', with C's escapes.
func (s *shell) ansi() {
	s.b.plain = false
	opened := s.pos
	s.pos += 2
	s.take(s.pos, s.pos)
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == '\'':
			s.pos++
			return
		case c == '\\' && s.pos+1 < len(s.src):
			s.cEscape()
		default:
			s.take(s.pos, s.pos+1)
			s.pos++
		}
	}
	s.unclosed(opened)
}

// digit is the value of a digit, and no base's where the character is none.
func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return 36
}

func (s *shell) cEscape() {
	const letters, values = "abefnrtv\\'\"?", "\a\b\x1b\f\n\r\t\v\\'\"?"
	c := s.src[s.pos+1]
	digits := func(from, most, base int) int {
		n := 0
		for n < most && from+n < len(s.src) && digit(s.src[from+n]) < base {
			n++
		}
		return n
	}
	number := func(from, n, base int) rune {
		v, _ := strconv.ParseUint(s.src[from:from+n], base, 32)
		return rune(v)
	}
	from, n, base := s.pos+1, 0, 8
	switch width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; {
	case width > 0:
		from, base = s.pos+2, 16
		n = digits(from, width, base)
	case c >= '0' && c <= '7':
		n = digits(from, 3, base)
	}
	switch i := strings.IndexByte(letters, c); {
	case n > 0 && (c == 'u' || c == 'U'):
		s.b.add(s.src, string(number(from, n, base)), s.at(s.pos))
		s.pos = from + n
	case n > 0:
		s.b.add(s.src, string([]byte{byte(number(from, n, base))}), s.at(s.pos))
		s.pos = from + n
	case i >= 0:
		s.b.add(s.src, values[i:i+1], s.at(s.pos))
		s.pos += 2
	default:
		s.take(s.pos, s.pos+1)
		s.pos++
	}
}

// placeholder takes <something> that stands for what the reader is to fill in.
func (s *shell) placeholder() bool {
	n := placeholderLength(s.src[s.pos:])
	if n == 0 {
		return false
	}
	s.b.plain = false
	s.unknown(n)
	return true
}

// placeholderLength is that of the placeholder at the beginning of text, or 0 where
// it can be a redirection.
func placeholderLength(text string) int {
	if len(text) < 3 || text[0] != '<' {
		return 0
	}
	c := text[1] | 0x20
	n := strings.IndexAny(text[1:], ">\n\"'<;|&$")
	if c < 'a' || c > 'z' || n < 0 || text[1+n] != '>' || text[n] == ' ' {
		return 0
	}
	end := n + 2
	if end < len(text) && strings.IndexByte(" \t\r\n\"';&|)/:,.", text[end]) < 0 {
		return 0
	}
	return end
}
