package cli

import (
	"bytes"
	"os"
	"testing"

	"github.com/pdpool/pdpool/cli/manifest"
)

// FuzzPlan holds that whatever a file holds, it is judged, planned and drawn.
func FuzzPlan(f *testing.F) {
	for _, name := range []string{"r1", "llama", "kimi", "refused"} {
		text, err := os.ReadFile("testdata/manifests/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, 1000, int64(500))
	}
	f.Fuzz(func(t *testing.T, text []byte, tokens int, blocks int64) {
		if len(text) > 16<<10 || tokens < 1 || tokens > maxTokens || blocks < 0 {
			return
		}
		for _, p := range manifest.Read("f", text).Pools {
			if _, beyond := beyondSchema(p); beyond {
				continue
			}
			planAndDraw(t, p, tokens, blocks)
		}
	})
}

func planAndDraw(t *testing.T, p manifest.Pool, tokens int, blocks int64) {
	t.Helper()
	var out bytes.Buffer
	o := Options{Out: &out}
	s, _ := setupOf(p)
	if err := s.remember(memoryFlags{blocks: blocks}); err != nil {
		t.Fatal(err)
	}
	plan := s.plan(tokens)
	if err := o.planText(plan); err != nil {
		t.Fatal(err)
	}
	if max(plan.Prefill.Layout.TP, plan.Decode.Layout.TP) <= maxColumns {
		if err := o.planSVG(plan); err != nil {
			t.Fatal(err)
		}
	}
	var sum int64
	for _, w := range plan.Transfer.Writers {
		if w.Bytes < 1 {
			t.Errorf("a flow of %d bytes", w.Bytes)
		}
		sum += w.Bytes
	}
	if sum != plan.Transfer.Bytes {
		t.Errorf("%d bytes in all, flows of %d", plan.Transfer.Bytes, sum)
	}
}
