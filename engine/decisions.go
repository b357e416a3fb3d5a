package engine

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// verdict is how a test ends.
type verdict int8

const (
	undecided verdict = iota
	yes
	no
)

func decided(v bool) verdict {
	if v {
		return yes
	}
	return no
}

// decides works out a test in a call of a function, whose arguments are known. Of the
// text around it is not known how it is called, and so all of its branches count.
func (s *shell) decides(words []word) verdict {
	name := words[0].text
	words = slices.DeleteFunc(slices.Clone(words[1:]), func(w word) bool { return w.text == "]" || w.text == "]]" })
	if s.callDepth == 0 || !strings.HasPrefix(name, "[") && name != "test" || slices.ContainsFunc(words, func(w word) bool { return w.open != "" || w.maybe != "" }) {
		return undecided
	}
	switch len(words) {
	case 2:
		switch words[0].text {
		case "-n":
			return decided(words[1].text != "")
		case "-z":
			return decided(words[1].text == "")
		}
	case 3:
		if a, b := words[0].text, words[2].text; !strings.ContainsAny(b, "*?[") {
			switch words[1].text {
			case "=", "==":
				return decided(a == b)
			case "!=":
				return decided(a != b)
			}
			return decidesOrder(a, words[1].text, b)
		}
	}
	return undecided
}

// decidesOrder works out a test of two whole numbers.
func decidesOrder(a, operator, b string) verdict {
	x, err := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	if err != nil || err2 != nil {
		return undecided
	}
	switch operator {
	case "-eq":
		return decided(x == y)
	case "-ne":
		return decided(x != y)
	case "-gt":
		return decided(x > y)
	case "-ge":
		return decided(x >= y)
	case "-lt":
		return decided(x < y)
	case "-le":
		return decided(x <= y)
	}
	return undecided
}

// tests are commands that say yes or no: of other ones it counts that they succeed.
var tests = []string{"[", "[[", "test", "((", "grep", "egrep", "command", "which", "type", "false"}

// follow keeps what a command means for the frame around it and for the command that && or
// || joins to it.
func (s *shell) follow(words []word) {
	if n := len(s.frames); n > 0 && len(words)+len(s.sets) > 0 {
		s.frames[n-1].begun = true
	}
	before := s.verdict
	s.verdict, s.absent = undecided, ""
	test := len(words) > 0 && slices.Contains(tests, words[0].text)
	switch {
	case test:
		s.asks(words)
		s.test(words, before)
	case s.guarded:
		if len(words) == 0 && len(s.sets) > 0 {
			s.verdict = yes // Settings do not fail.
		}
		s.verdict = before.and(s.verdict, s.either)
	}
	s.tested = test || s.guarded
}

// test keeps how a test ends, with the one before where they are joined.
func (s *shell) test(words []word, before verdict) {
	s.verdict, s.absent = s.decides(words), absent(words)
	if s.negated {
		s.verdict, s.absent = s.verdict.not(), ""
	}
	switch {
	case !s.joined:
		return
	case s.either && s.lacking == "":
		s.absent = ""
	case !s.either:
		s.absent = cmp.Or(s.absent, s.lacking)
	}
	s.verdict = before.and(s.verdict, s.either)
}

func (v verdict) not() verdict {
	switch v {
	case yes:
		return no
	case no:
		return yes
	case undecided:
	}
	return undecided
}

// and is the verdict on two tests, or on either of them.
func (v verdict) and(other verdict, either bool) verdict {
	end := no
	if either {
		end = yes
	}
	switch {
	case v == end || other == end:
		return end
	case v == undecided || other == undecided:
		return undecided
	}
	return v
}

// taken says of a branch whose test is read whether it is.
func (f *frame) taken(v verdict) {
	switch {
	case f.settled || f.unsure:
		f.dead = f.settled
	case v == undecided:
		f.unsure = true
	default:
		f.dead, f.settled = v == no, v == yes
	}
}

// enters says of a loop in a call whether its test lets it in.
func (s *shell) enters() {
	f := s.innermost("loop")
	if f == nil || f.from == 0 || s.verdict == undecided {
		return
	}
	f.dead = s.verdict == no
	f.settled = f.settled || s.verdict == yes
	f.args = len(s.vars.vars[arguments].words)
}

// again goes back to the test of a loop that has taken arguments away.
func (s *shell) again() bool {
	f := s.innermost("loop")
	if f != nil && f.skips {
		f.dead, f.skips = false, false
	}
	if f == nil || f.dead || !f.settled || len(s.vars.vars[arguments].words) >= f.args || s.over {
		return false
	}
	if s.rounds++; s.rounds > maxCalls {
		s.unread(s.at(s.pos), "loops over arguments are read %d times in all: this one is not to its end", maxCalls)
		s.over = true
		return false
	}
	s.pos = f.from
	return true
}

// wild are the characters by which a pattern may stand for other texts than itself.
const wild = "*?[(\\$`\"'"

// matches says of a branch of a case whether its patterns are those of what is asked for.
func (f *frame) matches(patterns string) {
	f.others = f.others || strings.Trim(patterns, " \t(") == "*"
	v := no
	for p := range strings.SplitSeq(patterns, "|") {
		v = v.and(matches(f.subject, strings.Trim(p, " \t(")), true)
	}
	f.taken(v)
}

func matches(subject word, pattern string) verdict {
	bare := strings.Trim(pattern, `"'`)
	switch quoted := bare != pattern; {
	case subject.open != "", quoted && strings.ContainsAny(bare, wild), strings.ContainsAny(bare, strings.Trim(wild, "*?")):
		return undecided
	}
	const slash = "\x00" // which a star takes too, but not that of a path
	ok, err := path.Match(strings.ReplaceAll(bare, "/", slash), strings.ReplaceAll(subject.text, "/", slash))
	if err != nil {
		return undecided
	}
	return decided(ok)
}

// dead says that a branch is read which is not taken.
func (s *shell) dead() bool {
	return slices.ContainsFunc(s.frames, func(f frame) bool { return f.dead })
}

// plainReference is a variable by itself.
var plainReference = regexp.MustCompile(`^\$([A-Za-z_]\w*|\{[A-Za-z_]\w*(:?-)?\})$`)

// absent is what a test asks for and the text nowhere sets, if it fails without: whether
// a variable has a value, or is one of the words for yes.
func absent(words []word) string {
	if slices.ContainsFunc(words, func(w word) bool { return w.text == "!" }) {
		return ""
	}
	for i, w := range words {
		switch asked := i > 0 && words[i-1].text == "-n"; {
		case asked && w.open == "" && w.text == "" && !w.plain: // ${NAME:-}
			return "what is tested"
		case w.open == "" || w.maybe != "" || w.open != w.text || !plainReference.MatchString(w.open):
		case asked, switchedOn(words[i+1:]):
			return w.open
		}
	}
	return ""
}

// switchedOn says that a test goes on by comparing with one of the words for yes.
func switchedOn(words []word) bool {
	return len(words) > 1 && (words[0].text == "=" || words[0].text == "==") &&
		slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(words[1].text))
}
