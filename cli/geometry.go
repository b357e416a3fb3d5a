package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/kvlayout"
)

// geometryFlags are the flags of geometry.
type geometryFlags struct {
	config string
	model  string
	output string
}

func geometryCommand(o Options) *cobra.Command {
	var f geometryFlags
	cmd := &cobra.Command{
		Use:   "geometry (--config FILE | --model NAME)",
		Short: "Read the KV geometry of a model, for model.geometry",
		Long: "Read what a model's layers cache from its Hugging Face config.json, or from the catalog by the model's name.\n\n" +
			"Exit status: 0 with a model.geometry, 1 where none can describe the model, 2 where the config can't be read.",
		Example: "  kubectl pdpool geometry --config config.json\n  kubectl pdpool geometry --model Qwen/Qwen3-235B-A22B -o json",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return o.geometry(f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "a config.json, or - for standard input")
	flags.StringVar(&f.model, "model", "", "a model of the catalog, by its Hugging Face name")
	flags.StringVarP(&f.output, "output", "o", "yaml", "yaml or json (all that is known of the model)")
	oneOf(cmd, "output", "yaml", "json")
	oneOf(cmd, "model", catalogNames()...)
	cmd.MarkFlagsOneRequired("config", "model")
	cmd.MarkFlagsMutuallyExclusive("config", "model")
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
	if f.output != "yaml" && f.output != "json" {
		return fmt.Errorf("output %q is neither yaml nor json", f.output)
	}
	m, err := o.modelFrom(f)
	if err != nil {
		return err
	}
	if f.output == "json" {
		return o.json(m)
	}
	return o.geometryYAML(m)
}

func (o Options) modelFrom(f geometryFlags) (kvlayout.Model, error) {
	if f.model != "" {
		m, ok := kvlayout.LookupModel(f.model)
		if !ok {
			return m, fmt.Errorf("the catalog does not have %q: give its config.json with --config", f.model)
		}
		return m, nil
	}
	var src source
	var err error
	if f.config == "-" {
		src.name = stdin
		src.text, err = readAll(o.In)
	} else {
		src.name = f.config
		src.text, err = readFile(f.config)
	}
	if err != nil {
		return kvlayout.Model{}, err
	}
	m, err := kvlayout.ParseConfig(src.text)
	if err != nil {
		return m, fmt.Errorf("%s: %w", src.name, err)
	}
	return m, nil
}

func (o Options) geometryYAML(m kvlayout.Model) error {
	p := o.page()
	name := m.Architecture
	if m.Name != "" {
		name = m.Name + " (" + m.Architecture + ")"
	}
	p.printf("# %s: %s\n", name, geometryText(m))
	if n := m.DraftLayers(); n > 0 {
		p.printf("# with it: %s, cached only with speculative decoding\n", count(n, "draft layer"))
	}
	if m.Checkpoint != "" {
		p.printf("# the checkpoint asks for a cache of type %s, which kvCacheType Auto takes\n", m.Checkpoint)
	}
	g, ok := m.Geometry()
	if !ok {
		p.printf("# model.geometry describes models whose layers cache alike, and here %s:\n# leave it out.%s\n", m.Beyond(), byName(m))
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
	p.printf("%s", b.String())
	return p.err
}

// byName tells that the catalog has such a model.
func byName(m kvlayout.Model) string {
	if m.Name == "" {
		return ""
	}
	return " The catalog knows the model by its name."
}
