package engine

import (
	"regexp"
	"slices"
	"strings"
)

// maxFrames bounds how deep if, case and loops are told apart.
const (
	maxFrames      = 8
	maxFramesInAll = 128
	maxMerged      = 128 // words of arrays that branches set apart
)

// frame is an if, a case or a loop that is being read. What it sets is merged where it
// ends: a variable that has other values on other ways through is not known then.
type frame struct {
	kind    string // "if", "case", "loop", "group"
	reads   bool   // of a case: the pattern of this branch has been read
	subject word   // of a case
	// dead says that this branch is not taken, settled that one is for sure, and unsure
	// that one may be whose test is not known.
	dead, settled, unsure bool
	// from is where the test of a loop begins, which is read again while it is settled and
	// takes arguments away: args are those that there were.
	from, args int
	skips      bool // the rest of this round of the loop
	// test and either say when a group of commands runs, braces how many other groups are
	// open in the frame.
	test     verdict
	either   bool
	braces   int
	absent   string // variable that the text does not set, without which the first branch is not taken
	branches int
	begun    bool // there is a command in this branch
	others   bool // one of the branches is always taken
	asked    []string
	before   map[string]variable // values in front of the frame; the zero one is unset
	names    []string            // of before, in order
	set      map[string]bool     // in this branch
	ends     map[string]ending
}

// ending is what the branches that set a variable leave it at.
type ending struct {
	value    variable
	branches int
}

// keyword carries out a reserved word of the shell.
func (s *shell) keyword(word string) {
	switch word {
	case "if":
		s.open("if")
	case "while", "until":
		s.open("loop")
		if f := s.innermost("loop"); f != nil && word == "while" {
			f.from = s.pos
		}
	case "do":
		s.enters()
	case "elif":
		s.branch()
	case "then":
		s.then()
	case "else":
		s.otherwise()
	case "done":
		if !s.again() {
			s.close()
		}
	case "fi", "esac":
		s.close()
	case "!":
		s.negated = !s.negated
	case "{":
		s.openGroup()
	case "}":
		s.closeGroup()
	}
}

// then begins the branch of the test that was read.
func (s *shell) then() {
	f := s.innermost("if")
	if f == nil {
		return
	}
	if f.branches == 0 && s.tested {
		f.absent = s.absent
	}
	f.taken(s.verdict)
}

// otherwise begins the branch that is taken where no other one is.
func (s *shell) otherwise() {
	s.branch()
	if f := s.innermost("if"); f != nil {
		f.others = true
		f.taken(yes)
	}
}

// innermost is the frame around what is read, nil where it is of another kind.
func (s *shell) innermost(kind string) *frame {
	if n := len(s.frames); s.unframed == 0 && n > 0 && s.frames[n-1].kind == kind {
		return &s.frames[n-1]
	}
	return nil
}

// begins carries out the words in front of a loop, of a case and of the branch of it
// that is for all else.
func (s *shell) begins(words []word) bool {
	first := words[0]
	switch {
	case first.plain && (first.text == "for" || first.text == "select"):
		s.open("loop")
	case first.plain && first.text == "case":
		s.open("case")
		s.opened(words)
	default:
		return false
	}
	return true
}

// opened keeps what a case asks for, and reads its first pattern where that is in the
// same line. Outside of calls it is not known what is asked for.
func (s *shell) opened(words []word) {
	f := s.innermost("case")
	if f == nil || len(words) < 2 {
		return
	}
	if f.subject = words[1]; s.callDepth == 0 || words[1].maybe != "" {
		f.subject.open = f.subject.text + "?"
	}
	last := words[len(words)-1]
	if last.text == "in" && last.plain {
		return
	}
	patterns := last.text
	if !last.plain && strings.ContainsAny(patterns, wild) {
		patterns = "$"
	}
	if s.src[s.pos-1] == '|' {
		line, _, _ := strings.Cut(s.src[s.pos:], "\n")
		if end := strings.IndexByte(line, ')'); end >= 0 {
			patterns += "|" + line[:end]
			s.pos += end + 1
		}
	}
	f.reads = true
	f.matches(patterns)
}

// pattern reads the words in front of a branch of a case.
func (s *shell) pattern() {
	f := s.innermost("case")
	if f == nil || f.reads {
		return
	}
	rest := pastComments(s.src[s.pos:])
	line, _, _ := strings.Cut(rest, "\n")
	end := strings.IndexByte(line, ')')
	if strings.HasPrefix(rest, "esac") || end < 0 {
		return
	}
	f.reads = true
	f.matches(line[:end])
	s.pos = len(s.src) - len(rest) + end + 1
}

func (s *shell) open(kind string) {
	if s.framed == maxFramesInAll {
		s.unread(s.at(s.pos), "there are more than %d branches and loops: what is set in this one and in others counts as if it always were", maxFramesInAll)
		s.framed++
	}
	if s.unframed > 0 || len(s.frames) == maxFrames || s.framed > maxFramesInAll {
		s.unframed++
		return
	}
	s.framed++
	s.frames = append(s.frames, frame{kind: kind})
}

// asks remembers the words of a test: what it asks for may be set already.
func (s *shell) asks(words []word) {
	if len(s.frames) == 0 {
		return
	}
	f := &s.frames[len(s.frames)-1]
	for i, w := range words {
		if i > 0 && words[i-1].text == "-z" && len(f.asked) < maxNested {
			f.asked = append(f.asked, w.text)
		}
	}
}

// changes is called in front of each change of a variable.
func (s *shell) changes(name string) {
	if len(s.frames) == 0 {
		return
	}
	f := &s.frames[len(s.frames)-1]
	if f.before == nil {
		f.before, f.set, f.ends = map[string]variable{}, map[string]bool{}, map[string]ending{}
	}
	if _, ok := f.before[name]; !ok {
		f.before[name] = s.vars.vars[name].kept()
		f.names = append(f.names, name)
	}
	f.set[name] = true
}

// branch ends a branch: the next one begins as the frame did.
func (s *shell) branch() {
	if s.unframed > 0 || len(s.frames) == 0 {
		return
	}
	f := &s.frames[len(s.frames)-1]
	for _, name := range f.names {
		if f.set[name] {
			end := f.ends[name]
			if end.value = s.vars.vars[name]; end.branches > 0 {
				end.value = s.eitherOf(f.ends[name].value, end.value, name)
			}
			end.branches++
			f.ends[name] = end
			s.vars.put(name, f.before[name])
		}
	}
	f.branches++
	f.begun, f.reads, f.dead = false, false, false
	clear(f.set)
}

// close ends the frame. A variable keeps its value where all ways through give it the
// same.
func (s *shell) close() {
	if s.unframed > 0 || len(s.frames) == 0 {
		s.unframed = max(s.unframed-1, 0)
		return
	}
	if f := s.frames[len(s.frames)-1]; f.kind != "case" || f.begun {
		s.branch()
	}
	f := s.frames[len(s.frames)-1]
	s.frames = s.frames[:len(s.frames)-1]
	leftOut := f.absent != "" && f.branches == 1
	if leftOut && len(f.names) > 0 {
		s.note(s.at(s.pos), "the text does not set %s: what is set only with it is left out", brief(f.absent))
	}
	for _, name := range f.names {
		value := f.before[name]
		if !leftOut {
			value = s.left(&f, name)
		}
		s.changes(name)
		s.vars.put(name, value)
	}
}

// left is what a frame that has ended leaves a variable at.
func (s *shell) left(f *frame, name string) variable {
	end := f.ends[name]
	switch {
	case f.settled && !f.unsure, f.others && end.branches == f.branches:
	case f.kind == "loop" && f.before[name].words == nil:
	case slices.ContainsFunc(f.asked, func(a string) bool { return strings.Contains(a, name) }):
		// A test for the variable itself is how scripts give it a value of their own.
	default:
		return s.eitherOf(end.value, f.before[name], name)
	}
	return end.value
}

// put defines a variable, or takes it away where it has no words.
func (s *scope) put(name string, v variable) {
	if v.words == nil && !v.array {
		s.unset(name)
		return
	}
	s.set(setting{name: name, value: v})
}

// eitherOf is what is known of a variable that has one of two values. Of arrays, and of
// text that has more in one of them, what both begin with is known, and the rest may be
// there; anything else is not known.
func (s *shell) eitherOf(v, other variable, name string) variable {
	n := 0
	for n < min(len(v.words), len(other.words)) && v.words[n].text == other.words[n].text {
		n++
	}
	out := variable{array: v.array || other.array, exported: v.exported || other.exported}
	longer := v.words
	if len(other.words) > len(longer) {
		longer = other.words
	}
	switch {
	case n == len(longer) && len(v.words) == len(other.words):
		return v
	case !out.array:
		out.words = []word{v.oneOf(other, name)}
		return out
	}
	all := "${" + name + "[@]}"
	if name == arguments {
		all, name = "$@", "$@"
	}
	ref := word{text: all, open: all, at: longer[n].at, spans: longer[n].origin(), maybe: name}
	if s.merged += len(longer); s.merged > maxMerged {
		out.words = []word{ref}
		return out
	}
	out.words = append(make([]word, 0, len(longer)), longer[:n]...)
	if n < min(len(v.words), len(other.words)) {
		out.words = append(out.words, ref)
		return out
	}
	for _, w := range longer[n:] {
		w.maybe, w.option = name, false
		out.words = append(out.words, w)
	}
	return out
}

// callers is a reference to what a text is called with.
var callers = regexp.MustCompile(`^\$\{?([0-9@*]|OPTARG\b)`)

// given says that the word is what the text is called with.
func (w word) given() bool { return callers.MatchString(w.open) }

// known says that the variable is set, and to what the text has.
func (v variable) known() bool { return v.words != nil && v.first().open == "" }

// oneOf is either of variables that are no arrays. Where one is what the text is called
// with, the other is what it is without.
func (v variable) oneOf(other variable, name string) word {
	w := v.first()
	switch {
	case other.first().given() && v.known():
	case w.given() && other.known():
		w = other.first()
	default:
		return w.or(other.first(), name)
	}
	w.maybe, w.option = name, true
	return w
}

func (w word) or(other word, name string) word {
	if w.text == other.text {
		return w
	}
	longer := w
	if len(other.text) > len(w.text) {
		longer = other
	}
	n := 0
	for n < min(len(w.text), len(other.text)) && w.text[n] == other.text[n] {
		n++
	}
	n = strings.LastIndexAny(w.text[:n], " \t\n") + 1
	ref := "$" + name
	spans := slices.DeleteFunc(slices.Clone(longer.origin()), func(s span) bool { return int(s.from) > n })
	return word{text: w.text[:n] + ref, open: ref, at: longer.at, spans: spans, maybe: name}
}
