package engine

import (
	"regexp"
	"strings"
)

// forgets makes a variable unknown: a command gives it a value that is not worked out.
func (s *shell) forgets(name string) {
	if name == "" {
		return
	}
	s.changes(name)
	v := s.vars.vars[name]
	ref := "$" + name
	if v.array {
		ref = "${" + name + "[@]}"
	}
	s.vars.set(setting{name: name, value: variable{words: []word{{text: ref, open: ref, at: s.at(s.pos)}}, array: v.array}})
}

// element is the array of which a word sets one, as A[0]=x does; "" for another word.
func element(text string) string {
	n := nameLength(text)
	index, value, ok := strings.Cut(text[n:], "]")
	if n == 0 || !ok || !strings.HasPrefix(index, "[") || !strings.HasPrefix(strings.TrimPrefix(value, "+"), "=") {
		return ""
	}
	return text[:n]
}

// setsUnknown forgets the variables that a command sets; false for a command that sets none.
func (s *shell) setsUnknown(words []word) bool {
	switch name := words[0].text; name {
	case "read", "mapfile", "readarray", "let":
	case "printf":
		if len(words) < 3 || words[1].text != "-v" {
			return false
		}
		words = words[1:3]
	default:
		array := element(name)
		s.forgets(array)
		return array != ""
	}
	for _, w := range words[1:] {
		s.forgets(w.text[:nameLength(w.text)])
	}
	return true
}

// counted is a variable that an arithmetic expression sets.
var counted = regexp.MustCompile(`(?:\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%&|^]?=(?:[^=]|$))`)

// counts reads ((...)), which sets variables and is a test; false for something else.
func (s *shell) counts() bool {
	line, _, _ := strings.Cut(s.src[s.pos:min(len(s.src), s.pos+maxArithmetic)], "\n")
	end := strings.Index(line, "))")
	if !strings.HasPrefix(line, "((") || end < 0 {
		return false
	}
	if !s.dead() {
		for _, m := range counted.FindAllStringSubmatch(line[:end], -1) {
			s.forgets(m[1] + m[2])
		}
	}
	s.words = append(s.words, word{text: "((", at: s.at(s.pos), plain: true})
	s.pos += end + len("))")
	return true
}
