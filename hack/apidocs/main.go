// Command apidocs writes docs/fields.md from the CustomResourceDefinition: every
// field with its type, default, bounds and meaning. Run it from the root of the repository.
package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const (
	from = "config/crd/bases/pdpool.dev_pdpools.yaml"
	to   = "docs/fields.md"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "apidocs: "+err.Error())
		os.Exit(1)
	}
}

func run() error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if len(crd.Spec.Versions) != 1 {
		return fmt.Errorf("%s has %d versions, expected one", from, len(crd.Spec.Versions))
	}
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	var out strings.Builder
	out.WriteString("# Fields of a PDPool\n\nMade by `make generate` from the CustomResourceDefinition; do not edit. `kubectl explain pdpool.spec` tells the same.\n")
	for _, part := range []string{"spec", "status"} {
		schema := root.Properties[part]
		fmt.Fprintf(&out, "\n## %s\n\n| field | type | meaning |\n|---|---|---|\n", part)
		rows(&out, "", &schema)
	}
	return os.WriteFile(to, []byte(out.String()), 0o644)
}

// rows writes a row per field, depth first. Types of Kubernetes itself are not opened.
func rows(out *strings.Builder, prefix string, schema *apiextensionsv1.JSONSchemaProps) {
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		field := schema.Properties[name]
		required := ""
		if slices.Contains(schema.Required, name) {
			required = ", required"
		}
		fmt.Fprintf(out, "| `%s%s` | %s%s | %s |\n", prefix, name, kind(&field), required, meaning(&field))
		if opaque[name] {
			continue
		}
		rows(out, prefix+name+".", &field)
		if field.Items != nil && field.Items.Schema != nil {
			rows(out, prefix+name+"[].", field.Items.Schema)
		}
	}
}

// opaque are fields whose type is Kubernetes' own.
var opaque = map[string]bool{"env": true, "resources": true, "conditions": true, "template": true}

func kind(field *apiextensionsv1.JSONSchemaProps) string {
	if len(field.Enum) > 0 {
		var values []string
		for _, v := range field.Enum {
			values = append(values, strings.Trim(string(v.Raw), `"`))
		}
		return strings.Join(values, " \\| ")
	}
	out := cmp.Or(field.Type, "quantity")
	if field.Type == "array" && field.Items != nil && field.Items.Schema != nil {
		out = "list of " + cmp.Or(field.Items.Schema.Type, "object")
	}
	if field.Minimum != nil && field.Maximum != nil {
		out += fmt.Sprintf(" %.0f..%.0f", *field.Minimum, *field.Maximum)
	}
	if field.Default != nil && field.Type != "object" {
		out += ", default " + string(field.Default.Raw)
	}
	return out
}

func meaning(field *apiextensionsv1.JSONSchemaProps) string {
	text := strings.Join(strings.Fields(field.Description), " ")
	return strings.ReplaceAll(text, "|", "\\|")
}
