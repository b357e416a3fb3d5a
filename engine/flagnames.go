package engine

import (
	_ "embed"
	"slices"
	"strings"
	"sync"

	"github.com/pdpool/pdpool/kvlayout"
)

// The flags that the parsers of one release of each engine take, as
// hack/interop/flagnames.py lists them: names and arity.
var (
	//go:embed flagnames/vllm.txt
	vllmNames string
	//go:embed flagnames/sglang.txt
	sglangNames string
)

// releasedFlags are the flags of one release.
type releasedFlags struct {
	release string
	list    []releasedFlag // by their names
}

// releasedFlag is one name of a flag.
type releasedFlag struct {
	spelled string // with its dashes
	name    string // the flag's first name, without dashes
	takes   arity
}

var (
	vllmReleased   = sync.OnceValue(func() releasedFlags { return parseNames(vllmNames) })
	sglangReleased = sync.OnceValue(func() releasedFlags { return parseNames(sglangNames) })
)

func parseNames(text string) releasedFlags {
	head, text, _ := strings.Cut(text, "\n")
	var out releasedFlags
	if f := strings.Fields(head); len(f) > 2 {
		out.release = strings.Trim(f[2], ",")
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		takes := map[string]arity{"one": one, "toggle": toggle, "mark": mark, "many": many}[f[len(f)-1]]
		for _, spelled := range f[:len(f)-1] {
			out.list = append(out.list, releasedFlag{spelled, strings.TrimLeft(f[0], "-"), takes})
		}
	}
	slices.SortFunc(out.list, func(a, b releasedFlag) int { return strings.Compare(a.spelled, b.spelled) })
	return out
}

// find is the flag with a name, or the only one that a long name abbreviates; several
// says that there is more than one.
func (r releasedFlags) find(spelled string) (found releasedFlag, ok, several bool) {
	i, exact := slices.BinarySearchFunc(r.list, spelled, func(f releasedFlag, s string) int { return strings.Compare(f.spelled, s) })
	if exact {
		return r.list[i], true, false
	}
	if len(spelled) < 4 || !strings.HasPrefix(spelled, "--") {
		return releasedFlag{}, false, false
	}
	for ; i < len(r.list) && strings.HasPrefix(r.list[i].spelled, spelled); i++ {
		if ok && found.name != r.list[i].name {
			return releasedFlag{}, false, true
		}
		found, ok = r.list[i], true
	}
	return found, ok, false
}

// nearest is the name that a misspelt one is most like, "" if it is like none.
func (d *dialect) nearest(spelled string) string {
	released := d.released().list
	names := make([]string, 0, len(released)+len(d.flags))
	for _, k := range d.flags {
		names = append(names, "--"+k.name)
	}
	for _, f := range released {
		if strings.HasPrefix(f.spelled, "--") {
			names = append(names, f.spelled)
		}
	}
	return nearestOf(spelled, names)
}

// nearestOf is the one of several names that a misspelt one is most like, "" for none:
// the shorter it is, the less of it may be wrong.
func nearestOf(name string, names []string) string {
	return kvlayout.Nearest(name, names, min(3, len(name)/4+1))
}

// maxUnknown bounds the unknown flags that are named.
const maxUnknown = 16

// unknownFlags names the flags that no release known here has. Another release may
// have them, so that this alone says nothing about the launch, unless one is next to
// a flag that the rules depend on: then it is most likely that one.
func (f *facts) unknownFlags() {
	d := dialectOf(f.in.Engine)
	if by := f.launch.through; by != "" {
		f.note(-1, "%s takes the arguments of %s and has some of its own: a flag that %s does not have counts as one of those", by, f.in.Engine, f.in.Engine)
		return
	}
	var named []string
	for _, g := range f.flags.List {
		if g.Known || g.listed || f.open(g.Index) || slices.Contains(named, g.Spelled) || len(named) == maxUnknown {
			continue
		}
		named = append(named, g.Spelled)
		f.unknownFlag(d, g)
	}
}

func (f *facts) unknownFlag(d *dialect, g Flag) {
	release := d.released().release
	if g.ambiguous {
		kind := Remark
		if d.beginsField(g.Name) {
			kind = Unread
		}
		f.keep(g.Index, kind, "", "%s %s has no flag %s, and several that begin so", f.in.Engine, release, brief(g.Spelled))
		return
	}
	if f.in.Engine == kvlayout.SGLang && strings.Contains(g.Spelled, "_") {
		return // said with the underscores
	}
	if short, number := d.glued(g.Spelled); short.name != "" {
		kind := Unread
		if short.owner.field == "" {
			kind = Remark
		}
		f.keep(g.Index, kind, short.owner.field, "%s is no flag of %s: write -%s %s", brief(g.Spelled), f.in.Engine, short.short, number)
		return
	}
	spelled := g.Spelled
	if d.flexible {
		spelled = "--" + g.Name
	}
	// Of the very release that is known here, the parser ends with it.
	kind := Remark
	if f.in.Version == release {
		kind = Stops
	}
	near := d.nearest(spelled)
	if near == "" {
		f.keep(g.Index, kind, "", "%s %s has no flag %s", f.in.Engine, release, brief(g.Spelled))
		return
	}
	field := f.field(near[2:])
	if field != "" && kind == Remark {
		kind = Unread
	}
	f.keep(g.Index, kind, field, "%s %s has no flag %s: did you mean %s?", f.in.Engine, release, brief(g.Spelled), near)
}

// beginsField says that a flag with a field in the spec begins so.
func (d *dialect) beginsField(name string) bool {
	return slices.ContainsFunc(d.flags, func(k known) bool { return k.owner.field != "" && k.begins(name) })
}

// glued finds a short name with a number right behind it, such as -tp8.
func (d *dialect) glued(spelled string) (known, string) {
	if strings.HasPrefix(spelled, "--") {
		return known{}, ""
	}
	name := strings.TrimRight(spelled[1:], "0123456789")
	k, ok := d.lookupShort(name)
	if number := spelled[1+len(name):]; ok && number != "" {
		return k, number
	}
	return known{}, ""
}
