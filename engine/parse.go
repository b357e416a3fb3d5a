package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/pdpool/pdpool/kvlayout"
)

// Flag is one flag as it was typed.
type Flag struct {
	// Name is the full name without dashes, in vLLM's spelling where it is known
	// ("tensor-parallel-size"), else as typed with dashes for underscores.
	Name string
	// Spelled is the name as typed, dashes and dotted key included.
	Spelled string
	// Key is the dotted path into a JSON value ("kv_role"); "" for the whole value.
	Key string
	// Values is empty for a switch, and has one element for most flags.
	Values []string
	// Negated is set by --no-name.
	Negated bool
	// Index is that of the argument with the name.
	Index int
	// Known says that this package knows the flag.
	Known bool

	inline    bool // the value is in the argument with the name
	listed    bool // a release known here has the flag
	ambiguous bool // a release known here has several flags that begin so
}

// Flags is a parsed command line, in the order typed.
type Flags struct {
	Positional []string
	// PositionalAt are the indexes of the arguments in Positional.
	PositionalAt []int
	List         []Flag
}

// Problem is an argument that the engine would refuse or misread.
type Problem struct {
	Index int // of the argument
	Text  string

	value bool // the value of a flag is missing or can't be read
}

// ParseArgs reads arguments as vLLM does: long names with dashes or underscores,
// unambiguous abbreviations, short names, "--name=value", switches, JSON values
// whole or by dotted keys. A repeated flag is kept each time; the last one counts.
// Flags that aren't known are kept with the words that follow them. It accepts
// anything; what can't work is among the problems.
func ParseArgs(args []string) (Flags, []Problem) { return ParseArgsOf(kvlayout.VLLM, args) }

// ParseArgsOf is ParseArgs in the spelling of an engine. SGLang takes long names
// with dashes and their abbreviations only.
func ParseArgsOf(kind kvlayout.Engine, args []string) (Flags, []Problem) {
	p := parser{args: args, dialect: dialectOf(kind)}
	for p.next < len(args) {
		p.word()
	}
	return p.out, p.problems
}

type parser struct {
	*dialect
	args     []string
	next     int
	out      Flags
	problems []Problem
}

func (p *parser) problem(index int, format string, a ...any) {
	p.problems = append(p.problems, Problem{Index: index, Text: fmt.Sprintf(format, a...)})
}

// unread is problem for the value of a flag.
func (p *parser) unread(index int, format string, a ...any) {
	p.problem(index, format, a...)
	p.problems[len(p.problems)-1].value = true
}

func (p *parser) word() {
	arg := p.args[p.next]
	index := p.next
	p.next++
	if !p.isFlag(arg) {
		p.out.Positional = append(p.out.Positional, arg)
		p.out.PositionalAt = append(p.out.PositionalAt, index)
		return
	}
	name, value, inline := strings.Cut(arg, "=")
	if !inline {
		if head, tail, ok := strings.Cut(name, " "); ok {
			p.problem(index, "%q holds a flag and its value in one argument: write %q and %q", arg, head, strings.TrimSpace(tail))
			name, value, inline = head, strings.TrimSpace(tail), true
		}
	}
	f, k := p.identify(name)
	f.Index = index
	if f.attached != "" {
		value, inline = f.attached, true
	}
	if f.inline = inline; inline {
		f.Values = []string{value}
	} else {
		f.Values = p.values(k, f.Flag)
	}
	p.check(k, f.Flag)
	p.out.List = append(p.out.List, f.Flag)
}

// spelledFlag is a flag with a value that was glued to its short name.
type spelledFlag struct {
	Flag
	attached string
}

// identify finds what a name as typed stands for.
func (d *dialect) identify(typed string) (spelledFlag, known) {
	f := spelledFlag{Flag: Flag{Spelled: typed}}
	if !strings.HasPrefix(typed, "--") {
		return d.identifyShort(f, typed)
	}
	f.Name = typed[2:]
	if d.flexible {
		name, key, _ := strings.Cut(typed[2:], ".")
		f.Key = strings.TrimSuffix(key, "+") // "--name.list+" appends to a list
		f.Name = strings.ReplaceAll(name, "_", "-")
	}
	if k, ok := d.long(&f.Flag, f.Name); ok {
		return f, k
	}
	if positive, ok := strings.CutPrefix(f.Name, "no-"); ok {
		negated := f
		if k, ok := d.long(&negated.Flag, positive); ok && k.takes == toggle {
			negated.Negated = true
			return negated, k
		}
	}
	return f, known{takes: many}
}

// long is the flag that a long name means: one of a release, which need not be one
// that this package knows more about, or one that others have.
func (d *dialect) long(f *Flag, name string) (known, bool) {
	r, ok, several := d.released().find("--" + name)
	if f.ambiguous = several; ok {
		name = r.name
	}
	if k, ok := d.lookup(name); ok && (!several || k.name == name) {
		f.Name, f.Known, f.listed, f.ambiguous = k.name, true, true, false
		return k, true
	}
	if f.listed = ok; ok {
		f.Name = r.name
		return known{name: r.name, takes: r.takes}, true
	}
	return known{}, false
}

func (d *dialect) identifyShort(f spelledFlag, typed string) (spelledFlag, known) {
	name := typed[1:]
	short, key, _ := strings.Cut(name, ".")
	f.Key = key
	if k, ok := d.lookupShort(short); ok {
		f.Name, f.Known = k.name, true
		return f, k
	}
	// Only a name of one letter can have its value glued to it: -n2.
	if len(name) > 1 {
		if k, ok := d.lookupShort(name[:1]); ok {
			f.Name, f.Known, f.Key, f.attached = k.name, true, "", name[1:]
			f.Spelled = typed[:2]
			return f, k
		}
	}
	if r, ok, _ := d.released().find("-" + short); ok {
		f.Name, f.listed = r.name, true
		return f, known{name: r.name, takes: r.takes}
	}
	f.Name = strings.ReplaceAll(short, "_", "-")
	return f, known{takes: many}
}

// values takes the words that belong to a flag.
func (p *parser) values(k known, f Flag) []string {
	limit := len(p.args)
	switch {
	case f.Negated || k.bare():
		return nil
	case k.takes != many:
		limit = 1
	}
	var out []string
	for p.next < len(p.args) && len(out) < limit && !p.isFlag(p.args[p.next]) {
		out = append(out, p.args[p.next])
		p.next++
	}
	return out
}

func (p *parser) check(k known, f Flag) {
	if !f.Known {
		return
	}
	switch {
	case k.bare() && len(f.Values) > 0:
		p.problem(f.Index, "%s takes no value, not %q", f.Spelled, f.Values[0])
	case k.bare():
	case len(f.Values) == 0:
		p.unread(f.Index, "%s needs a value", f.Spelled)
	case k.takes == object && f.Key == "" && !json.Valid([]byte(f.Values[0])):
		p.problem(f.Index, "the value of %s is not JSON", f.Spelled)
	case k.takes != object && f.Key != "":
		p.problem(f.Index, "%s: --%s takes no keys", f.Spelled, f.Name)
	case k.whole:
		if _, err := strconv.Atoi(f.Values[0]); err != nil {
			p.unread(f.Index, "%s needs a whole number, not %q", f.Spelled, f.Values[0])
		}
	}
}

// isFlag tells a flag from a value: it begins with a dash, and is neither a lone
// dash nor a negative number. Text with a space is a value, unless it begins with
// the name of a flag: then both were written into one argument.
func (d *dialect) isFlag(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' || arg == "--" || negative.MatchString(arg) {
		return false
	}
	name, _, _ := strings.Cut(arg, "=")
	head, _, spaced := strings.Cut(name, " ")
	if !spaced {
		return true
	}
	f, _ := d.identify(head)
	return f.Known
}

var negative = regexp.MustCompile(`^-(\d+|\d*\.\d+)$`)
