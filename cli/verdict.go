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
	// FixByFlags is Fix said in flags; empty for pools, and where no flag says it.
	FixByFlags string `json:"fixByFlags,omitempty"`
}

// Verdict is what is said of one pool, or of a pair of command lines.
type Verdict struct {
	Name string `json:"name"`
	// Place is where the pool begins.
	Place    manifest.Place `json:"place"`
	Admitted bool           `json:"admitted"`
	// Unread says that something which the rules depend on could not be read: then there
	// is no verdict, neither this nor that, and problems are those that stand all the same.
	Unread bool `json:"unread,omitempty"`
	// Layout tells both layouts, such as "TP4 -> TP4 DCP4 I64"; a degree that could not
	// be read is "?".
	Layout   string    `json:"layout,omitempty"`
	Problems []Problem `json:"problems"` // refusals first
	// Notes are what of a command line could not be read, or is not what it seems.
	Notes []Note `json:"notes,omitempty"`
	// Transfer says how bytes get to decode and what they cost; nil where that is not
	// known.
	Transfer *Cost `json:"transfer,omitempty"`
	// GPUs says whether the cluster has them; nil where nobody asked.
	GPUs *Devices `json:"gpus,omitempty"`
}

// Note is a remark on a place of a command line.
type Note struct {
	Place manifest.Place  `json:"place"`
	Kind  engine.NoteKind `json:"kind"`
	// Field is what of the spec is meant, without the role in front; "" for none.
	Field string `json:"field,omitempty"`
	Text  string `json:"text"`
}

// Report is the answer of check.
type Report struct {
	// Admitted says that nothing is refused and all could be read.
	Admitted bool              `json:"admitted"`
	Pools    []Verdict         `json:"pools"`
	Errors   []*manifest.Error `json:"errors,omitempty"`
	Others   int               `json:"otherObjects"` // objects of other kinds

	strict bool // warnings, notes and GPUs that lack fail too
	quiet  bool // text has only what fails
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

// stopsRule is broken by command lines with which an engine ends at its start, or takes
// part in no transfer. A pool's are rendered by the operator.
func stopsRule() kvlayout.RuleInfo {
	return kvlayout.RuleInfo{
		ID: "command-stops", Scope: kvlayout.SideScope, Severity: kvlayout.Refuse,
		Description: "the engine takes its arguments, and takes part in a transfer with them",
		Reason:      "the engine stops at its start with it, or nothing is ever transferred",
	}
}

// Rules is the catalog of all rules that a verdict may name: those of the operator, and
// after them what an API server asks of a manifest, and what command lines alone can
// break.
func Rules() []kvlayout.RuleInfo {
	return slices.Concat(pdpool.Rules(), []kvlayout.RuleInfo{schemaRule(), stopsRule()}, engine.PairRules())
}

// judge is the verdict on a pool of a file. Where a value of it is lost, the rules are
// not asked.
func judge(p manifest.Pool) Verdict {
	if slices.ContainsFunc(p.Faults, func(f manifest.Fault) bool { return f.Lost || !f.Warns && f.Field == "spec" }) {
		return verdictOf(p, nil)
	}
	return verdictOf(p, pdpool.Check(p.PDPool))
}

// verdictOf is the verdict on a pool of a file in which the rules found problems.
func verdictOf(p manifest.Pool, found []kvlayout.Problem) Verdict {
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
	v.add(p, found)
	v.conclude()
	return v
}

// add adds what the rules find, but where the schema says as much of the same field.
func (v *Verdict) add(p manifest.Pool, found []kvlayout.Problem) {
	for _, f := range found {
		if !slices.ContainsFunc(p.Faults, func(t manifest.Fault) bool { return !t.Warns && !t.Meant && t.Field == f.Field }) {
			v.Problems = append(v.Problems, Problem{Problem: f, Place: p.FieldPlace(f.Field)})
		}
	}
}

// layoutOf is a layout as the spec has it.
func layoutOf(l v1alpha1.LayoutSpec) kvlayout.Layout {
	return kvlayout.Layout{TP: int(l.TP), DP: int(l.DP), DPLocal: int(l.DPLocal), DCP: int(l.DCP), Interleave: int(l.Interleave)}
}

// conclude sorts the problems and says what follows from them.
func (v *Verdict) conclude() {
	slices.SortStableFunc(v.Problems, func(a, b Problem) int { return cmp.Compare(weight(a), weight(b)) })
	v.Unread = slices.ContainsFunc(v.Notes, func(n Note) bool { return n.Kind == engine.Unread })
	v.Admitted = !v.Unread && !slices.ContainsFunc(v.Problems, refuses)
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

// fails says that the verdict alone lets a command fail.
func (v Verdict) fails(strict bool) bool {
	return !v.Admitted || strict && (len(v.Problems)+len(v.Notes) > 0 || v.lacksGPUs())
}

func (v Verdict) lacksGPUs() bool { return v.GPUs != nil && !v.GPUs.Available }

// end is the error that a command with this verdict ends with.
func (v Verdict) end() error {
	switch {
	case v.Unread:
		return errUnread
	case !v.Admitted:
		return ErrRefused
	}
	return nil
}

// end is the error that a command with this report ends with.
func (r Report) end() error {
	if len(r.Errors) > 0 {
		return errUnread
	}
	var err error
	for _, v := range r.Pools {
		switch {
		case v.Unread:
			return errUnread
		case v.fails(r.strict):
			err = ErrRefused
		}
	}
	return err
}

// beyondSchema is the verdict on a pool whose numbers are beyond all limits, so that
// nothing is computed with them.
func beyondSchema(p manifest.Pool) (v Verdict, beyond bool) {
	if !slices.ContainsFunc(p.Faults, func(f manifest.Fault) bool { return !f.Warns }) {
		return Verdict{}, false
	}
	return judge(p), true
}
