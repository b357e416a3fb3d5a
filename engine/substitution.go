package engine

import (
	"regexp"
	"strconv"
	"strings"
)

// hereCat is the beginning of $(cat <<END ...), by which scripts write long texts.
var hereCat = regexp.MustCompile(`^\$\(\s*cat[ \t]*<<(-?)[ \t]*(\\?['"]?)([A-Za-z_][A-Za-z0-9_]*)['"]?[ \t]*\r?\n`)

// hereText takes the text of $(cat <<END ...); false when it is no such. Only where it
// is one word: elsewhere a shell splits it.
func (s *shell) hereText(whole bool) bool {
	src := s.src[s.pos:]
	if !whole || !strings.HasPrefix(src, "$(") {
		return false
	}
	m := hereCat.FindStringSubmatchIndex(src[:min(len(src), 256)])
	if m == nil {
		return false
	}
	if s.heres++; s.heres > maxNotes {
		return false
	}
	quoted, end := m[4] != m[5], src[m[6]:m[7]]
	from := s.pos + m[1]
	to, after := heredocEnd(s.src, from, end)
	rest := strings.TrimLeft(s.src[after:], " \t\r\n")
	if !strings.HasPrefix(rest, ")") {
		return false
	}
	body := strings.TrimRight(s.src[from:to], "\r\n")
	if to = from + len(body); quoted {
		s.take(from, to)
	} else {
		s.hereExpanded(from, to)
	}
	s.pos = len(s.src) - len(rest) + 1
	return true
}

// hereExpanded takes src[from:to], in which variables count and quotes do not.
func (s *shell) hereExpanded(from, to int) {
	all := s.src
	s.src, s.pos = all[:to], from
	s.take(from, from)
	s.expands(from, "")
	s.src = all
}

// maxArithmetic is how long an expression may be that is worked out.
const maxArithmetic = 128

// arithmetic works $((...)) out where all of it is known: whole numbers and variables
// with + - * / % and parentheses. False where it is something else.
func (s *shell) arithmetic() bool {
	src := s.src[s.pos:]
	if !strings.HasPrefix(src, "$((") {
		return false
	}
	src = src[:min(len(src), maxArithmetic)]
	n := closing(src[3:], '(', ')')
	if n < 0 || !strings.HasPrefix(src[3+n:], "))") {
		return false
	}
	sum := expression{text: src[3 : 3+n], vars: s.vars}
	v := sum.sum(0)
	if sum.bad || sum.peek() != 0 {
		return false
	}
	s.b.add(s.src, strconv.FormatInt(v, 10), s.at(s.pos))
	s.pos += 3 + n + 2
	return true
}

// expression is an arithmetic expression of the shell that is being worked out.
type expression struct {
	text string
	pos  int
	vars *scope
	bad  bool // it holds what is not known, or is none
}

// peek is the next character that is no blank; 0 at the end.
func (e *expression) peek() byte {
	for e.pos < len(e.text) && strings.IndexByte(" \t\n", e.text[e.pos]) >= 0 {
		e.pos++
	}
	if e.pos == len(e.text) {
		return 0
	}
	return e.text[e.pos]
}

func (e *expression) sum(depth int) int64 {
	v := e.product(depth)
	for c := e.peek(); !e.bad && (c == '+' || c == '-'); c = e.peek() {
		e.pos++
		if w := e.product(depth); c == '+' {
			v += w
		} else {
			v -= w
		}
	}
	return v
}

func (e *expression) product(depth int) int64 {
	v := e.operand(depth)
	for c := e.peek(); !e.bad && (c == '*' || c == '/' || c == '%'); c = e.peek() {
		e.pos++
		switch w := e.operand(depth); {
		case c == '*':
			v *= w
		case w == 0 || e.bad:
			e.bad = true
		case c == '/':
			v /= w
		default:
			v %= w
		}
	}
	return v
}

func (e *expression) operand(depth int) int64 {
	c := e.peek()
	switch {
	case depth == maxNested:
	case c == '(':
		e.pos++
		if v := e.sum(depth + 1); e.peek() == ')' {
			e.pos++
			return v
		}
	case c == '-':
		e.pos++
		return -e.operand(depth + 1)
	case c >= '0' && c <= '9':
		from := e.pos
		for e.pos < len(e.text) && e.text[e.pos] >= '0' && e.text[e.pos] <= '9' {
			e.pos++
		}
		return e.number(e.text[from:e.pos])
	default:
		return e.variable()
	}
	e.bad = true
	return 0
}

// number is one below 2^31; a longer one, or one that an octal begins, is not known.
func (e *expression) number(text string) int64 {
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil || len(text) > 1 && text[0] == '0' {
		e.bad = true
	}
	return v
}

func (e *expression) variable() int64 {
	e.text = e.text[e.pos:]
	e.pos = 0
	name := strings.TrimPrefix(e.text, "$")
	braced := len(name) < len(e.text) && strings.HasPrefix(name, "{")
	if braced {
		name = name[1:]
	}
	n := nameLength(name)
	rest := name[n:]
	v, ok := e.vars.vars[name[:n]]
	if e.bad = e.bad || n == 0 || !ok || v.first().open != "" || braced && !strings.HasPrefix(rest, "}"); e.bad {
		return 0
	}
	if braced {
		rest = rest[1:]
	}
	e.pos = len(e.text) - len(rest)
	return e.number(strings.TrimSpace(v.first().text))
}
