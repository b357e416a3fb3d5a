package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pdpool/pdpool/kvlayout"
)

func rulesCommand(o Options) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:     "rules [ID]...",
		Short:   "Explain the rules",
		Example: "  kubectl pdpool rules\n  kubectl pdpool rules dcp-version",
		RunE:    func(_ *cobra.Command, ids []string) error { return o.rules(ids, output) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var ids []cobra.Completion
			for _, r := range Rules() {
				ids = append(ids, cobra.CompletionWithDesc(r.ID, r.Description))
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "text, json or markdown")
	oneOf(cmd, "output", "text", "json", "markdown")
	return cmd
}

func (o Options) rules(ids []string, output string) error {
	output, err := choose("output", output, "text", "json", "markdown")
	if err != nil {
		return err
	}
	all := Rules()
	found := all
	if len(ids) > 0 {
		found = nil
	}
	for _, id := range ids {
		i := slices.IndexFunc(all, func(r kvlayout.RuleInfo) bool { return r.ID == id })
		if i < 0 {
			return fmt.Errorf("there is no rule %q%s", id, alike(id, all))
		}
		found = append(found, all[i])
	}
	p := o.page()
	switch output {
	case "json":
		return o.json(found)
	case "markdown":
		p.printf("| rule | | of | says | why |\n|---|---|---|---|---|\n")
		for _, r := range found {
			p.printf("| `%s` | %s | %s | %s | %s |\n", r.ID, verbOf(r), scopeText(r.Scope), cell(r.Description), cell(r.Reason))
		}
		return p.err
	}
	for _, r := range found {
		colour := red
		if r.Severity == kvlayout.Warn {
			colour = yellow
		}
		p.printf("%s  %s, of %s\n  %s\n  %s %s\n", p.paint(bold, r.ID), p.paint(colour, verbOf(r)), scopeText(r.Scope), r.Description, p.paint(dim, "why:"), r.Reason)
	}
	return p.err
}

func verbOf(r kvlayout.RuleInfo) string {
	if r.Severity == kvlayout.Warn {
		return "warns"
	}
	return "refuses"
}

// cell is a text in a cell of a Markdown table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

func scopeText(s kvlayout.Scope) string {
	if s == kvlayout.SideScope {
		return "one side"
	}
	return "the pool"
}

// alike names rules that begin or end like one that there isn't.
func alike(id string, all []kvlayout.RuleInfo) string {
	head, _, _ := strings.Cut(id, "-")
	var near []string
	for _, r := range all {
		if head != "" && strings.Contains(r.ID, head) {
			near = append(near, r.ID)
		}
	}
	if len(near) == 0 {
		return ": `kubectl pdpool rules` lists all"
	}
	return ", but " + strings.Join(near, ", ")
}

func versionCommand(o Options) *cobra.Command {
	output := "text"
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			output, err := choose("output", output, "text", "json")
			switch {
			case err != nil:
				return err
			case output == "json":
				return o.json(map[string]string{"version": o.Version})
			}
			_, err = fmt.Fprintln(o.Out, o.Version)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	oneOf(cmd, "output", "text", "json")
	return cmd
}
