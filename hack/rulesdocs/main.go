// Command rulesdocs writes docs/rules.md from the catalog of rules, the table of
// version-bound facts and the conformance corpus, after the text of head.md. Run it
// from the root of the repository.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/cli"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/kvlayout/conformance"
	"github.com/pdpool/pdpool/pdpool"
)

const (
	from = "kvlayout/testdata/conformance"
	to   = "docs/rules.md"
)

//go:embed head.md
var head string

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "rulesdocs: "+err.Error())
		os.Exit(1)
	}
}

func run() error {
	entries, err := conformance.Load(os.DirFS(from))
	if err != nil {
		return err
	}
	examples, err := examplesOf(entries)
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString(head)
	rules := cli.Rules()
	index(&out, rules)
	for _, r := range rules {
		describe(&out, r, examples[r.ID])
	}
	releases(&out)
	return os.WriteFile(to, []byte(out.String()), 0o644)
}

// example is an entry of the corpus and one of its problems.
type example struct {
	entry   conformance.Entry
	problem kvlayout.Problem
}

// examplesOf finds for each rule the entry that breaks it and the fewest others, a
// refusal before a warning.
func examplesOf(entries []conformance.Entry) (map[string]example, error) {
	best := map[string]example{}
	for _, e := range entries {
		found, err := check(e)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			have, ok := best[p.Rule]
			refuses := p.Severity == kvlayout.Refuse && have.problem.Severity != kvlayout.Refuse
			fewer := p.Severity == have.problem.Severity && len(e.Problems) < len(have.entry.Problems)
			if !ok || refuses || fewer {
				best[p.Rule] = example{e, p}
			}
		}
	}
	return best, nil
}

func check(e conformance.Entry) ([]kvlayout.Problem, error) {
	if e.Pair != nil {
		return kvlayout.Compatible(*e.Pair), nil
	}
	var pool v1alpha1.PDPool
	if err := yaml.UnmarshalStrict(e.Pool, &pool); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name, err)
	}
	return pdpool.Check(&pool), nil
}

func index(out *strings.Builder, rules []kvlayout.RuleInfo) {
	out.WriteString("## All rules\n\n| rule | looks at | at most | what has to hold |\n|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(out, "| [`%s`](#%s) | %s | %s | %s |\n", r.ID, r.ID, looksAt(r), atMost(r), r.Description)
	}
}

func looksAt(r kvlayout.RuleInfo) string {
	if r.Scope == kvlayout.SideScope {
		return "one side"
	}
	return "both"
}

func atMost(r kvlayout.RuleInfo) string {
	if r.Severity == kvlayout.Refuse {
		return "refuses"
	}
	return "warns"
}

func describe(out *strings.Builder, r kvlayout.RuleInfo, e example) {
	fmt.Fprintf(out, "\n## %s\n\n**Has to hold** (%s): %s.\n\n**Else** it %s: %s.\n", r.ID, looksAt(r), r.Description, atMost(r), r.Reason)
	for _, f := range r.Features {
		for _, fact := range kvlayout.Facts() {
			if fact.Feature == f {
				fmt.Fprintf(out, "\n**Releases**, of %s: %s.\n", f, bound(fact))
			}
		}
	}
	if e.problem.Rule == "" {
		return
	}
	fmt.Fprintf(out, "\nExample (%s):\n\n```text\n%s %s: %s\n  %s\n  %s\n```\n\n**What it prevents**: %s (%s).\n", e.entry.Name,
		strings.ToLower(string(e.problem.Severity)), e.problem.Field, e.problem.Message, e.problem.Reason, e.problem.Fix, e.entry.Prevents, e.entry.Source)
}

// bound says of which releases a fact is known.
func bound(f kvlayout.Fact) string {
	lacks := fmt.Sprintf("%s up to %s does not have it", f.Engine, f.Without)
	switch {
	case f.Since != "":
		return fmt.Sprintf("%s from %s on, not %s", f.Engine, f.Since, f.Without)
	case f.From == "":
		return lacks
	case f.Lost && f.From != f.Without:
		return fmt.Sprintf("%s from %s to %s does not have it, releases before do, and later ones were not looked at", f.Engine, f.From, f.Without)
	case f.Lost:
		return fmt.Sprintf("%s %s does not have it, releases before do, and later ones were not looked at", f.Engine, f.Without)
	case f.From == f.Without:
		return fmt.Sprintf("%s %s does not have it; others were not looked at", f.Engine, f.Without)
	}
	return lacks + ", from " + f.From + " on; others were not looked at"
}

func releases(out *strings.Builder) {
	out.WriteString("\n## What depends on a release\n\nThe table that the rules read (`kvlayout.Facts`). Of a release that it does not cover, or a version that can't be read, nothing is\n" +
		"known: the rule warns.\n\n| what | releases | read in |\n|---|---|---|\n")
	for _, f := range kvlayout.Facts() {
		fmt.Fprintf(out, "| %s | %s | %s |\n", f.Feature, bound(f), f.Source)
	}
}
