package engine

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pdpool/pdpool/kvlayout"
)

// Bounds of ParseCommands: a text of MaxText bytes costs less than 1 MiB.
const (
	MaxText      = 64 << 10  // bytes of a text
	maxExpanded  = 128 << 10 // bytes that variables add to it
	maxWords     = 1024      // words of one command
	maxArgs      = 2048      // arguments of all launches
	maxCommands  = 768
	maxLaunches  = 8
	maxVariables = 512
	maxSettings  = 512 // settings of variables, also of the same one
	maxNested    = 16  // texts inside the text (bash -c)
	maxDepth     = 4   // of them in each other
	maxNotes     = 64
)

// Place is a line and a column of a text, both counted from 1, columns in characters.
type Place struct {
	Line   int `json:"line"`
	Column int `json:"column"`
}

func (p Place) String() string { return fmt.Sprintf("%d:%d", p.Line, p.Column) }

// Script is what ParseCommands found in a text, in its order.
type Script struct {
	Launches []Launch
	Notes    []Note
}

// Launch is one start of an engine.
type Launch struct {
	Engine kvlayout.Engine
	// Place is that of the program.
	Place Place
	// Image and its Version are known inside of docker, podman and kubectl run;
	// Version also from a release that the text installs. "" is unknown.
	Image, Version string
	// HostNetwork says that a container was given the network of its host.
	HostNetwork bool
	// Args follow the program: for vLLM what comes after "serve", the model included.
	Args []string
	// Env is the environment that the text gives, each name once. Variables whose
	// values the text does not have are not in it.
	Env []EnvVar

	typed     []typed // how Args were written
	envPlaces []Place // of Env
	notes     []Note  // on how it was written
	bare      bool    // there was no program
	through   string  // the program that hands its arguments to the engine, "" for none
	config    error   // why the file of --config was not read
}

// typed is how an argument was written.
type typed struct {
	place Place
	open  string // what of it the text doesn't define
	maybe string // the variable that has it in one branch only
	// option says that maybe is the variable that has it unless who calls the text gives
	// another.
	option bool
}

// ArgPlace is where the argument with the index was typed.
func (l Launch) ArgPlace(index int) Place {
	if index < 0 || index >= len(l.typed) {
		return l.Place
	}
	return l.typed[index].place
}

// ParseCommands finds the starts of vLLM, SGLang and the Simulator in what people
// paste: shell commands with quoting, continued lines, comments, variables and
// exports of the same text, "cd x &&", nohup, env and their like, bash -c, docker
// run and kubectl run. It executes nothing and reads nothing but the text. What it
// can't know, such as $(hostname) or a variable of the caller's, is left as typed
// and noted where it matters.
func ParseCommands(text string) Script { return ParseCommandsOf("", text) }

// ParseCommandsOf is ParseCommands for a text that may have an engine's arguments
// without the program: what begins with a flag, or with a model and a flag, is then
// taken for those. The engine is vLLM's or SGLang's, "" for none.
func ParseCommandsOf(kind kvlayout.Engine, text string) Script {
	r := &reader{text: text, seen: Place{1, 1}, installed: map[kvlayout.Engine]string{}, bare: kind}
	if len(text) > MaxText {
		r.unread(0, "the text has %d bytes, more than %d: nothing of it was read", len(text), MaxText)
		return r.out
	}
	s := &shell{reader: r, src: text, wrote: []span{{0, 0}}, vars: newScope(nil)}
	s.all()
	s.unopened()
	r.dangling()
	switch {
	case len(r.out.Launches) > 0 || r.refused:
	case looksYAML(text):
		r.unread(0, "no command here starts vLLM or SGLang: of what a chart or a controller makes pods of, give the pods (helm template, kubectl get pods -o yaml)")
	default:
		r.unread(0, "no command here starts vLLM or SGLang")
	}
	return r.out
}

// reader is what the shells of one text share.
type reader struct {
	text string
	out  Script

	bare     kvlayout.Engine      // whose arguments may stand without a program
	expanded int                  // bytes that variables added
	nested   int                  // texts inside the text
	stored   int                  // words of variables
	settings int                  // settings of variables
	commands int                  // that have words
	over     bool                 // a bound is reached: nothing more is read
	refused  bool                 // the text is told as what can't be read at all
	args     int                  // arguments of launches
	framed   int                  // branches and loops
	heres    int                  // texts of $(cat <<END) that were looked for
	merged   int                  // words of arrays that branches set apart
	calls    int                  // of functions
	rounds   int                  // of loops over arguments
	passed   int                  // words of "$@"
	optional bool                 // the text takes its own arguments apart, and so does without them
	spare    [maxCallDepth][]word // room for the words of commands in functions
	// documents are in the order of the text; files are those that it writes, by the last
	// part of their paths.
	documents []*document
	files     map[string]*document
	// installed is the release of an engine that the text installs.
	installed map[kvlayout.Engine]string

	// The place of an offset is counted on from the one asked before.
	seenAt int
	seen   Place
}

func (r *reader) place(at int) Place {
	at = min(at, len(r.text))
	if at < r.seenAt {
		r.seenAt, r.seen = 0, Place{1, 1}
	}
	between := r.text[r.seenAt:at]
	if i := strings.LastIndexByte(between, '\n'); i >= 0 {
		r.seen = Place{r.seen.Line + strings.Count(between, "\n"), 1}
		between = between[i+1:]
	}
	r.seen.Column += utf8.RuneCountInString(between)
	r.seenAt = at
	return r.seen
}

// dangling leaves launches without a program out where there are others: a line of
// flags by itself is what is left of a command that was not continued.
func (r *reader) dangling() {
	whole := slices.ContainsFunc(r.out.Launches, func(l Launch) bool { return !l.bare })
	if !whole {
		return
	}
	for _, l := range r.out.Launches {
		if l.bare {
			r.keep(Note{Place: l.Place, Kind: Unread, Text: notContinued})
		}
	}
	r.out.Launches = slices.DeleteFunc(r.out.Launches, func(l Launch) bool { return l.bare })
}

// brief shortens what is cited, and keeps it on one line.
func brief(s string) string {
	const most = 40
	if strings.ContainsAny(s, "\n\t\r") {
		s = strings.Join(strings.Fields(s[:min(len(s), 4*most)]), " ")
	}
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// command is what a shell would start: words after expansion, the variables set
// in front of them, and where it would run.
type command struct {
	shell   *shell
	words   []word
	env     []setting // what it is given besides; the later one of a name counts
	alone   bool      // it is given nothing else, not what the shell exports
	image   string
	host    bool      // with the network of its host
	bare    bool      // it has no program
	through string    // the program that hands its arguments to the engine
	stdin   *document // what it reads, where that is a here-document that may start an engine
}

// given is all that the command is given.
func (c command) given() []setting {
	if c.alone {
		return c.env
	}
	return append(c.shell.vars.environment(), c.env...)
}

// variable finds one that the command is given.
func (c command) variable(name string) (setting, bool) {
	for _, e := range slices.Backward(c.env) {
		if e.name == name {
			return e, true
		}
	}
	v, ok := c.shell.vars.vars[name]
	return setting{name: name, value: v, at: v.first().at}, ok && v.exported && !c.alone
}

// launch keeps a start of an engine with the words after the program.
func (c command) launch(kind kvlayout.Engine, at int, args []word) {
	r := c.shell.reader
	if len(r.out.Launches) == maxLaunches || r.args+len(args) > maxArgs {
		r.unread(at, "more engines are started than are read at a time (%d)", maxLaunches)
		r.over = true
		return
	}
	r.args += len(args)
	l := Launch{
		Engine: kind, Place: r.place(at), Image: c.image, HostNetwork: c.host, Version: VersionOf(kind, c.image),
		Args: make([]string, 0, len(args)), typed: make([]typed, 0, len(args)), bare: c.bare, through: c.through,
	}
	if c.image == "" {
		l.Version = r.installed[kind]
	}
	for _, w := range args {
		l.Args = append(l.Args, w.text)
		l.typed = append(l.typed, typed{r.place(w.at), w.open, w.maybe, w.option})
	}
	if b := c.shell.broken; b.text != "" {
		l.notes = append(l.notes, Note{Place: r.place(b.at), Kind: Stops, Text: b.text})
	}
	l.Env, l.envPlaces = c.environment()
	r.out.Launches = append(r.out.Launches, l)
}

// environment is what is known of the variables that the command was given.
func (c command) environment() ([]EnvVar, []Place) {
	given := c.given()
	at := make(map[string]int, len(given))
	var out []EnvVar
	var places []Place
	for _, e := range given {
		value := e.value.first()
		if e.append {
			value = c.shell.vars.vars[e.name].first().plus(value)
		}
		if value.open != "" {
			c.shell.variableNote(e.at, e.name, "%s is set to %s, which the text does not define", e.name, brief(value.open))
			continue
		}
		v := EnvVar{Name: e.name, Value: value.text}
		if i, ok := at[e.name]; ok {
			out[i], places[i] = v, c.shell.place(e.at)
			continue
		}
		at[e.name] = len(out)
		out = append(out, v)
		places = append(places, c.shell.place(e.at))
	}
	return out, places
}
