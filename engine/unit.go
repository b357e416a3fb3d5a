package engine

import (
	"regexp"
	"strings"
)

// unitStart is the line that begins what a unit of systemd, a container of podman in one,
// or a program of supervisord runs.
var unitStart = regexp.MustCompile(`(?m)^\s*\[(Service|Container|program:[^\]]*)\]\s*$`)

// unit reads such a text: what it starts, with the variables that it sets. It says false
// for a text that is none.
func (s *shell) unit() bool {
	if !unitStart.MatchString(s.src) {
		return false
	}
	var commands [][2]int
	var image word
	for at := 0; at < len(s.src); {
		from, to := at, unitLine(s.src, at)
		at = to + 1
		key, _, _ := strings.Cut(s.src[from:to], "=")
		from = min(from+len(key)+1, to)
		if s.over {
			return true
		}
		switch strings.TrimSpace(key) {
		case "Environment", "environment":
			s.unitVariables(from, to)
		case "EnvironmentFile":
			s.note(s.at(from), "the file %s is not read: the variables in it are not known", brief(strings.TrimSpace(s.src[from:to])))
		case "Image":
			image = word{text: strings.TrimSpace(s.src[from:to]), at: s.at(from)}
		case "ExecStart", "Exec", "command":
			from += len(s.src[from:to]) - len(strings.TrimLeft(s.src[from:to], " \t@-:+!|"))
			if strings.TrimSpace(key) == "Exec" { // arguments of the image, which may begin with a dash
				from -= len(s.src[:from]) - len(strings.TrimRight(s.src[:from], "-"))
			}
			if from < to && len(commands) < maxLaunches {
				commands = append(commands, [2]int{from, to})
			}
		}
	}
	all := s.src
	for _, c := range commands {
		s.src, s.pos = all[:c[1]], c[0]
		if image.text == "" {
			s.run()
			continue
		}
		started := command{shell: s, image: image.text, env: s.vars.environment(), alone: true}
		started.enterContainer(nil, s.unitWords(c[0], c[1]), image)
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

// unitWords are the words of src[from:to].
func (s *shell) unitWords(from, to int) []word {
	all := s.src
	s.src, s.pos, s.words = all[:to], from, nil
	words := s.rest(true)
	s.src, s.words = all, nil
	return words
}

// unitVariables takes the settings of src[from:to]: each a word, with quotes around all
// of it or around the value, or with commas between them.
func (s *shell) unitVariables(from, to int) {
	for _, w := range s.unitWords(from, to) {
		for w.text != "" {
			n := nameLength(w.text)
			if !s.setsMore(s.at(from)) {
				return
			}
			if n == 0 || n == len(w.text) || w.text[n] != '=' {
				return
			}
			one, rest := w, ""
			if m := anotherSetting.FindStringIndex(w.text); m != nil {
				one.text, rest = w.text[:m[0]], w.text[m[0]+1:]
			}
			set := one.setting(n)
			set.value.exported = true
			s.vars.set(set)
			w.text = rest
		}
	}
}

// anotherSetting is how a further setting begins behind a comma.
var anotherSetting = regexp.MustCompile(`,[A-Za-z_]\w*=`)
