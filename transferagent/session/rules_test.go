package session_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestRulesAreExplained: whoever meets a rule finds what happened and what to do.
func TestRulesAreExplained(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "rules.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for row := range strings.Lines(string(docs)) {
		cells := strings.Split(row, "|")
		if len(cells) != 5 || strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			explained[strings.Trim(name, " `")] = true
		}
	}
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Rule") {
			return true
		}
		found++
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || !explained[value] {
			t.Errorf("docs/protocol.md does not explain %s: %q, %v", spec.Names[0].Name, value, err)
		}
		return true
	})
	if found < 20 {
		t.Errorf("rules.go has %d rules", found)
	}
}

// TestEachDeadlineIsNamed: a script shows each deadline by its name, at the side whose
// wait it is.
func TestEachDeadlineIsNamed(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	line := regexp.MustCompile(`(?m)^  t\d (prefill|decode) fail(?:ed|ing) .*?(deadline-[a-z]+|[a-z]+-silent):`)
	for _, file := range files {
		script, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(script), -1) {
			shown[m[1]+" "+m[2]] = true
		}
	}
	for _, want := range []string{
		"prefill deadline-handshake", "decode deadline-handshake", "prefill deadline-defer", "prefill prefill-silent",
		"decode decode-silent", "prefill deadline-transfer", "decode deadline-receive",
	} {
		if !shown[want] {
			t.Errorf("no script shows %s", want)
		}
	}
}
