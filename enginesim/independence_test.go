package enginesim

import (
	"go/build"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The simulator places rows by its own formula, so that an error of the agent's is
// not hidden by the same one here. What it needs of others may know layouts where
// it renders or encodes them: which packages those are is held here.
func TestIndependentOfLayouts(t *testing.T) {
	const module = "github.com/pdpool/pdpool/"
	layouts := module + "kvlayout"
	var importers []string
	seen := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		if seen[path] {
			return
		}
		seen[path] = true
		p, err := build.ImportDir(filepath.Join("..", filepath.FromSlash(strings.TrimPrefix(path, module))), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, dep := range p.Imports {
			if dep == layouts {
				importers = append(importers, strings.TrimPrefix(path, module))
			}
			if strings.HasPrefix(dep, module) && dep != layouts {
				visit(dep)
			}
		}
	}
	visit(module + "enginesim")
	slices.Sort(importers)
	if want := []string{"engine", "moriio"}; !slices.Equal(importers, want) {
		t.Errorf("kvlayout is brought in by %v, want %v", importers, want)
	}
	for _, path := range []string{"transferagent", "transferagent/session", "transferagent/fault/faultplan", "transferagent/transport"} {
		if seen[module+path] {
			t.Errorf("the simulator is built with %s, which it is there to check", path)
		}
	}
}
