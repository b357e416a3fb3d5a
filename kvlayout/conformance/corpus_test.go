package conformance_test

import (
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/kvlayout/conformance"
	"github.com/pdpool/pdpool/pdpool"
)

const leastEntries = 150

func corpus(t *testing.T) []conformance.Entry {
	t.Helper()
	entries, err := conformance.Load(os.DirFS("../testdata/conformance"))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// check is what decides on an entry: the layout rules, or all of a pool's.
func check(t *testing.T, e conformance.Entry) []kvlayout.Problem {
	t.Helper()
	if e.Pair != nil {
		return kvlayout.Compatible(*e.Pair)
	}
	var pool v1alpha1.PDPool
	if err := yaml.UnmarshalStrict(e.Pool, &pool); err != nil {
		t.Fatalf("%s/%s: %v", e.File, e.Name, err)
	}
	return pdpool.Check(&pool)
}

func TestConformance(t *testing.T) {
	entries := corpus(t)
	if len(entries) < leastEntries {
		t.Errorf("%d entries, at least %d are wanted", len(entries), leastEntries)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if seen[e.Name] {
			t.Errorf("%s/%s is there twice", e.File, e.Name)
		}
		seen[e.Name] = true
		if text := e.Mismatch(check(t, e)); text != "" {
			t.Errorf("%s/%s: %s", e.File, e.Name, text)
		}
	}
}

// Every layout rule has an entry that breaks it and one that keeps it; every refusing
// rule has one that it refuses.
func TestConformanceCoversRules(t *testing.T) {
	broken, refused, kept := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range corpus(t) {
		for _, p := range e.Problems {
			broken[p.Rule] = true
			refused[p.Rule] = refused[p.Rule] || p.Severity == kvlayout.Refuse
		}
		for _, id := range e.Holds {
			kept[id] = true
		}
	}
	all := pdpool.Rules()
	for id := range kept {
		if !slices.ContainsFunc(all, func(r kvlayout.RuleInfo) bool { return r.ID == id }) {
			t.Errorf("an entry is about the rule %s, which there is not", id)
		}
	}
	for _, r := range kvlayout.Rules() {
		if !broken[r.ID] || !kept[r.ID] {
			t.Errorf("rule %s: broken by an entry %v, kept by one %v", r.ID, broken[r.ID], kept[r.ID])
		}
		if r.Severity == kvlayout.Refuse && !refused[r.ID] {
			t.Errorf("rule %s refuses no entry", r.ID)
		}
	}
}
