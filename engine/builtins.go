package engine

import (
	"slices"
	"strings"
)

// end carries a command out, as far as that means something here.
func (s *shell) end() {
	words := s.words
	known := s.verdict
	s.follow(words)
	if len(words) > 0 && prompt(words[0].text) {
		words = words[1:]
	}
	if s.skips(known) {
		if len(words) > 0 {
			s.begins(words)
		}
		return
	}
	s.saves(words)
	if len(words) == 0 {
		s.assign(false)
		return
	}
	s.carryOut(words)
}

// skips says that a command is not run, by the branch that it is in or by the test before
// it, which may be known.
func (s *shell) skips(test verdict) bool {
	if !s.guarded || test == undecided {
		return s.dead()
	}
	s.guarded = false
	return s.dead() || (test == yes) == s.either
}

func (s *shell) carryOut(words []word) {
	if s.commands++; s.commands > maxCommands {
		s.unread(words[0].at, "there are more commands than are read (%d)", maxCommands)
		s.over = true
		return
	}
	switch name := words[0].text; {
	case s.begins(words):
	case s.call(words):
	case slices.Contains(declares, name):
		s.declare(words)
	case name == "unset":
		s.unset(words[1:])
	case name == "set":
		s.options(words[1:])
	case name == "getopts":
		s.optional = true
	case name == "return":
		s.returns()
	case name == "break" || name == "continue":
		s.leaves(name)
	case name == "shift":
		s.shift(words[1:])
	case s.setsUnknown(words):
	case name == "source" || name == ".":
		s.source(words)
	default:
		command{shell: s, words: words, env: s.sets, image: s.image, host: s.host, stdin: s.stdin}.start()
	}
}

var reserved = []string{"{", "}", "!", "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "esac"}

// prompt says whether the word is the end of a prompt that was pasted too.
func prompt(text string) bool {
	return text == "$" || text == "%" || text == ">" ||
		strings.Contains(text, "@") && (strings.HasSuffix(text, "$") || strings.HasSuffix(text, "#"))
}

func (s *shell) assign(exported bool) {
	if s.guarded {
		s.open("if")
		if f := s.innermost("if"); f != nil && !s.either {
			f.absent = s.lacking
		}
		defer s.close()
	}
	for _, set := range s.sets {
		s.changes(set.name)
		set.value.exported = exported
		if set.append {
			if s.expanded += len(s.vars.vars[set.name].first().text); s.expanded > maxExpanded {
				continue
			}
		}
		if !s.vars.set(set) {
			s.note(set.at, "more than %d variables are set: %s was not read", maxVariables, brief(set.name))
		}
	}
}

func (s *shell) unset(words []word) {
	for _, w := range words {
		if n := nameLength(w.text); strings.HasPrefix(w.text[n:], "[") {
			s.forgets(w.text[:n])
			continue
		}
		s.changes(w.text)
		s.vars.unset(w.text)
	}
}

// source reads a file of the text in this shell.
func (s *shell) source(words []word) {
	if len(words) < 2 {
		return
	}
	d := s.written(words[1].text)
	if d == nil {
		if strings.ContainsAny(words[1].text, "./$") {
			s.note(words[0].at, "the file %s is not read: what it sets is not known", brief(words[1].text))
		}
		return
	}
	d.read = true
	var args []word
	if len(words) > 2 {
		args = words[2:]
	}
	s.within(&function{name: d.file, src: d.text.text, wrote: d.text.origin(), to: len(d.text.text)}, args, nil)
}

func (s *shell) declare(words []word) {
	exported, global := words[0].text == "export", words[0].text == "export" || words[0].text == "readonly"
	for _, w := range words[1:] {
		flags := strings.HasPrefix(w.text, "-")
		exported = exported || flags && strings.Contains(w.text, "x")
		global = global || flags && strings.Contains(w.text, "g")
	}
	if !global && s.callDepth > 0 {
		s.declareLocal(words[1:])
	}
	s.assign(exported)
	for _, w := range words[1:] {
		if exported {
			s.vars.export(w.text)
		}
	}
}

// declareLocal keeps the variables of a function apart from those around it.
func (s *shell) declareLocal(words []word) {
	for _, set := range s.sets {
		s.keepLocal(set.name)
	}
	for _, w := range words {
		if n := nameLength(w.text); n > 0 && n == len(w.text) {
			s.keepLocal(w.text)
			s.changes(w.text)
			s.vars.unset(w.text)
		}
	}
}

func (s *shell) options(words []word) {
	for i, w := range words {
		name := ""
		if i+1 < len(words) {
			name = words[i+1].text
		}
		switch {
		case w.text == "--":
			s.setArguments(words[i+1:])
			return
		case i == 0 && !strings.HasPrefix(w.text, "-") && !strings.HasPrefix(w.text, "+"):
			s.setArguments(words)
			return
		case w.text == "-o" && name == "allexport", strings.HasPrefix(w.text, "-") && strings.Contains(w.text, "a"):
			s.vars.all = true
		case w.text == "+a":
			s.vars.all = false
		}
	}
}
