package engine

import "slices"

// variable is a shell variable: its words, one unless it is an array.
type variable struct {
	words    []word
	array    bool
	exported bool
}

// first is the value of the variable where it is used without an index.
func (v variable) first() word {
	if len(v.words) == 0 {
		return word{}
	}
	return v.words[0]
}

// setting is NAME=value.
type setting struct {
	name   string
	value  variable
	append bool // NAME+=value
	at     int  // offset in the text
}

// scope holds the variables of one shell.
type scope struct {
	vars  map[string]variable
	names []string // in the order of their definition
	all   bool     // set -a: export whatever is set
}

func newScope(inherited []setting) *scope {
	s := &scope{}
	for _, i := range inherited {
		i.value.exported = true
		s.set(i)
	}
	return s
}

// set defines or extends a variable; it says false when there are too many.
func (s *scope) set(def setting) bool {
	old, ok := s.vars[def.name]
	v := def.value
	if def.append {
		v = old.plus(v)
	}
	v.exported = v.exported || old.exported || s.all
	if !ok {
		if len(s.names) == maxVariables {
			return false
		}
		s.names = append(s.names, def.name)
	}
	if s.vars == nil {
		s.vars = map[string]variable{}
	}
	s.vars[def.name] = v
	return true
}

// kept is the variable as it stays when words are added to what it is now.
func (v variable) kept() variable {
	v.words = slices.Clip(v.words)
	return v
}

func (v variable) plus(more variable) variable {
	if v.array || more.array {
		v.array = true
		v.words = append(v.words, more.words...) // arrays are no other shell's
		return v
	}
	v.words = []word{v.first().plus(more.first())}
	return v
}

func (s *scope) export(name string) {
	if v, ok := s.vars[name]; ok {
		v.exported = true
		s.vars[name] = v
	}
}

func (s *scope) unset(name string) {
	if _, ok := s.vars[name]; ok {
		delete(s.vars, name)
		s.names = slices.DeleteFunc(s.names, func(n string) bool { return n == name })
	}
}

// environment is what a program started now would be given.
func (s *scope) environment() []setting {
	var out []setting
	for _, name := range s.names {
		if v := s.vars[name]; v.exported && !v.array {
			out = append(out, setting{name: name, value: v, at: v.first().at})
		}
	}
	return out
}
