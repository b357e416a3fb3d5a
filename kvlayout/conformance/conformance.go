// Package conformance reads the corpus of pairs and pools with what the rules say of
// them, kvlayout/testdata/conformance. Its README describes the format.
package conformance

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/kvlayout"
)

// Verdict sums up the problems of an entry.
type Verdict string

// The verdicts: no problem, warnings only, a refusal.
const (
	Accept Verdict = "accept"
	Warn   Verdict = "warn"
	Refuse Verdict = "refuse"
)

// Entry is one case: a pair of layouts or the manifest of a pool, and what the rules
// say of it.
type Entry struct {
	Name string `json:"name"` // one in the corpus
	// Model is a Hugging Face name in kvlayout's catalog, whose geometry Pair gets.
	Model string         `json:"model,omitempty"`
	Pair  *kvlayout.Pair `json:"pair,omitempty"`
	// Pool is a PDPool, in place of Pair.
	Pool    json.RawMessage `json:"pool,omitempty"`
	Verdict Verdict         `json:"verdict"`
	// Problems are all that the rules find, in any order.
	Problems []Problem `json:"problems,omitempty"`
	// Holds names rules that the entry is about and that it keeps.
	Holds []string `json:"holds,omitempty"`
	// Prevents is what the engine does without the refusal, or what was observed.
	Prevents string `json:"prevents"`
	Source   string `json:"source"`
	File     string `json:"-"` // that it is from
}

// Problem is a broken rule. Field may be left out.
type Problem struct {
	Rule     string            `json:"rule"`
	Severity kvlayout.Severity `json:"severity"`
	Field    string            `json:"field,omitempty"`
}

// Load reads all entries of the YAML files in a folder, in the order of the files'
// names. A field that is not known is an error.
func Load(folder fs.FS) ([]Entry, error) {
	files, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		return nil, err
	}
	var all []Entry
	for _, file := range files {
		text, err := fs.ReadFile(folder, file)
		if err != nil {
			return nil, err
		}
		var entries []Entry
		if err := yaml.UnmarshalStrict(text, &entries); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for i := range entries {
			e := &entries[i]
			e.File = strings.TrimSuffix(path.Base(file), ".yaml")
			if err := e.complete(); err != nil {
				return nil, fmt.Errorf("%s: entry %d, %q: %w", file, i+1, e.Name, err)
			}
		}
		all = append(all, entries...)
	}
	return all, nil
}

func (e *Entry) complete() error {
	switch {
	case e.Name == "" || e.Source == "" || e.Prevents == "":
		return fmt.Errorf("name, prevents and source are needed")
	case (e.Pair == nil) == (len(e.Pool) == 0):
		return fmt.Errorf("either pair or pool is needed")
	case e.Verdict != e.sum():
		return fmt.Errorf("verdict %q does not fit the problems", e.Verdict)
	case e.Model == "":
		return nil
	}
	m, ok := kvlayout.LookupModel(e.Model)
	if !ok || e.Pair == nil {
		return fmt.Errorf("model %s is not in the catalog, or there is no pair for it", e.Model)
	}
	e.Pair.Model = &m
	if g, ok := m.Geometry(); ok {
		e.Pair.Geometry, e.Pair.HasGeometry = g, true
	}
	return nil
}

func (e *Entry) sum() Verdict {
	verdict := Accept
	for _, p := range e.Problems {
		if p.Severity == kvlayout.Refuse {
			return Refuse
		}
		verdict = Warn
	}
	return verdict
}

// Mismatch compares what the rules say with the entry; "" is none, else it lists what
// is missing and what is not in the entry.
func (e *Entry) Mismatch(found []kvlayout.Problem) string {
	var parts []string
	left := append([]kvlayout.Problem(nil), found...)
	for _, want := range e.Problems {
		at := -1
		for i, p := range left {
			if p.Rule == want.Rule && p.Severity == want.Severity && (want.Field == "" || want.Field == p.Field) {
				at = i
				break
			}
		}
		if at < 0 {
			parts = append(parts, fmt.Sprintf("missing %s %s %s", want.Severity, want.Rule, want.Field))
			continue
		}
		left = append(left[:at], left[at+1:]...)
	}
	for _, p := range left {
		parts = append(parts, fmt.Sprintf("unexpected %s %s (%s)", p.Severity, p.String(), p.Field))
	}
	for _, rule := range e.Holds {
		for _, p := range found {
			if p.Rule == rule {
				parts = append(parts, "should keep "+rule)
			}
		}
	}
	return strings.Join(parts, "; ")
}
