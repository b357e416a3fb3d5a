// Command chartcopy writes the parts of the chart that controller-gen makes: the
// CustomResourceDefinition, with the policy that an uninstall keeps it, and the
// manager's ClusterRole. Run it from the root of the repository.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	templates = "charts/pdpool/templates"
	generated = "# Made by `make generate` from %s; do not edit.\n"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "chartcopy: "+err.Error())
		os.Exit(1)
	}
}

func run() error {
	crd := "config/crd/bases/pdpool.dev_pdpools.yaml"
	if err := rewrite(crd, filepath.Join(templates, "crd.yaml"), "  annotations:\n",
		"  annotations:\n    helm.sh/resource-policy: keep\n"); err != nil {
		return err
	}
	return rewrite("config/rbac/role.yaml", filepath.Join(templates, "manager-role.yaml"), "  name: pdpool-manager\n",
		"  name: pdpool-manager\n  labels:\n    {{- include \"pdpool.labels\" . | nindent 4 }}\n")
}

// rewrite copies a manifest with one replacement, which must find its place exactly once.
func rewrite(from, to, old, replacement string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if bytes.Contains(text, []byte("{{")) {
		return fmt.Errorf("%s holds \"{{\", which a chart would execute", from)
	}
	if n := strings.Count(string(text), old); n != 1 {
		return fmt.Errorf("%s holds %q %d times, expected once", from, old, n)
	}
	out := fmt.Sprintf(generated, from) + strings.TrimPrefix(strings.Replace(string(text), old, replacement, 1), "---\n")
	return os.WriteFile(to, []byte(out), 0o644)
}
