package cli

import (
	"encoding/json"
	"fmt"

	"github.com/pdpool/pdpool/kvlayout"
)

// writeText is the report for people.
func (o Options) writeText(r Report) error {
	p := o.page()
	for _, e := range r.Errors {
		p.printf("%s  %s\n          %s\n", p.paint(red, "unread"), e.Place, e.Text)
	}
	for _, v := range r.Pools {
		p.verdict(v)
	}
	p.summary(r)
	return p.err
}

func (p *page) verdict(v Verdict) {
	word, colour := "admitted", green
	if !v.Admitted {
		word, colour = "refused", red
	}
	p.printf("%s  %s  %s  %s\n", p.paint(colour, word), p.paint(bold, v.Name), v.Layout, p.paint(dim, v.Place.String()))
	p.problems(v.Problems)
	for _, n := range v.Notes {
		p.printf("  %s    %s\n          %s\n", p.paint(yellow, "note"), n.Place, n.Text)
	}
	if v.GPUs != nil {
		p.devices(*v.GPUs)
	}
}

func (p *page) problems(problems []Problem) {
	for _, b := range problems {
		word, colour := "refuse", red
		if b.Severity == kvlayout.Warn {
			word, colour = "warn  ", yellow
		}
		field := b.Field
		if b.Flag != "" {
			field += " (" + b.Flag + ")"
		}
		p.printf("  %s  %s  %s: %s\n", p.paint(colour, word), p.paint(bold, b.Rule), b.Place, field)
		p.printf("          %s\n", b.Message)
		p.printf("     %s  %s\n", p.paint(dim, "why"), b.Reason)
		p.printf("     %s  %s\n", p.paint(dim, "fix"), b.Fix)
	}
}

func (p *page) summary(r Report) {
	refused, warnings := 0, 0
	for _, v := range r.Pools {
		if !v.Admitted {
			refused++
		}
		for _, b := range v.Problems {
			if !refuses(b) {
				warnings++
			}
		}
	}
	line := fmt.Sprintf("%s checked: %d admitted, %d refused, %s", count(len(r.Pools), "pool"), len(r.Pools)-refused, refused, count(warnings, "warning"))
	if len(r.Errors) > 0 {
		line += ", " + count(len(r.Errors), "document") + " unread"
	}
	if r.Others > 0 {
		line += "; " + count(r.Others, "object") + " of other kinds left out"
	}
	p.printf("%s\n", p.paint(dim, line))
}

func (o Options) writeJSON(r Report) error { return o.json(r) }

// json writes a value as indented JSON.
func (o Options) json(v any) error {
	e := json.NewEncoder(o.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
