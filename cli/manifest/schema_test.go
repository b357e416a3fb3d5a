package manifest

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write schema.json")

const definition = "../../config/crd/bases/pdpool.dev_pdpools.yaml"

// TestSchemaIsTheDefinitions holds schema.json at what the CustomResourceDefinition
// says (go test ./cli/manifest -update writes it).
func TestSchemaIsTheDefinitions(t *testing.T) {
	text, err := os.ReadFile(definition)
	if err != nil {
		t.Fatal(err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema struct {
						Properties struct {
							Spec schema `json:"spec"`
						} `json:"properties"`
					} `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	// The definition has parts that bound nothing; decoding leaves them out.
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	s := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties.Spec
	prune(&s)
	want, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("schema.json", append(want, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(want)+"\n" != string(schemaText) {
		t.Error("schema.json is not what the CustomResourceDefinition says: go test ./cli/manifest -update")
	}
}

// prune removes schemas that bound nothing.
func prune(s *schema) bool {
	for name, inner := range s.Properties {
		if !prune(inner) {
			delete(s.Properties, name)
		}
	}
	if s.Items != nil && !prune(s.Items) {
		s.Items = nil
	}
	return len(s.Properties) > 0 || s.Items != nil || len(s.Required)+len(s.Enum) > 0 || s.Minimum != nil || s.Maximum != nil ||
		s.MinLength != nil || s.MaxLength != nil || s.MinItems != nil || s.MaxItems != nil || s.Pattern != ""
}

// TestExpressions holds that each rule between fields of the definition is known here.
func TestExpressions(t *testing.T) {
	text, err := os.ReadFile(definition)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	rule := regexp.MustCompile(`(?m)^( +)(?:- )?rule: ((?:.*\n)(?:.*\n)?(?:.*\n)?)`)
	for _, m := range rule.FindAllStringSubmatch(string(text), -1) {
		line := strings.Join(strings.Fields(m[2]), " ")
		if strings.Contains(line, "oldSelf") {
			continue
		}
		known := false
		for e := range expressions {
			known = known || strings.HasPrefix(strings.TrimPrefix(line, "'"), e) || strings.HasPrefix(strings.ReplaceAll(line, "''", "'"), "'"+e)
		}
		if !known {
			t.Errorf("the definition has a rule that is not known here: %s", line)
		}
		found++
	}
	if found != len(expressions) {
		t.Errorf("%d rules in the definition, %d here", found, len(expressions))
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct{ old, now, field, text, fix string }{
		{"type: Simulator", "type: simulator", "engine.type", `"simulator" is none of`, "write Simulator"},
		{"dcp: 4", "dcp: 0", "decode.layout.dcp", `0 is below 1`, "set it to 1 or more"},
		{"dcp: 4", "dcp: 4096", "decode.layout.dcp", `4096 is above 1024`, "set it to 1024 or less"},
		{"name: deepseek-ai/DeepSeek-R1", "name: ''", "model.name", "too short", "at least 1"},
		{"model: {name: deepseek-ai/DeepSeek-R1}", "model: {maxLength: 5}", "model.name", "is missing", "set model.name"},
		{"type: Simulator", "type: vLLM", "engine.image", "engine.image is missing", "set engine.image"},
		{"{name: deepseek-ai/DeepSeek-R1}", "{name: x, geometry: {kind: GQA, layers: 2, attentionHeads: 6, kvHeads: 4, headValues: 8}}", "model.geometry.kvHeads", "has to divide", "set"},
		{"{name: deepseek-ai/DeepSeek-R1}", "{name: x, geometry: {kind: MLA, layers: 2, attentionHeads: 6, kvHeads: 4, headValues: 8}}", "model.geometry.kvHeads", "though kind is MLA", "set"},
		{"type: Simulator", "type: Simulator\n  router: {mode: None, replicas: 2}", "router.mode", "no effect", "set"},
	} {
		got := Read("f.yaml", []byte(strings.Replace(good, c.old, c.now, 1)))
		if len(got.Pools) != 1 || len(got.Pools[0].Faults) != 1 {
			t.Errorf("%s: %+v", c.now, got)
			continue
		}
		f := got.Pools[0].Faults[0]
		if f.Field != c.field || !strings.Contains(f.Text, c.text) || !strings.Contains(f.Fix, c.fix) || f.Place.Line < 1 {
			t.Errorf("%s: %+v", c.now, f)
		}
	}
	if got := Read("f.yaml", []byte("apiVersion: pdpool.dev/v1alpha1\nkind: PDPool\nmetadata: {name: x}\n")); len(got.Pools) != 1 || len(got.Pools[0].Faults) == 0 {
		t.Errorf("no spec, no fault: %+v", got)
	}
}
