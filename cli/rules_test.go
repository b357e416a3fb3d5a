package cli

import (
	"os"
	"strings"
	"testing"
)

// TestRulesPageHasAll holds that docs/rules.md explains every rule that a command names.
func TestRulesPageHasAll(t *testing.T) {
	page, err := os.ReadFile("../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Rules() {
		if !strings.Contains(string(page), "\n## "+r.ID+"\n") {
			t.Errorf("docs/rules.md lacks %s: go run ./hack/rulesdocs", r.ID)
		}
	}
}
