package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// writeText is the report for people.
func (o Options) writeText(r Report) error {
	p := o.page()
	for _, e := range r.Errors {
		p.printf("%s  %s\n          %s\n", p.paint(red, "unread"), e.Place, e.Text)
	}
	for _, v := range r.Pools {
		if !r.quiet || v.fails(r.strict) {
			p.verdict(v)
		}
	}
	if !r.quiet {
		p.summary(r)
	}
	return p.err
}

func (p *page) verdict(v Verdict) {
	word, colour := "admitted", green
	switch {
	case v.Unread:
		word, colour = "unread", red
	case !v.Admitted:
		word, colour = "refused", red
	}
	p.printf("%s  %s  %s  %s\n", p.paint(colour, word), p.paint(bold, v.Name), v.Layout, p.paint(dim, v.Place.String()))
	if v.Transfer != nil {
		p.printf("  %s\n", v.Transfer)
		if figures := v.Transfer.figures(); figures != "" {
			p.printf("  %s\n", figures)
		}
	}
	p.problems(v.Problems)
	for _, n := range v.Notes {
		word, colour := "note  ", yellow
		if n.Kind == engine.Unread {
			word, colour = "unread", red
		}
		p.printf("  %s  %s\n          %s\n", p.paint(colour, word), n.Place, strings.Join(strings.Fields(n.Text), " "))
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
		p.printf("     %s  %s\n", p.paint(dim, "fix"), cmp.Or(b.FixByFlags, b.Fix))
	}
}

func (p *page) summary(r Report) {
	refused, unread, warnings, notes, lack := 0, 0, 0, 0, 0
	for _, v := range r.Pools {
		switch {
		case v.Unread:
			unread++
		case !v.Admitted:
			refused++
		}
		for _, b := range v.Problems {
			if !refuses(b) {
				warnings++
			}
		}
		notes += len(v.Notes)
		if v.lacksGPUs() {
			lack++
		}
	}
	line := fmt.Sprintf("%s checked: %d admitted, %d refused", count(len(r.Pools), "pool"), len(r.Pools)-refused-unread, refused)
	if unread > 0 {
		line += fmt.Sprintf(", %d unread", unread)
	}
	line += ", " + count(warnings, "warning")
	if notes > 0 {
		line += ", " + count(notes, "note")
	}
	if len(r.Errors) > 0 {
		line += ", " + count(len(r.Errors), "document") + " unread"
	}
	if r.Others > 0 {
		line += "; " + count(r.Others, "other object or document", "other objects and documents") + " left out"
	}
	p.printf("%s\n", p.paint(dim, line))
	if r.strict && r.Admitted && warnings+notes+lack > 0 {
		p.printf("%s\n", p.paint(yellow, "--strict: not passed, for its "+strictReasons(warnings, notes, lack)))
	}
}

// strictReasons names what fails under --strict alone.
func strictReasons(warnings, notes, lack int) string {
	var parts []string
	if warnings > 0 {
		parts = append(parts, count(warnings, "warning"))
	}
	if notes > 0 {
		parts = append(parts, count(notes, "note"))
	}
	if lack > 0 {
		parts = append(parts, count(lack, "pool")+" without its GPUs")
	}
	return strings.Join(parts, ", ")
}

// json writes a value as indented JSON, whose texts are escaped where a terminal would
// obey them too.
func (o Options) json(v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	return o.write(jsonLegible(b.String()))
}
