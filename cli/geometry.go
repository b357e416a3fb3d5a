package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/kvlayout"
)

// geometryFlags are the flags of geometry.
type geometryFlags struct {
	config string
	model  string
	list   bool
	output string
}

func geometryCommand(o Options) *cobra.Command {
	var f geometryFlags
	cmd := &cobra.Command{
		Use:   "geometry (--config FILE | --model NAME | --list)",
		Short: "Read the KV geometry of a model, for model.geometry",
		Long: "Read what a model's layers cache from its Hugging Face config.json, or from the catalog by the model's name.\n\n" +
			"Exit status: 0 with a model.geometry, 1 where none can describe the model, 2 where the config can't be read.",
		Example: "  kubectl pdpool geometry --config config.json\n  kubectl pdpool geometry --model Qwen/Qwen3-235B-A22B -o json\n" +
			"  kubectl pdpool geometry --list",
		Args: noArguments("--config", "--model"),
		RunE: func(*cobra.Command, []string) error { return o.geometry(f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "a config.json, or - for standard input")
	flags.StringVar(&f.model, "model", "", "a model of the catalog, by its Hugging Face name")
	flags.BoolVar(&f.list, "list", false, "print the models of the catalog, and what their layers cache")
	flags.StringVarP(&f.output, "output", "o", "yaml", "yaml or json (all that is known of the model)")
	oneOf(cmd, "output", "yaml", "json")
	oneOf(cmd, "model", catalogNames()...)
	cmd.MarkFlagsOneRequired("config", "model", "list")
	cmd.MarkFlagsMutuallyExclusive("config", "model", "list")
	return cmd
}

func catalogNames() []string {
	models := kvlayout.Models()
	names := make([]string, 0, len(models))
	for _, m := range models {
		names = append(names, m.Name)
	}
	return names
}

func (o Options) geometry(f geometryFlags) error {
	output, err := choose("output", f.output, "yaml", "json")
	if err != nil {
		return err
	}
	if f.list {
		return o.models(output)
	}
	m, err := o.modelFrom(f)
	if err != nil {
		return err
	}
	if output == "json" {
		return o.json(m)
	}
	return o.geometryYAML(m)
}

// models lists the catalog.
func (o Options) models(output string) error {
	if output == "json" {
		return o.json(kvlayout.Models())
	}
	rows := [][]string{{"model", "caches"}}
	for _, m := range kvlayout.Models() {
		rows = append(rows, []string{m.Name, geometryText(m)})
	}
	p := o.page()
	p.table("", rows)
	return p.err
}

// unknownModel says which models of the catalog have a name like one that it has not.
func unknownModel(name string) error {
	if _, err := os.Stat(name); err == nil {
		return fmt.Errorf("%q is a path: give its config.json with --config", name)
	}
	base := strings.ToLower(path.Base(name))
	var near []string
	for _, n := range catalogNames() {
		if strings.Contains(strings.ToLower(n), base) || strings.HasPrefix(base, strings.ToLower(path.Base(n))) {
			near = append(near, n)
		}
	}
	const most = 4
	switch {
	case len(near) == 0:
		return fmt.Errorf("the catalog does not have %q: give its config.json with --config, or look at --list", name)
	case len(near) > most:
		near = append(near[:most:most], "...")
	}
	return fmt.Errorf("the catalog does not have %q, but %s: give its config.json with --config", name, strings.Join(near, ", "))
}

func (o Options) modelFrom(f geometryFlags) (kvlayout.Model, error) {
	if f.model != "" {
		m, ok := kvlayout.LookupModel(f.model)
		if !ok {
			return m, unknownModel(f.model)
		}
		return m, nil
	}
	return o.modelOfConfig(f.config)
}

// modelOfConfig reads a config.json, or standard input for "-".
func (o Options) modelOfConfig(name string) (kvlayout.Model, error) {
	src, err := file{path: name}.read(o)
	if err != nil {
		return kvlayout.Model{}, err
	}
	m, err := kvlayout.ParseConfig(src.text)
	if err != nil {
		return m, fmt.Errorf("%s%s: %w", src.name, lineOf(src.text, err), err)
	}
	return m, nil
}

// lineOf is where the syntax of JSON breaks off, as ":line:column"; "" for other errors.
func lineOf(text []byte, err error) string {
	wrong, ok := errors.AsType[*json.SyntaxError](err)
	if !ok {
		return ""
	}
	before := text[:min(max(int(wrong.Offset), 1), len(text))]
	return fmt.Sprintf(":%d:%d", bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n')-1)
}

func (o Options) geometryYAML(m kvlayout.Model) error {
	p := o.page()
	name := m.Architecture
	if m.Name != "" {
		name = m.Name + " (" + m.Architecture + ")"
	}
	p.comment("%s: %s", name, geometryText(m))
	if n := m.DraftLayers(); n > 0 {
		p.comment("with it: %s, cached only with speculative decoding", count(n, "draft layer"))
	}
	if m.Checkpoint != "" {
		p.comment("the checkpoint asks for a cache of type %s, which kvCacheType Auto takes", m.Checkpoint)
	}
	g, ok := m.Geometry()
	if !ok {
		p.comment("model.geometry describes models whose layers cache alike, and here %s:\nleave it out.%s", m.Beyond(), byName(m))
		return errors.Join(p.err, ErrRefused)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "model:\n  geometry:\n    kind: %s\n    layers: %d\n    attentionHeads: %d\n", g.Kind, g.Layers, g.AttentionHeads)
	if g.Kind != kvlayout.MLA {
		fmt.Fprintf(&b, "    kvHeads: %d\n", g.KVHeads)
	}
	fmt.Fprintf(&b, "    headValues: %d\n", g.HeadValues)
	if m.Experts > 0 {
		fmt.Fprintf(&b, "    experts: %d\n", m.Experts)
	}
	p.printf("%s", verbatim(b.String()))
	return p.err
}

// byName tells that the catalog has such a model.
func byName(m kvlayout.Model) string {
	if m.Name == "" {
		return ""
	}
	return " The catalog knows the model by its name."
}
