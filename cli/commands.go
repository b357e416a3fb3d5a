package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path"
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
}

func (f *commandFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.prefill, "prefill-cmd", "", "the command that starts prefill, or @FILE with it")
	flags.StringVar(&f.decode, "decode-cmd", "", "the command that starts decode, or @FILE with it")
	flags.StringVar(&f.engine, "engine", string(kvlayout.VLLM), "whose arguments they are where they name no program: vLLM or SGLang")
	flags.StringVar(&f.version, "engine-version", "", "the engine's release where the command lines don't say it, such as 0.33.0")
	flags.StringVar(&f.mover, "mover", "", "who moves the bytes: Engine, Agent or Auto; unset, what the command lines say")
	oneOf(cmd, "engine", string(kvlayout.VLLM), string(kvlayout.SGLang))
	oneOf(cmd, "mover", string(kvlayout.MoverAuto), string(kvlayout.MoverEngine), string(kvlayout.MoverAgent))
	cmd.MarkFlagsRequiredTogether("prefill-cmd", "decode-cmd")
}

func (f commandFlags) given() bool { return f.prefill != "" || f.decode != "" }

func (f commandFlags) validate() error {
	switch {
	case !slices.Contains([]string{string(kvlayout.VLLM), string(kvlayout.SGLang)}, f.engine):
		return fmt.Errorf("engine %q is neither vLLM nor SGLang", f.engine)
	case !slices.Contains([]string{"", string(kvlayout.MoverAuto), string(kvlayout.MoverEngine), string(kvlayout.MoverAgent)}, f.mover):
		return fmt.Errorf("mover %q is none of Engine, Agent and Auto", f.mover)
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
	notes           []Note
}

// readPair reads the two command lines.
func (o Options) readPair(f commandFlags) (commandPair, error) {
	var out commandPair
	if err := f.validate(); err != nil {
		return out, err
	}
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
		*s.into = startedSide{role: s.role, file: src.name, launch: launch}
		var notes []engine.Note
		s.into.Instance, notes = launch.Read()
		for _, n := range append(script.Notes, notes...) {
			note := Note{manifest.Place{File: src.name, Line: n.Place.Line, Column: n.Place.Column}, n.Text}
			if !slices.Contains(out.notes, note) {
				out.notes = append(out.notes, note)
			}
		}
	}
	prefill := out.prefill.Instance
	if path.Base(prefill.Model) == path.Base(out.decode.Model) {
		prefill.Model = out.decode.Model // a path here and a name there, as often as not of the same files
	}
	if d := out.decode; d.Engine == kvlayout.SGLang && prefill.Backend != d.Backend {
		// mori chooses by environment and hardware, so that this alone refuses nothing.
		out.notes = append(out.notes, Note{d.place(""), fmt.Sprintf("prefill moves bytes by %s and decode by %s, as far as the environment says", prefill.Backend, d.Backend)})
		prefill.Backend = d.Backend
	}
	out.pair, out.apart = engine.PairOf(prefill, out.decode.Instance)
	if f.version != "" {
		out.pair.Prefill.Version, out.pair.Decode.Version = f.version, f.version
	}
	out.pair.Version = cmp.Or(f.version, out.pair.Version)
	out.pair.Mover = cmp.Or(kvlayout.Mover(f.mover), out.pair.Mover)
	return out, nil
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
	if len(found) == 1 {
		return found[0], nil
	}
	places := make([]string, 0, len(s.Launches))
	for _, l := range s.Launches {
		places = append(places, l.Place.String())
	}
	return engine.Launch{}, fmt.Errorf("%s starts %d engines (at %s), and %d of them say that they are %s: leave one", file,
		len(s.Launches), strings.Join(places, ", "), len(found), role)
}

// place is where a command line says what a field of the spec says, else where it
// begins.
func (s startedSide) place(field string) manifest.Place {
	at := s.launch.Place
	// What a role replaces has one flag with the field of both.
	for _, f := range []string{field, "engine." + field, "model." + field} {
		if found, ok := s.launch.FieldPlace(f); ok {
			at = found
			break
		}
	}
	return manifest.Place{File: s.file, Line: at.Line, Column: at.Column}
}

// place is where the pair says what a field of the spec says.
func (c commandPair) place(field string) manifest.Place {
	if rest, ok := strings.CutPrefix(field, string(kvlayout.Prefill)+"."); ok {
		return c.prefill.place(rest)
	}
	return c.decode.place(strings.TrimPrefix(field, string(kvlayout.Decode)+"."))
}

// flag is what says a field of the spec in place of a manifest: a flag of the engine,
// or one of this command; "" where nothing does.
func (c commandPair) flag(field string) string {
	for _, r := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		field = strings.TrimPrefix(field, string(r)+".")
	}
	switch field {
	case "transfer.mover":
		return "--mover of kubectl pdpool"
	case "engine.version":
		return "--engine-version of kubectl pdpool"
	}
	return engine.FieldFlag(c.pair.Engine, field)
}

// verdict is what the rules say of the pair. Whether this version of PDPool could run
// it is not asked: the layouts are.
func (c commandPair) verdict() Verdict {
	v := Verdict{
		Name: cmp.Or(c.decode.Served, c.prefill.Served, "(no model)"), Place: c.prefill.place(""),
		Layout: pairLayout(c.pair.Prefill.Layout, c.pair.Decode.Layout), Notes: c.notes,
	}
	for _, p := range slices.Concat(c.apart, kvlayout.Compatible(c.pair)) {
		v.Problems = append(v.Problems, Problem{Problem: p, Place: c.place(p.Field), Flag: c.flag(p.Field)})
	}
	v.conclude()
	return v
}
