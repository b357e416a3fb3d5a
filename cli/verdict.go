package cli

import (
	"cmp"
	"slices"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/pdpool"
)

// Problem is a broken rule, and where the field stands that it is about.
type Problem struct {
	kvlayout.Problem
	Place manifest.Place `json:"place"`
	// Flag says the field on a command line; empty for pools.
	Flag string `json:"flag,omitempty"`
}

// Verdict is what is said of one pool, or of a pair of command lines.
type Verdict struct {
	Name string `json:"name"`
	// Place is where the pool begins.
	Place    manifest.Place `json:"place"`
	Admitted bool           `json:"admitted"`
	// Layout tells both layouts, such as "TP4 -> TP4 DCP4 I64".
	Layout   string    `json:"layout,omitempty"`
	Problems []Problem `json:"problems"` // refusals first
	// Notes are what of a command line could not be read, or is not what it seems.
	Notes []Note `json:"notes,omitempty"`
	// GPUs says whether the cluster has them; nil where nobody asked.
	GPUs *Devices `json:"gpus,omitempty"`
}

// Note is a remark on a place.
type Note struct {
	Place manifest.Place `json:"place"`
	Text  string         `json:"text"`
}

// Report is the answer of check.
type Report struct {
	// Admitted says that nothing is refused and all could be read.
	Admitted bool              `json:"admitted"`
	Pools    []Verdict         `json:"pools"`
	Errors   []*manifest.Error `json:"errors,omitempty"`
	Others   int               `json:"otherObjects"` // objects of other kinds
}

// schemaRule is broken by fields that there are not. An API server finds them, so it
// is not in the operator's catalog.
func schemaRule() kvlayout.RuleInfo {
	return kvlayout.RuleInfo{
		ID: "schema", Scope: kvlayout.PairScope, Severity: kvlayout.Refuse,
		Description: "every field is one that a PDPool has, within its limits, and is given once",
		Reason:      "the API server takes only what the schema of a PDPool has",
	}
}

// catalog is all rules that a verdict may name.
func catalog() []kvlayout.RuleInfo {
	return slices.Concat(pdpool.Rules(), []kvlayout.RuleInfo{schemaRule()}, engine.PairRules())
}

// judge is the verdict on a pool of a file.
func judge(p manifest.Pool) Verdict {
	v := Verdict{Name: p.Identity(), Place: p.Place, Layout: pairLayout(layoutOf(p.Spec.Prefill.Layout), layoutOf(p.Spec.Decode.Layout))}
	for _, f := range p.Faults {
		problem := kvlayout.Problem{
			Rule: schemaRule().ID, Severity: kvlayout.Refuse, Field: f.Field, Message: f.Text,
			Reason: schemaRule().Reason, Fix: f.Fix,
		}
		if f.Warns {
			problem.Severity, problem.Reason = kvlayout.Warn, "kubectl keeps the last one and says nothing"
		}
		v.Problems = append(v.Problems, Problem{Problem: problem, Place: f.Place})
	}
	for _, found := range pdpool.Check(p.PDPool) {
		v.Problems = append(v.Problems, Problem{Problem: found, Place: p.FieldPlace(found.Field)})
	}
	v.conclude()
	return v
}

// layoutOf is a layout as the spec has it.
func layoutOf(l v1alpha1.LayoutSpec) kvlayout.Layout {
	return kvlayout.Layout{TP: int(l.TP), DP: int(l.DP), DPLocal: int(l.DPLocal), DCP: int(l.DCP), Interleave: int(l.Interleave)}
}

// conclude sorts the problems and says what follows from them.
func (v *Verdict) conclude() {
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return cmp.Compare(weight(a), weight(b)) })
	v.Admitted = !slices.ContainsFunc(v.Problems, refuses)
	if v.Problems == nil {
		v.Problems = []Problem{}
	}
}

func refuses(p Problem) bool { return p.Severity == kvlayout.Refuse }

func weight(p Problem) int {
	if refuses(p) {
		return 0
	}
	return 1
}

// end is the error that a command with this report ends with.
func (r Report) end(strict bool) error {
	switch {
	case len(r.Errors) > 0:
		return errUnread
	case !r.Admitted:
		return ErrRefused
	}
	for _, v := range r.Pools {
		if strict && (len(v.Problems)+len(v.Notes) > 0 || v.GPUs != nil && !v.GPUs.Available) {
			return ErrRefused
		}
	}
	return nil
}

// beyondSchema is the verdict on a pool whose numbers are beyond all limits, so that
// nothing is computed with them.
func beyondSchema(p manifest.Pool) (v Verdict, beyond bool) {
	if !slices.ContainsFunc(p.Faults, func(f manifest.Fault) bool { return !f.Warns }) {
		return Verdict{}, false
	}
	return judge(p), true
}
