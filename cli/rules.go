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
			for _, r := range catalog() {
				ids = append(ids, cobra.CompletionWithDesc(r.ID, r.Description))
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	oneOf(cmd, "output", "text", "json")
	return cmd
}

func (o Options) rules(ids []string, output string) error {
	all := catalog()
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
	switch output {
	case "json":
		return o.json(found)
	case "text":
	default:
		return fmt.Errorf("output %q is neither text nor json", output)
	}
	p := o.page()
	for _, r := range found {
		word, colour := "refuses", red
		if r.Severity == kvlayout.Warn {
			word, colour = "warns", yellow
		}
		p.printf("%s  %s, of %s\n  %s\n  %s %s\n", p.paint(bold, r.ID), p.paint(colour, word), scopeText(r.Scope), r.Description, p.paint(dim, "why:"), r.Reason)
	}
	return p.err
}

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
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(o.Out, o.Version)
			return err
		},
	}
}
