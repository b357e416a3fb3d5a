package engine

import (
	"encoding/json"
	"slices"
	"strings"
)

// shell reads a text as a POSIX shell with bash's arrays and quotes would, without
// doing any of it.
type shell struct {
	*reader
	src   string
	pos   int
	wrote []span // where src was written
	depth int    // shells around this one
	vars  *scope
	image string // in a container of this image
	host  bool   // on the host's network

	words     []word // of the command that is read
	sets      []setting
	heredocs  []string // ends of here-documents that begin at the next line
	frames    []frame
	unframed  int     // frames that are too deep to be told apart
	tested    bool    // the command before was a test
	guards    bool    // && or || is behind the command: the next one runs only if this one says so
	instead   bool    // only if this one fails
	joined    bool    // && or || is between the command and the one before
	guarded   bool    // the command runs only if a test before it says so
	either    bool    // only if that one fails
	negated   bool    // the command follows !
	verdict   verdict // of the test before
	absent    string  // variable that this test asks for and that the text does not set
	lacking   string  // the same of the test before
	continued int     // where the line begins that a backslash continued last; -1 none
	broken    broken  // where a shell would end the command that is read
	braces    int     // failed looks for JSON without quotes

	functions map[string]*function
	defined   []*function // in the order of their definition
	callDepth int
	outside   int       // frames around the function that is read
	locals    []setting // values before the function that is read
	target    string    // file that the command writes
	stdin     *document // what the command reads
	// documentsTo is the end of the last here-document that this line begins.
	documentsTo int

	b wordBuilder
}

// broken is where a shell ends a command that goes on below, and why.
type broken struct {
	at   int // offset in the pasted text
	text string
}

// at is the offset in the pasted text.
func (s *shell) at(pos int) int { return locate(s.wrote, pos) }

// take adds src[from:to] to the word.
func (s *shell) take(from, to int) { s.b.source(s.src, from, to, s.at(from)) }

func (s *shell) run() {
	for !s.over && s.command() {
		continue
	}
}

// all reads the text as what it is.
func (s *shell) all() {
	if !s.unit() && !s.manifest() && !s.fences() {
		s.run()
		s.uncalled()
	}
}

// command reads one simple command and has it carried out. It says false at the
// end of the text.
func (s *shell) command() bool {
	s.words, s.sets = s.words[:0], s.sets[:0]
	s.broken, s.continued = broken{}, -1
	s.target, s.stdin = "", nil
	s.joined, s.guarded, s.guards, s.lacking = s.guards, s.guards && (s.tested || s.instead), false, s.absent
	s.either, s.negated = s.instead, false
	s.fence()
	s.pattern()
	for {
		s.blanks()
		if s.pos >= len(s.src) {
			s.end()
			return false
		}
		c := s.src[s.pos]
		switch {
		case c == '#':
			from := s.pos
			s.comment()
			s.resume(from)
		case placeholderLength(s.src[s.pos:]) > 0:
			s.word()
		case c == '<', c == '>', c == '&' && strings.HasPrefix(s.src[s.pos:], "&>"):
			s.redirect()
		case len(s.words)+len(s.sets) == 0 && s.passes(c):
		case strings.IndexByte("\n;&|()", c) >= 0:
			s.operator(c)
			s.end()
			return true
		case len(s.words)+len(s.sets) == 0 && s.defines():
		default:
			s.word()
		}
	}
}

// passes reads what is in front of a command's words and does not end it: the end of a line
// that && or || joins to the next, and ((...)).
func (s *shell) passes(c byte) bool {
	if c == '\n' && s.joined {
		s.operator(c)
		return true
	}
	return c == '(' && s.counts()
}

// blanks skips blanks and continued lines.
func (s *shell) blanks() {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; c {
		case ' ', '\t', '\r':
			s.pos++
		case '\\':
			rest := strings.TrimLeft(s.src[s.pos+1:], " \t\r")
			skipped := len(s.src) - len(rest)
			if rest != "" && rest[0] != '\n' || rest == "" && skipped == s.pos+1 {
				return
			}
			if strings.Trim(s.src[s.pos+1:skipped], "\r") != "" {
				s.broken = broken{s.at(s.pos), "the backslash is followed by a blank, so the line is not continued: the engine is given the blank, and nothing of what follows"}
			}
			s.pos = min(skipped+1, len(s.src))
			s.continued = s.pos
		default:
			return
		}
	}
}

// resume goes on after a comment, which begins at an offset, among continued lines that are flags. A shell ends the
// command there, which is hardly what was meant.
func (s *shell) resume(from int) {
	if s.continued < 0 || len(s.words) == 0 || strings.Contains(s.src[s.continued:s.pos], "\n") {
		return
	}
	at, rest := s.pos, pastComments(s.src[s.pos:])
	if next := len(s.src) - len(rest); strings.HasPrefix(rest, "-") && strings.Count(s.src[at:next], "\n") < 2*maxNested {
		s.broken = broken{s.at(from), "this comment ends the command: the engine is given nothing of what follows"}
		s.pos = next
		s.continued = next
	}
}

// pastComments is a text without the blank lines and the comments that it begins with.
func pastComments(text string) string {
	text = strings.TrimLeft(text, " \t\r\n")
	for range maxNested {
		if !strings.HasPrefix(text, "#") {
			break
		}
		_, text, _ = strings.Cut(text, "\n")
		text = strings.TrimLeft(text, " \t\r\n")
	}
	return text
}

// fence skips the line that begins or ends a block of code in a page of text.
func (s *shell) fence() {
	rest := strings.TrimLeft(s.src[s.pos:], " \t\r")
	if !strings.HasPrefix(rest, "```") {
		return
	}
	at := len(s.src) - len(rest)
	line, _, _ := strings.Cut(rest, "\n")
	if name, ok := strings.CutPrefix(strings.TrimSpace(line), "```"); !ok || strings.ContainsAny(name, "` \t$") {
		return
	}
	if s.depth == 0 && len(s.heredocs) == 0 {
		s.pos = at + len(line)
	}
}

func (s *shell) comment() {
	if i := strings.IndexByte(s.src[s.pos:], '\n'); i >= 0 {
		s.pos += i
		return
	}
	s.pos = len(s.src)
}

func (s *shell) operator(c byte) {
	s.pos++
	switch next := s.pos < len(s.src) && s.src[s.pos] == c; {
	case next && c == ';' && len(s.frames) > 0 && s.frames[len(s.frames)-1].kind == "case":
		s.pos++
		s.end()
		s.words, s.sets = s.words[:0], s.sets[:0]
		s.branch()
	case next && (c == '&' || c == '|'):
		s.pos++
		s.guards, s.instead = true, c == '|'
	}
	if c == '\n' {
		for _, end := range s.heredocs {
			s.skipHeredoc(end)
		}
		s.heredocs = nil
	}
}

func (s *shell) skipHeredoc(end string) {
	_, s.pos = heredocEnd(s.src, s.pos, end)
}

// redirect skips a redirection and its target, and remembers here-documents.
func (s *shell) redirect() {
	from := s.pos
	for s.pos < len(s.src) && strings.IndexByte("<>&|", s.src[s.pos]) >= 0 {
		s.pos++
	}
	op := s.src[from:s.pos]
	if op == "<<" && s.pos < len(s.src) && s.src[s.pos] == '-' {
		s.pos++
	}
	s.blanks()
	before := len(s.words)
	if s.pos < len(s.src) && strings.IndexByte("\n;|()", s.src[s.pos]) < 0 {
		s.scan(true)
	}
	if len(s.words) == before {
		return
	}
	w := s.words[before]
	s.words = s.words[:before]
	switch {
	case op == "<<" && len(s.heredocs) < maxNested:
		s.heredocs = append(s.heredocs, w.text)
		s.document(w.text, !w.plain)
	case op == "<":
		s.stdin = s.written(w.text)
	case op == ">" || op == ">>":
		s.target = w.text
	}
}

// word reads the next word, or a variable that is set in front of the command.
func (s *shell) word() {
	if len(s.words) == 0 || slices.Contains(declares, s.words[0].text) {
		if s.assignment() {
			return
		}
	}
	s.scan(false)
	if len(s.words) == 1 && len(s.sets) == 0 && s.words[0].plain && slices.Contains(reserved, s.words[0].text) {
		s.keyword(s.words[0].text)
		s.words = s.words[:0]
	}
}

var declares = []string{"export", "declare", "typeset", "local", "readonly"}

// assignment reads NAME=value, NAME+=value or NAME=(words).
func (s *shell) assignment() bool {
	n := nameLength(s.src[s.pos:])
	rest := s.src[s.pos+n:]
	if n == 0 || !strings.HasPrefix(rest, "=") && !strings.HasPrefix(rest, "+=") {
		return false
	}
	set := setting{name: s.src[s.pos : s.pos+n], append: rest[0] == '+', at: s.at(s.pos)}
	s.pos += n + strings.IndexByte(rest, '=') + 1
	before := len(s.words)
	if s.pos < len(s.src) && s.src[s.pos] == '(' {
		s.pos++
		s.array()
		set.value.array = true
	} else if s.pos < len(s.src) && strings.IndexByte(" \t\r\n;&|)", s.src[s.pos]) < 0 {
		s.scan(true)
	}
	if kept := s.words[before:]; s.stores(len(kept), set.at) {
		set.value.words = slices.Clone(kept)
	}
	s.words = s.words[:before]
	s.sets = s.also(s.sets, set)
	return true
}

// also adds a setting, as long as the text has not too many.
func (r *reader) also(list []setting, one setting) []setting {
	if r.setsMore(one.at) {
		return append(list, one)
	}
	return list
}

// setsMore counts a setting; false where the text has too many.
func (r *reader) setsMore(at int) bool {
	if r.settings++; r.settings <= maxSettings {
		return true
	}
	if !r.over {
		r.unread(at, "variables are set more often than is read (%d times)", maxSettings)
	}
	r.over = true
	return false
}

// stores counts words of variables; false where the text has too many.
func (r *reader) stores(words, at int) bool {
	if r.stored += words; r.stored <= maxArgs {
		return true
	}
	if r.stored-words <= maxArgs {
		r.unread(at, "variables have more words than are read (%d)", maxArgs)
	}
	r.over = true
	return false
}

// array reads words up to the closing parenthesis.
func (s *shell) array() {
	for {
		s.blanks()
		if s.pos >= len(s.src) {
			return
		}
		switch c := s.src[s.pos]; {
		case c == ')':
			s.pos++
			return
		case c == '#':
			s.comment()
		case strings.IndexByte("\n;&|(<>", c) >= 0 && placeholderLength(s.src[s.pos:]) == 0:
			s.pos++
		default:
			s.scan(false)
		}
	}
}

// nameLength is that of the variable name at the beginning of text, or 0.
func nameLength(text string) int {
	for i := range len(text) {
		c := text[i]
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(text)
}

// bareJSON takes JSON that somebody forgot to quote, as in a list of arguments.
func (s *shell) bareJSON() bool {
	const most, tries = 8 << 10, 8
	if s.braces == tries || !strings.HasPrefix(s.src[s.pos:], `{"`) {
		return false
	}
	depth, quoted := 0, false
	for i := s.pos; i < min(len(s.src), s.pos+most); i++ {
		switch c := s.src[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && c == '{':
			depth++
		case !quoted && c == '}':
			if depth--; depth > 0 {
				continue
			}
			if !json.Valid([]byte(s.src[s.pos : i+1])) {
				s.braces++
				return false
			}
			s.note(s.at(s.pos), "JSON without quotes: a shell would take its quotes away, write '{...}'")
			s.b.plain = false
			s.take(s.pos, i+1)
			s.pos = i + 1
			return true
		}
	}
	s.braces++
	return false
}
