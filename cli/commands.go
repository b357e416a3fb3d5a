package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// commandFlags say which two command lines are a pair.
type commandFlags struct {
	prefill, decode string
	engine          string
	version         string
	mover           string
	config          string
}

func (f *commandFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.prefill, "prefill-cmd", "", "the command that starts prefill, or @FILE with it")
	flags.StringVar(&f.decode, "decode-cmd", "", "the command that starts decode, or @FILE with it")
	flags.StringVar(&f.engine, "engine", string(kvlayout.VLLM), "whose arguments they are where they name no program: vLLM or SGLang")
	flags.StringVar(&f.version, "engine-version", "", "the engine's release where the command lines don't say it, such as 0.33.0")
	flags.StringVar(&f.mover, "mover", "", "who moves the bytes: Engine, Agent or Auto; unset, what the command lines say")
	flags.StringVar(&f.config, "config", "", "the model's config.json, where the catalog does not know the model of the command lines")
	oneOf(cmd, "engine", string(kvlayout.VLLM), string(kvlayout.SGLang))
	oneOf(cmd, "mover", string(kvlayout.MoverAuto), string(kvlayout.MoverEngine), string(kvlayout.MoverAgent))
	cmd.MarkFlagsRequiredTogether("prefill-cmd", "decode-cmd")
}

func (f commandFlags) given() bool { return f.prefill != "" || f.decode != "" }

// validate spells the values as they are meant, and refuses those that would have no
// effect.
func (f *commandFlags) validate() error {
	var err error
	if f.engine, err = choose("engine", f.engine, string(kvlayout.VLLM), string(kvlayout.SGLang)); err != nil {
		return err
	}
	if f.mover != "" {
		if f.mover, err = choose("mover", f.mover, string(kvlayout.MoverEngine), string(kvlayout.MoverAgent), string(kvlayout.MoverAuto)); err != nil {
			return err
		}
	}
	if f.given() {
		return nil
	}
	for _, g := range []struct{ name, value string }{{"engine-version", f.version}, {"mover", f.mover}, {"config", f.config}} {
		if g.value != "" {
			return fmt.Errorf("--%s is about command lines: give --prefill-cmd and --decode-cmd with it", g.name)
		}
	}
	return nil
}

// startedSide is one of two command lines.
type startedSide struct {
	role   kvlayout.Role
	file   string
	launch engine.Launch
	engine.Instance
}

// commandPair is what two command lines say.
type commandPair struct {
	prefill, decode startedSide
	pair            kvlayout.Pair
	apart           []kvlayout.Problem // why they can't be one pool
	notes           []pairNote
	moverGiven      bool
}

// pairNote is a note on one of two command lines, or without a role on the text of
// both.
type pairNote struct {
	Note
	role kvlayout.Role
}

// readPair reads the two command lines.
func (o Options) readPair(f commandFlags) (commandPair, error) {
	var out commandPair
	for _, s := range []struct {
		role       kvlayout.Role
		flag, text string
		into       *startedSide
	}{
		{kvlayout.Prefill, "prefill-cmd", f.prefill, &out.prefill},
		{kvlayout.Decode, "decode-cmd", f.decode, &out.decode},
	} {
		src, err := o.textOrFile(s.flag, s.text)
		if err != nil {
			return out, err
		}
		script := engine.ParseCommandsOf(kvlayout.Engine(f.engine), string(src.text))
		launch, err := launchOf(src.name, script, s.role)
		if err != nil {
			return out, err
		}
		launch.Version = cmp.Or(f.version, launch.Version)
		launch = launch.WithFiles(beside(src.name))
		*s.into = startedSide{role: s.role, file: src.name, launch: launch}
		var notes []engine.Note
		s.into.Instance, notes = launch.Read()
		out.note(src.name, "", script.Notes)
		out.note(src.name, s.role, notes)
	}
	out.join()
	if f.version != "" {
		out.pair.Prefill.Version, out.pair.Decode.Version = f.version, f.version
	}
	out.pair.Version = cmp.Or(f.version, out.pair.Version)
	out.pair.Mover = cmp.Or(kvlayout.Mover(f.mover), out.pair.Mover)
	out.moverGiven = f.mover != ""
	out.withMover()
	return out, o.withConfig(&out.pair, f.config)
}

// note keeps what was found in a file, once.
func (c *commandPair) note(file string, role kvlayout.Role, notes []engine.Note) {
	for _, n := range notes {
		at := manifest.Place{File: file, Line: n.Place.Line, Column: n.Place.Column}
		note := pairNote{Note{Place: at, Kind: n.Kind, Field: n.Field, Text: n.Text}, role}
		if !slices.ContainsFunc(c.notes, func(o pairNote) bool { return o.Note == note.Note }) {
			c.notes = append(c.notes, note)
		}
	}
}

func (c *commandPair) remark(at manifest.Place, format string, args ...any) {
	c.notes = append(c.notes, pairNote{Note: Note{Place: at, Kind: engine.Remark, Text: fmt.Sprintf(format, args...)}})
}

// join puts the sides together.
func (c *commandPair) join() {
	prefill, d := c.prefill.Instance, c.decode
	if path.Base(prefill.Model) == path.Base(d.Model) {
		prefill.Model = d.Model // a path here and a name there, as often as not of the same files
	}
	if d.Engine == kvlayout.SGLang && prefill.Backend != d.Backend {
		// mori chooses by environment and hardware, so that this alone refuses nothing.
		if prefill.Backend != "" && d.Backend != "" {
			c.remark(d.place(""), "prefill moves bytes by %s and decode by %s, as far as the environment says", prefill.Backend, d.Backend)
		}
		prefill.Backend = d.Backend
	}
	c.pair, c.apart = engine.PairOf(prefill, d.Instance)
	c.layoutsAlone()
}

// layoutsAlone lets pass that neither side says anything of a transfer: layouts are
// asked about before that is written, and pools get it from the operator.
func (c *commandPair) layoutsAlone() {
	if c.prefill.Connector != "" || c.decode.Connector != "" {
		return
	}
	for i, n := range c.notes {
		whole := n.Place == c.prefill.place("") || n.Place == c.decode.place("") // of the command, and not of a flag
		if whole && n.Kind == engine.Stops && n.Field == "transfer" {
			c.notes[i].Kind = engine.Remark
		}
	}
}

// withMover says what does not count with the mover that is asked for.
func (c *commandPair) withMover() {
	if c.pair.Mover != kvlayout.MoverAgent {
		return
	}
	for _, s := range []startedSide{c.prefill, c.decode} {
		if s.Backend == engine.XGMI {
			c.remark(s.place("transfer"), "with mover Agent the agents move the bytes, by TCP or shared memory: the backend %s of the command lines does not count", s.Backend)
			break
		}
	}
	c.pair.Backend = ""
	if !c.moverGiven {
		return
	}
	// What is wrong with a connector matters no more where another is asked for.
	for i, n := range c.notes {
		if n.Field == "transfer" || n.Field == "transfer.backend" {
			c.notes[i].Kind = engine.Remark
		}
	}
}

// withConfig takes the model from its config.json.
func (o Options) withConfig(pair *kvlayout.Pair, name string) error {
	if name == "" {
		return nil
	}
	m, err := o.modelOfConfig(name)
	if err != nil {
		return err
	}
	name = pair.Geometry.Model
	pair.Geometry, pair.HasGeometry = m.Geometry()
	pair.Geometry.Model = name
	pair.Model = &m
	return nil
}

// launchOf is the start of a role in a text: the only one, or the only one of the
// role.
func launchOf(file string, s engine.Script, role kvlayout.Role) (engine.Launch, error) {
	switch len(s.Launches) {
	case 0:
		lines := []string{file + " starts no engine"}
		for _, n := range s.Notes {
			lines = append(lines, file+":"+n.String())
		}
		return engine.Launch{}, errors.New(strings.Join(lines, "\n  "))
	case 1:
		return s.Launches[0], nil
	}
	var found []engine.Launch
	for _, l := range s.Launches {
		if in, _ := l.Read(); in.Role == role {
			found = append(found, l)
		}
	}
	if leading := slices.DeleteFunc(slices.Clone(found), headless); len(leading) == 1 {
		return leading[0], nil
	}
	if len(found) == 1 {
		return found[0], nil
	}
	places := make([]string, 0, len(s.Launches))
	var notes strings.Builder
	for _, n := range s.Notes {
		if n.Kind != engine.Remark {
			fmt.Fprintf(&notes, "\n  %s:%s", file, n)
		}
	}
	for _, l := range s.Launches {
		places = append(places, l.Place.String())
	}
	return engine.Launch{}, fmt.Errorf("%s starts %d engines (at %s), and %d of them say that they are %s: leave one%s", file,
		len(s.Launches), strings.Join(places, ", "), len(found), role, &notes)
}

// headless says that a start is of the further pods of an instance.
func headless(l engine.Launch) bool { return slices.Contains(l.Args, "--headless") }

// place is where a command line says what a field of the spec says, else where it
// begins.
func (s startedSide) place(field string) manifest.Place {
	for _, f := range saidAs(field) {
		if at, ok := s.launch.FieldPlace(f); ok {
			return s.at(at)
		}
		if flag := engine.FieldFlag(s.Engine, f); flag != "" {
			if at, ok := s.flagPlace(strings.TrimPrefix(flag, "--")); ok {
				return at
			}
		}
	}
	return s.at(s.launch.Place)
}

func (s startedSide) at(p engine.Place) manifest.Place {
	return manifest.Place{File: s.file, Line: p.Line, Column: p.Column}
}

// place is where the pair says what a field of the spec says.
func (c commandPair) place(field string) manifest.Place {
	if rest, ok := strings.CutPrefix(field, string(kvlayout.Prefill)+"."); ok {
		return c.prefill.place(rest)
	}
	return c.decode.place(strings.TrimPrefix(field, string(kvlayout.Decode)+"."))
}

// verdict is what the rules say of the pair. Whether this version of PDPool could run
// it is not asked: the layouts are.
func (c commandPair) verdict() Verdict {
	gaps := c.gapsOf()
	v := Verdict{
		Name: cmp.Or(c.decode.Served, c.prefill.Served, "(no model)"), Place: c.prefill.place(""),
		Layout: c.label(c.prefill, gaps) + " -> " + c.label(c.decode, gaps),
	}
	for _, p := range slices.Concat(firstApart(apartDespite(c.apart, gaps)), found(c.pair, gaps)) {
		v.Problems = append(v.Problems, c.placed(p))
	}
	ruled := slices.Clone(v.Problems)
	for _, n := range c.notes {
		if n.Kind != engine.Stops {
			v.Notes = append(v.Notes, n.Note)
			continue
		}
		// A rule that refuses the same field says more.
		p := c.stops(n)
		if !slices.ContainsFunc(ruled, func(r Problem) bool { return refuses(r) && r.Field == p.Field && n.Field != "" }) {
			v.Problems = append(v.Problems, p)
		}
	}
	v.conclude()
	if !v.Unread {
		v.Transfer = setupOfPair(c).priced()
	}
	return v
}

// placed is a problem with its place, said in flags.
func (c commandPair) placed(p kvlayout.Problem) Problem {
	out := Problem{Problem: p, Place: c.place(p.Field), Flag: c.flag(p.Field), FixByFlags: c.inFlags(p.Fix)}
	role, field, _ := strings.Cut(p.Field, ".")
	if out.Flag != "" || field == "" {
		return out
	}
	side := c.decode
	if role == string(kvlayout.Prefill) {
		side = c.prefill
	}
	if p.Rule == "role-said" {
		out.FixByFlags = side.saysRole() + ", or " + p.Fix
	}
	// No field stands for these, and the sentences name the flag.
	for _, flag := range append(flagWord.FindAllString(out.FixByFlags+" "+p.Fix+" "+p.Message, -1), flagOfRule(p.Rule)) {
		if at, ok := side.flagPlace(strings.TrimPrefix(flag, "--")); ok {
			out.Place, out.Flag = at, flag
			break
		}
	}
	return out
}

var flagWord = regexp.MustCompile(`--[a-z][a-z0-9-]+`)

// saysRole is how a command line is given its role.
func (s startedSide) saysRole() string {
	switch {
	case s.Engine == kvlayout.SGLang:
		return fmt.Sprintf("give --disaggregation-mode %s", s.role)
	case s.role == kvlayout.Prefill:
		return "set kv_role to " + engine.Producer + " in --kv-transfer-config of prefill"
	}
	return "set kv_role to " + engine.Consumer + " in --kv-transfer-config of decode"
}

// flagOfRule is what a rule is about whose sentences name no flag.
func flagOfRule(id string) string {
	if strings.HasPrefix(id, "attention") {
		return "--attention-backend"
	}
	return "--speculative-config"
}

// flagPlace is where a command line has a flag.
func (s startedSide) flagPlace(name string) (manifest.Place, bool) {
	flags, _ := engine.ParseArgsOf(s.Engine, s.launch.Args)
	f, ok := flags.Last(name)
	if !ok {
		return manifest.Place{}, false
	}
	return s.at(s.launch.ArgPlace(f.Index)), true
}

// firstApart leaves out what follows where engines or connectors are not the same.
func firstApart(apart []kvlayout.Problem) []kvlayout.Problem {
	for _, p := range apart {
		if p.Rule == "engine-same" || p.Rule == "connector-same" {
			return slices.DeleteFunc(apart, func(o kvlayout.Problem) bool { return o.Rule != "role-said" && o != p })
		}
	}
	return apart
}

// stops is the problem that a note of this kind is.
func (c commandPair) stops(n pairNote) Problem {
	field := cmp.Or(n.Field, "args")
	if n.role != "" {
		field = string(n.role) + "." + field
	}
	rule := stopsRule()
	return Problem{
		Problem: kvlayout.Problem{
			Rule: rule.ID, Severity: rule.Severity, Field: field, Message: n.Text, Reason: rule.Reason, Fix: "correct it in the command line of " + cmp.Or(string(n.role), "both"),
		},
		Place: n.Place, Flag: c.flag(cmp.Or(n.Field, "args")),
	}
}
