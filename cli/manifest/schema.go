package manifest

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// schemaText is the part of the CustomResourceDefinition's schema that bounds values
// of a spec. A test makes it from the definition and holds it there.
//
//go:embed schema.json
var schemaText []byte

// schema is what a value may be.
type schema struct {
	Properties map[string]*schema `json:"properties,omitempty"`
	Items      *schema            `json:"items,omitempty"`
	Required   []string           `json:"required,omitempty"`
	Enum       []string           `json:"enum,omitempty"`
	Minimum    *float64           `json:"minimum,omitempty"`
	Maximum    *float64           `json:"maximum,omitempty"`
	MinLength  *int               `json:"minLength,omitempty"`
	MaxLength  *int               `json:"maxLength,omitempty"`
	MinItems   *int               `json:"minItems,omitempty"`
	MaxItems   *int               `json:"maxItems,omitempty"`
	Pattern    string             `json:"pattern,omitempty"`

	pattern *regexp.Regexp // compiled; nil without one
}

// compile compiles the patterns of a schema, of which a list has one for all values.
func (s *schema) compile() {
	if s == nil {
		return
	}
	if s.Pattern != "" {
		s.pattern = regexp.MustCompile(s.Pattern)
	}
	s.Items.compile()
	for _, inner := range s.Properties {
		inner.compile()
	}
}

// specSchema is that of a spec.
var specSchema = sync.OnceValue(func() *schema {
	s := &schema{}
	if err := json.Unmarshal(schemaText, s); err != nil {
		panic("the schema that is built in: " + err.Error())
	}
	s.compile()
	return s
})

// limits are the values of a spec that an API server refuses by the schema. The
// object is as plain has it.
func (d document) limits(object map[string]any) []Fault {
	spec, ok := object["spec"].(map[string]any)
	if !ok {
		return []Fault{{Field: "spec", Place: d.place(d.node), Text: "spec is missing", Fix: "set spec"}}
	}
	h := holder{d: d}
	h.hold(specSchema(), spec, "")
	slices.SortStableFunc(h.faults, func(a, b Fault) int { return cmp.Compare(a.Place.Line, b.Place.Line) })
	return h.faults
}

// holder holds the values of a document at a schema.
type holder struct {
	d      document
	faults []Fault
}

func (h *holder) fault(path, text, fix string) {
	if len(h.faults) > MaxFaults {
		return
	}
	h.faults = append(h.faults, Fault{Field: path, Place: h.d.find(steps("spec." + path)), Text: text, Fix: fix})
}

func (h *holder) hold(s *schema, value any, path string) {
	if s == nil || len(h.faults) > MaxFaults {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if v[name] == nil {
				h.fault(join(path, name), join(path, name)+" is missing", "set "+join(path, name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			h.hold(s.Properties[name], v[name], join(path, name))
		}
	case []any:
		h.list(s, v, path)
	case string:
		if text, fix := s.refuses(v); text != "" {
			h.fault(path, fmt.Sprintf("%q %s", clip(v, mostOfValue), text), fix)
		}
	case json.Number:
		if text, fix := s.bounds(v.String()); text != "" {
			h.fault(path, v.String()+" "+text, fix)
		}
	}
}

func (h *holder) list(s *schema, list []any, path string) {
	if s.MinItems != nil && len(list) < *s.MinItems {
		h.fault(path, fmt.Sprintf("it has %d entries, and needs %d", len(list), *s.MinItems), "add some")
	}
	if s.MaxItems != nil && len(list) > *s.MaxItems {
		h.fault(path, fmt.Sprintf("it has %d entries, more than %d", len(list), *s.MaxItems), "remove some")
	}
	for i, item := range list {
		h.hold(s.Items, item, path+"["+strconv.Itoa(i)+"]")
	}
}

// refuses says why a plain value is none that the field takes, and what to do.
func (s *schema) refuses(value string) (text, fix string) {
	switch {
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, value):
		fix = "write one of them"
		for _, e := range s.Enum {
			if strings.EqualFold(e, value) {
				fix = "write " + e
			}
		}
		return "is none of " + strings.Join(s.Enum, ", "), fix
	case s.MinLength != nil && utf8.RuneCountInString(value) < *s.MinLength:
		return "is too short", fmt.Sprintf("give at least %d characters", *s.MinLength)
	case s.MaxLength != nil && utf8.RuneCountInString(value) > *s.MaxLength:
		return "is too long", fmt.Sprintf("give at most %d characters", *s.MaxLength)
	case s.pattern != nil && !s.pattern.MatchString(value):
		return "does not match " + s.Pattern, "write it so"
	}
	return "", ""
}

func (s *schema) bounds(value string) (text, fix string) {
	f, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil:
	case s.Minimum != nil && f < *s.Minimum:
		return fmt.Sprintf("is below %v", *s.Minimum), fmt.Sprintf("set it to %v or more", *s.Minimum)
	case s.Maximum != nil && f > *s.Maximum:
		most := strconv.FormatFloat(*s.Maximum, 'f', -1, 64)
		return "is above " + most, "set it to " + most + " or less"
	}
	return "", ""
}

// mostOfValue are the characters of a value that are cited.
const mostOfValue = 60

// clip shortens what is cited.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := 0
	for i := range s {
		if n++; n > most {
			return s[:i] + "..."
		}
	}
	return s
}

// expressions are the rules of the schema that relate fields (CEL), but for those on
// updates, by their text: each returns the field that breaks it, or "".
var expressions = map[string]func(*v1alpha1.PDPoolSpec) (field, text string){
	// Rule kv-memory refuses all of these, and others, and says more.
	`type(self) == int ? self > 0 : !string(self).matches('[eE][+-]?0*[1-9][0-9]{2}|^-')`: func(*v1alpha1.PDPoolSpec) (string, string) {
		return "", ""
	},
	"self.kind != 'MLA' || !has(self.kvHeads) || self.kvHeads == 1": func(s *v1alpha1.PDPoolSpec) (string, string) {
		if g := s.Model.Geometry; g.Kind == v1alpha1.GeometryMLA && g.KVHeads > 1 {
			return "model.geometry.kvHeads", "kvHeads is set though kind is MLA, whose latent all heads share"
		}
		return "", ""
	},
	"self.kind != 'GQA' || (has(self.kvHeads) && self.attentionHeads % self.kvHeads == 0)": func(s *v1alpha1.PDPoolSpec) (string, string) {
		if g := s.Model.Geometry; g.Kind == v1alpha1.GeometryGQA && (g.KVHeads < 1 || g.AttentionHeads%g.KVHeads != 0) {
			return "model.geometry.kvHeads", fmt.Sprintf("kvHeads is %d, and with kind GQA has to divide attentionHeads (%d)", g.KVHeads, g.AttentionHeads)
		}
		return "", ""
	},
	"self.mode != 'None' || (!has(self.replicas) && !has(self.image) && !has(self.resources))": func(s *v1alpha1.PDPoolSpec) (string, string) {
		if r := s.Router; r.Mode == v1alpha1.RouterNone && (r.Replicas != 0 || r.Image != "" || r.Resources != nil) {
			return "router.mode", "with router.mode None, replicas, image and resources of the router have no effect"
		}
		return "", ""
	},
	"self.engine.type == 'Simulator' || has(self.engine.image) || (has(self.prefill.image) && has(self.decode.image))": func(s *v1alpha1.PDPoolSpec) (string, string) {
		if s.Engine.Type != v1alpha1.EngineSimulator && s.Engine.Image == "" && (s.Prefill.Image == "" || s.Decode.Image == "") {
			return "engine.image", "engine.image is missing, and no image is known that serves the model"
		}
		return "", ""
	},
}

// related are the rules between fields that a pool breaks.
func (d document) related(pool *v1alpha1.PDPool) []Fault {
	var out []Fault
	for _, check := range expressions {
		if field, text := check(&pool.Spec); field != "" {
			out = append(out, Fault{Field: field, Place: d.find(steps("spec." + field)), Text: text, Fix: "set " + field + ", or remove what it is about"})
		}
	}
	slices.SortFunc(out, func(a, b Fault) int { return strings.Compare(a.Field, b.Field) })
	return out
}
