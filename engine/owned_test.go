package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwnersAreFields holds that the fields which stand for flags and variables are
// fields of a pool.
func TestOwnersAreFields(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "fields.md"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, o owner) {
		field := o.field
		if o.perRole {
			field = "decode." + field
		}
		if field != "" && !strings.Contains(string(page), "`"+field+"`") && !strings.Contains(string(page), "`"+field+".") {
			t.Errorf("%s is said to be %s, which a pool has not", name, field)
		}
	}
	for _, d := range []dialect{vllmDialect, sglangDialect} {
		for _, k := range d.flags {
			check("--"+k.name, k.owner)
		}
		for name, o := range d.env {
			check(name, o)
		}
	}
}
