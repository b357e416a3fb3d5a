// Package docs holds that what the pages name is there: paths, links, make targets.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var (
	link   = regexp.MustCompile(`\]\(([^)#]+)\)`)
	quoted = regexp.MustCompile("`([^`\n]+)`")
	target = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`)
	// folder begins what is a path of the repository rather than of a pod or an API.
	folder = regexp.MustCompile(`^(api|kvlayout|engine|pdpool|controllers|webhook|moriio|zmtp|transferagent|router|enginesim|cmd|charts|config|hack|test|docs|\.ci)/`)
)

func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/design/*.md", "hack/devcluster/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out[file] = string(text)
		}
	}
	if len(out) < 6 {
		t.Fatalf("only %d pages found", len(out))
	}
	return out
}

func TestLinksLead(t *testing.T) {
	for page, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: link to %s: %v", page, m[1], err)
			}
		}
	}
}

func TestPathsExist(t *testing.T) {
	for page, text := range pages(t) {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			path := strings.Fields(m[1])[0]
			if !folder.MatchString(path) || strings.ContainsAny(path, "*<>=:{") {
				continue
			}
			_, fromRoot := os.Stat(filepath.Join(root, path))
			_, fromPage := os.Stat(filepath.Join(filepath.Dir(page), path))
			if fromRoot != nil && fromPage != nil {
				t.Errorf("%s names %s, which does not exist", page, path)
			}
		}
	}
}

func TestMakeTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range pages(t) {
		for _, code := range quoted.FindAllStringSubmatch(text, -1) {
			for _, m := range target.FindAllStringSubmatch(code[1], -1) {
				if !strings.Contains(string(makefile), "\n"+m[1]+":") {
					t.Errorf("%s names make %s, which is no target", page, m[1])
				}
			}
		}
	}
}
