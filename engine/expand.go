package engine

import (
	"cmp"
	"strings"
)

// dollar reads what begins with a dollar sign. Words that it makes begin at start.
func (s *shell) dollar(start int, whole, quoted bool) {
	s.b.plain = false
	rest := s.src[s.pos+1:]
	switch {
	case rest == "":
		s.literal(1)
	case rest[0] == '\'' && !quoted:
		s.ansi()
	case rest[0] == '"' && !quoted:
		s.pos++
		s.double()
	case rest[0] == '(':
		if !s.hereText(whole) && !s.arithmetic() {
			s.substitution()
		}
	case rest[0] == '{':
		s.braced(start, whole, quoted)
	case strings.IndexByte("@*#0123456789", rest[0]) >= 0:
		s.special(start, rest[0], whole, quoted)
	case strings.IndexByte("?$!-", rest[0]) >= 0:
		s.unknown(2)
	default:
		n := nameLength(rest)
		if n == 0 {
			s.literal(1)
			return
		}
		v, ok := s.vars.vars[rest[:n]]
		if !ok {
			s.unknown(1 + n)
			return
		}
		s.pos += 1 + n
		s.value(start, v.first(), whole)
	}
}

// literal and unknown take the next n bytes as they are.
func (s *shell) literal(n int) {
	s.take(s.pos, s.pos+n)
	s.pos += n
}

func (s *shell) unknown(n int) {
	s.b.unknown(s.src[s.pos : s.pos+n])
	s.literal(n)
}

// value adds the value of a variable, split at blanks unless it is to stay whole.
func (s *shell) value(start int, v word, whole bool) {
	if s.expanded += len(v.text); s.expanded > maxExpanded {
		s.b.unknown("a variable")
		if s.expanded-len(v.text) <= maxExpanded {
			s.note(s.at(start), "variables add more than %d bytes to the text: the rest was not expanded", maxExpanded)
		}
		return
	}
	if whole || v.open != "" && v.open == v.text {
		s.piece(v, 0, len(v.text))
		return
	}
	for i := 0; i < len(v.text); {
		n := strings.IndexAny(v.text[i:], " \t\r\n")
		if n < 0 {
			n = len(v.text) - i
		}
		if n > 0 {
			s.piece(v, i, i+n)
		}
		if i += n; i < len(v.text) {
			s.flush(start)
			i++
		}
	}
}

// piece adds a part of a value.
func (s *shell) piece(v word, from, to int) {
	if s.b.size() == 0 {
		s.b.expanded = true
	}
	s.b.plain = false
	part := v.text[from:to]
	s.b.add(s.src, part, v.place(from))
	for _, o := range v.spans {
		if int(o.from) > from && int(o.from) < to {
			s.b.spans = append(s.b.spans[:min(len(s.b.spans), maxSpans-1)], span{int32(s.b.size() - to + int(o.from)), o.at})
		}
	}
	switch {
	case v.open == "":
		s.b.maybe, s.b.option = doubt(s.b.maybe, s.b.option, v.maybe, v.option)
	case strings.Contains(part, v.open):
		s.b.unknown(v.open)
		s.b.maybe, s.b.option = doubt(s.b.maybe, s.b.option, v.maybe, v.option)
	case strings.ContainsAny(part, "$`<"):
		s.b.unknown(part)
	}
}

// braced reads ${...}.
func (s *shell) braced(start int, whole, quoted bool) {
	end := closing(s.src[s.pos+2:], '{', '}')
	if end < 0 {
		s.unknown(len(s.src) - s.pos)
		return
	}
	inner, all := s.src[s.pos+2:s.pos+2+end], end+3
	n := cmp.Or(nameLength(inner), parameterLength(inner))
	name, op := inner[:n], inner[n:]
	v, ok := s.lookup(name)
	plain := op == "" || strings.HasPrefix(strings.TrimPrefix(op, ":"), "?")
	list := op == "[@]" || op == "[*]"
	switch {
	case name == "@" || name == "*":
		s.allArguments(start, all, name[0], op, quoted)
	case n == 0, !ok && (plain || list):
		s.unknown(all)
	case plain:
		s.pos += all
		s.value(start, v.first(), whole)
	case list:
		s.pos += all
		s.list(start, v, quoted)
	default:
		s.optional = s.optional || !ok && parameterLength(name) > 0
		s.defaulted(start, all, op, v, ok, whole)
	}
}

// cutFront reads ${name#text}, ${name#*text} and ${name##*text}, all bytes long; false
// where it is something else.
func (s *shell) cutFront(start, all int, op string, v word, whole bool) bool {
	pattern, longest := strings.CutPrefix(op, "##")
	pattern, shortest := strings.CutPrefix(pattern, "#")
	pattern, any := strings.CutPrefix(pattern, "*")
	if !longest && !shortest || pattern == "" || strings.ContainsAny(pattern, "*?[]$`\\\"'") {
		return false
	}
	at := strings.Index(v.text, pattern)
	switch {
	case any && longest:
		at = strings.LastIndex(v.text, pattern)
	case !any && at > 0:
		at = -1
	}
	if at >= 0 {
		at += len(pattern)
		v = word{text: v.text[at:], at: v.at, body: v.place(at), maybe: v.maybe, option: v.option}
	}
	s.pos += all
	s.value(start, v, whole)
	return true
}

// list adds the words of an array, each a word of its own.
func (s *shell) list(start int, v variable, quoted bool) {
	for i, w := range v.words {
		if i > 0 {
			s.flush(start)
		}
		s.value(start, w, quoted)
	}
	if len(v.words) == 0 && quoted && s.b.to == s.b.from && !s.b.copied {
		s.b.any = false // "${empty[@]}" is no word at all
	}
}

// defaulted reads ${name-default}, ${name+other} and what cutFront does; other forms are not read.
func (s *shell) defaulted(start, all int, op string, v variable, ok, whole bool) {
	if ok && v.first().open == "" && s.cutFront(start, all, op, v.first(), whole) {
		return
	}
	colon := strings.HasPrefix(op, ":")
	op = strings.TrimPrefix(op, ":")
	set := ok && (!colon || v.first().text != "")
	if op == "" || strings.IndexByte("-=+", op[0]) < 0 {
		s.unknown(all)
		return
	}
	other := op[1:]
	switch {
	case set && op[0] != '+':
		s.pos += all
		s.value(start, v.first(), whole)
	case set == (op[0] == '+'):
		w := word{text: strings.Trim(other, `"'`), body: s.at(s.pos + all - 1 - len(other))}
		if strings.ContainsAny(other, "$`") {
			if w.open = s.src[s.pos : s.pos+all]; s.known(other) {
				w = s.vars.vars[strings.Trim(other, "${}")].first()
			}
		}
		s.pos += all
		s.value(start, w, whole)
	default:
		s.pos += all
	}
}

// known says whether text is $NAME or ${NAME} of a variable with a known value.
func (s *shell) known(text string) bool {
	name := strings.TrimPrefix(text, "$")
	if strings.HasPrefix(name, "{") && strings.HasSuffix(name, "}") {
		name = name[1 : len(name)-1]
	}
	v, ok := s.vars.vars[name]
	return ok && v.first().open == "" && nameLength(name) == len(name)
}

// substitution skips $(...), which is never carried out.
func (s *shell) substitution() {
	end := closing(s.src[s.pos+2:], '(', ')')
	if end < 0 {
		s.unclosed(s.pos)
		s.unknown(len(s.src) - s.pos)
		return
	}
	s.unknown(end + 3)
}

func (s *shell) backquoted() {
	s.b.plain = false
	for i := s.pos + 1; i < len(s.src); i++ {
		switch s.src[i] {
		case '\\':
			i++
		case '`':
			if strings.HasPrefix(strings.TrimLeft(s.src[s.pos+1:i], " \t"), "#") { // how scripts comment continued lines
				s.pos = i + 1
				return
			}
			s.unknown(i + 1 - s.pos)
			return
		}
	}
	s.unclosed(s.pos)
	s.unknown(len(s.src) - s.pos)
}

// closing finds the end of what was opened in front of text, or -1.
func closing(text string, open, end byte) int {
	depth, quote := 1, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quote != '\'':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == open:
			depth++
		case c == end:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}
