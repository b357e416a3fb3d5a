package conformance_test

import (
	"testing"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// The engine package knows some of the facts that rules depend on, for what it reads
// and renders. Both say the same.
func TestFactsAgree(t *testing.T) {
	same := map[engine.Feature]kvlayout.Feature{
		engine.MoriDCP: "dcp on decode with mori",
	}
	rules := map[kvlayout.Feature]kvlayout.Fact{}
	for _, f := range kvlayout.Facts() {
		rules[f.Feature] = f
	}
	seen := 0
	for _, f := range engine.Facts() {
		want, shared := same[f.Feature]
		if !shared {
			continue
		}
		seen++
		r, known := rules[want]
		if !known || r.Engine != f.Engine || r.Since != f.Since || r.Without != f.Without {
			t.Errorf("%s: %+v for the rules, %+v for the engine", f.Feature, r, f)
		}
	}
	if seen != len(same) {
		t.Errorf("%d of %d shared facts are in the engine's table", seen, len(same))
	}
}
