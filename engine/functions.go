package engine

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Bounds of functions: how many there may be, how often they are called, and how deep
// in each other.
const (
	maxFunctions = 64
	maxCalls     = 128
	maxCallDepth = 4
)

// function is a part of a text that is read where it is called.
type function struct {
	name   string
	src    string
	wrote  []span
	from   int // of the body in src
	to     int
	called bool
	// reading says that its body is read right now.
	reading bool
}

func (f *function) body() string { return f.src[f.from:f.to] }

// starts says that a text may start an engine.
func starts(text string) bool {
	return strings.Contains(text, "vllm") || strings.Contains(text, "sglang") || strings.Contains(text, path.Base(SimulatorBinary))
}

// definition is how the definition of a function begins, up to its body.
var definition = regexp.MustCompile(`^(?:function[ \t]+([A-Za-z_][\w-]*)[ \t]*(?:\([ \t]*\))?|([A-Za-z_][\w-]*)[ \t]*\([ \t]*\))\s*\{\s`)

// defines reads the definition of a function, of which nothing is carried out.
func (s *shell) defines() bool {
	const longest = 256
	m := definition.FindStringSubmatch(s.src[s.pos:min(s.pos+longest, len(s.src))])
	if m == nil || len(s.functions) == maxFunctions {
		return false
	}
	f := &function{name: m[1] + m[2], src: s.src, wrote: s.wrote, from: s.pos + len(m[0])}
	if f.to = bodyEnd(s.src, f.from); f.to < 0 {
		return false
	}
	s.pos = f.to + 1
	if s.functions == nil {
		s.functions = map[string]*function{}
	}
	s.functions[f.name] = f
	s.defined = append(s.defined, f)
	return true
}

// bodyEnd is where the brace closes that was opened in front of an offset; -1 for
// nowhere. Quotes, comments and here-documents may hold others.
func bodyEnd(src string, from int) int {
	depth := 1
	for i := from; i < len(src); i++ {
		switch c := src[i]; c {
		case '\\':
			i++
		case '\'', '"':
			n := quoteEnd(src[i+1:], c)
			if n < 0 {
				return -1
			}
			i += n + 1
		case '#':
			if strings.IndexByte(" \t\r\n;", src[i-1]) >= 0 {
				n := strings.IndexByte(src[i:], '\n')
				if n < 0 {
					return -1
				}
				i += n
			}
		case '<':
			i = pastHeredoc(src, i)
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// quoteEnd is where a quote ends that was opened in front of text; -1 for nowhere.
func quoteEnd(text string, quote byte) int {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote:
			return i
		}
	}
	return -1
}

// pastHeredoc is the last character of the here-document that src[at:] begins, or at
// where it begins none.
func pastHeredoc(src string, at int) int {
	rest, ok := strings.CutPrefix(src[at:], "<<")
	if !ok || strings.HasPrefix(rest, "<") {
		return at
	}
	rest = strings.TrimLeft(strings.TrimPrefix(rest, "-"), " \t")
	line, _, _ := strings.Cut(rest, "\n")
	end := strings.Trim(strings.SplitN(line, " ", 2)[0], `'"\;)`+"\r")
	if nameLength(end) != len(end) || end == "" {
		return at
	}
	_, after := heredocEnd(src, min(len(src)-len(rest)+len(line)+1, len(src)), end)
	return after - 1
}

// call reads the body of a function with the arguments of a call, if there is one of
// that name.
func (s *shell) call(words []word) bool {
	f, ok := s.functions[words[0].text]
	if !ok || !words[0].plain && words[0].open != "" {
		return false
	}
	f.called = true
	if f.reading { // which depends on a condition, that is not known
		return true
	}
	s.within(f, words[1:], s.sets)
	return true
}

// within reads a part of a text in this shell, with arguments of its own; nil are those
// of the shell.
func (s *shell) within(f *function, args []word, env []setting) {
	if s.calls++; s.calls > maxCalls || s.commands > maxCommands/2 || s.callDepth == maxCallDepth {
		if starts(f.body()) {
			s.unread(s.at(s.pos), "functions are called more often than is read (%d times, %d deep): %s was not", maxCalls, maxCallDepth, brief(f.name))
		}
		return
	}
	f.reading = true
	defer func() { f.reading = false }()
	outer := *s
	s.src, s.wrote, s.pos = f.src[:f.to], f.wrote, f.from
	s.words, s.sets, s.heredocs, s.locals = s.spare[s.callDepth][:0], nil, nil, nil
	s.tested, s.guards, s.joined, s.guarded = false, false, false, false
	s.callDepth++
	s.outside = len(s.frames)
	if args != nil {
		s.keepLocal(arguments)
		s.setArguments(slices.Clone(args))
	}
	for _, e := range env {
		s.keepLocal(e.name)
		e.value.exported = true
		s.vars.set(e)
	}
	s.run()
	for len(s.frames) > len(outer.frames) {
		s.close()
	}
	for _, l := range slices.Backward(s.locals) {
		s.changes(l.name)
		s.vars.put(l.name, l.value)
	}
	s.spare[outer.callDepth] = s.words
	outer.frames, outer.unframed = s.frames, s.unframed
	outer.functions, outer.defined = s.functions, s.defined
	*s = outer
}

// keepLocal gives a variable back its value where the function ends that is read.
func (s *shell) keepLocal(name string) {
	if s.callDepth > 0 && len(s.locals) < maxVariables {
		s.locals = append(s.locals, setting{name: name, value: s.vars.vars[name].kept()})
	}
}

// uncalled reads the functions that nothing calls and that start an engine: what calls
// them is elsewhere.
func (s *shell) uncalled() {
	for i := 0; i < len(s.defined); i++ {
		if f := s.defined[i]; !f.called && starts(f.body()) && !s.over {
			f.called = true
			s.within(f, nil, nil)
		}
	}
}
