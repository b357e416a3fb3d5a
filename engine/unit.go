package engine

import (
	"regexp"
	"strings"
)

// unitStart is the line that begins what a unit of systemd runs.
var unitStart = regexp.MustCompile(`(?m)^\s*\[Service\]\s*$`)

// unit reads a unit of systemd: what it starts, with the variables that it sets. It says
// false for a text that is none.
func (s *shell) unit() bool {
	if !unitStart.MatchString(s.src) {
		return false
	}
	var commands [][2]int
	for at := 0; at < len(s.src); {
		from, to := at, unitLine(s.src, at)
		at = to + 1
		key, _, ok := strings.Cut(s.src[from:to], "=")
		from += len(key) + 1
		switch strings.TrimSpace(key) {
		case "Environment":
			s.unitVariables(from, to)
		case "EnvironmentFile":
			s.note(s.at(from), "the file %s is not read: the variables in it are not known", brief(strings.TrimSpace(s.src[from:to])))
		case "ExecStart":
			from += len(s.src[from:to]) - len(strings.TrimLeft(s.src[from:to], " \t@-:+!|"))
			if ok && from < to && len(commands) < maxLaunches {
				commands = append(commands, [2]int{from, to})
			}
		}
	}
	all := s.src
	for _, c := range commands {
		s.src, s.pos = all[:c[1]], c[0]
		s.run()
	}
	s.src = all
	return true
}

// unitLine is where the line that begins at an offset ends, with those that continue it.
func unitLine(src string, at int) int {
	for at < len(src) {
		n := strings.IndexByte(src[at:], '\n')
		if n < 0 {
			return len(src)
		}
		at += n
		if !strings.HasSuffix(strings.TrimRight(src[:at], "\r"), `\`) {
			return at
		}
		at++
	}
	return len(src)
}

// unitVariables takes the settings of src[from:to], each a word, with quotes around all
// of it or around the value.
func (s *shell) unitVariables(from, to int) {
	all := s.src
	s.src, s.pos, s.words = all[:to], from, s.words[:0]
	for {
		s.blanks()
		before := s.pos
		if s.pos >= len(s.src) {
			break
		}
		if s.scan(true); s.pos == before {
			s.pos++
		}
	}
	for _, w := range s.words {
		if n := nameLength(w.text); n > 0 && n < len(w.text) && w.text[n] == '=' {
			set := w.setting(n)
			set.value.exported = true
			s.vars.set(set)
		}
	}
	s.src, s.words = all, s.words[:0]
}
