package engine

import (
	"slices"
	"strconv"
	"strings"
)

// arguments is the variable that holds what $1 and the following stand for. It is set
// where the text says how a part of it is called: in a function, behind bash -c, and
// after set --.
const arguments = "@"

// lookup is the variable, or the argument, of a name.
func (s *shell) lookup(name string) (variable, bool) {
	if name == "" || name[0] < '0' || name[0] > '9' {
		v, ok := s.vars.vars[name]
		return v, ok
	}
	args, ok := s.vars.vars[arguments]
	n, err := strconv.Atoi(name)
	switch {
	case !ok || err != nil || n < 1 || slices.ContainsFunc(args.words[:min(n-1, len(args.words))], word.several):
		return variable{}, false
	case n > len(args.words):
		return variable{}, true
	}
	return variable{words: args.words[n-1 : n]}, true
}

// several says that the word may be any number of words.
func (w word) several() bool {
	return w.open != "" && (w.open == w.text || strings.Contains(w.open, "@") || strings.Contains(w.open, "*"))
}

// parameterLength is that of the argument's name at the beginning of text, or 0.
func parameterLength(text string) int {
	if text != "" && (text[0] == '@' || text[0] == '*') {
		return 1
	}
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}

// special reads $1, $@, $* and $#, where name is the character after the dollar sign.
func (s *shell) special(start int, name byte, whole, quoted bool) {
	args, ok := s.vars.vars[arguments]
	switch {
	case name == '@' || name == '*':
		s.allArguments(start, 2, name, "", quoted)
	case name == '#' && ok && !slices.ContainsFunc(args.words, word.several):
		s.b.add(s.src, strconv.Itoa(len(args.words)), s.at(s.pos))
		s.pos += 2
	default:
		v, ok := s.lookup(string(name))
		if !ok {
			s.unknown(2)
			return
		}
		s.pos += 2
		s.value(start, v.first(), whole)
	}
}

// allArguments reads $@, $*, ${@} and ${@:2}, which is all bytes long.
func (s *shell) allArguments(start, all int, name byte, op string, quoted bool) {
	args, ok := s.vars.vars[arguments]
	if from, err := strconv.Atoi(strings.TrimPrefix(op, ":")); err == nil && strings.HasPrefix(op, ":") && from > 0 {
		args.words = args.words[min(from-1, len(args.words)):]
		op = ""
	}
	if !ok && op == "" && s.callDepth == 0 && s.optional {
		s.note(s.at(s.pos), "%s is left out: the text does not say what it is called with", s.src[s.pos:s.pos+all])
		ok = true
	}
	if s.passed += len(args.words); !ok || op != "" || s.passed > maxWords {
		s.unknown(all)
		return
	}
	s.pos += all
	if name == '@' || !quoted {
		s.list(start, args, quoted)
		return
	}
	for i, w := range args.words {
		if i > 0 {
			s.b.add(s.src, " ", s.at(s.pos))
		}
		s.value(start, w, true)
	}
}

// setArguments gives the text other arguments.
func (s *shell) setArguments(words []word) {
	s.changes(arguments)
	if !s.stores(len(words), s.at(s.pos)) {
		return
	}
	s.vars.set(setting{name: arguments, value: variable{words: slices.Clone(words), array: true}})
}

// shift takes arguments away, as many as its own argument says.
func (s *shell) shift(words []word) {
	args, ok := s.vars.vars[arguments]
	if !ok {
		s.optional = true
		return
	}
	n := 1
	if len(words) > 0 {
		var err error
		if n, err = strconv.Atoi(words[0].text); err != nil {
			n = len(args.words) + 1
		}
	}
	switch {
	case len(words) > 0 && words[0].open != "", slices.ContainsFunc(args.words[:min(max(n, 0), len(args.words))], word.several):
		s.changes(arguments)
		s.vars.unset(arguments)
	case n > 0 && n <= len(args.words): // else it fails, and takes none
		s.setArguments(args.words[n:])
	}
}
