package manifest

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// Pool is a PDPool of a file.
type Pool struct {
	*v1alpha1.PDPool
	// Place is where the object begins.
	Place Place
	// Faults are what an API server refuses before anything else is looked at:
	// fields that there are not, and values that a field does not take.
	Faults []Fault

	doc document
}

// Fault is a field that is not as the API has it.
type Fault struct {
	// Field is the path as in kvlayout.Problem: below spec, or with metadata in front.
	Field string
	Text  string
	Place Place
	Fix   string
	// Warns says that the object is taken all the same.
	Warns bool
}

// Identity is namespace/name, or the name alone.
func (p Pool) Identity() string {
	name := p.Name
	if name == "" && p.GenerateName != "" {
		name = p.GenerateName + "*"
	}
	if name == "" {
		name = "(no name)"
	}
	if p.Namespace != "" {
		return p.Namespace + "/" + name
	}
	return name
}

// FieldPlace is where a field stands: its key, or where it is not set, that of the
// innermost field around it that is.
func (p Pool) FieldPlace(field string) Place {
	if !strings.HasPrefix(field, "metadata.") {
		field = "spec." + field
	}
	return p.doc.find(steps(field))
}

// steps cuts a path such as spec.engine.args[3] at its dots and brackets.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

func (d document) find(path []string) Place {
	at, n := d.place(d.node), d.node
	for _, step := range path {
		if n.Kind == yaml.SequenceNode {
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(n.Content) {
				break
			}
			n = n.Content[i]
			at = d.place(n)
			n = aliased(n)
			continue
		}
		key, value := child(n, step)
		if key == nil {
			break
		}
		at, n = d.place(key), value
	}
	return at
}

// pool decodes an object as an API server would.
func (c *Content) pool(d document) {
	p := Pool{PDPool: &v1alpha1.PDPool{}, Place: d.place(d.node), doc: d}
	object, _ := plain(d.node).(map[string]any)
	text, err := json.Marshal(object)
	if err != nil {
		c.fail(p.Place, "the object can't be written as JSON: %v", err)
		return
	}
	unknown, err := kjson.UnmarshalStrict(text, p.PDPool, kjson.DisallowUnknownFields)
	if err != nil {
		c.fail(d.unmarshalPlace(err), "%s", misfit(err))
		return
	}
	for _, err := range unknown {
		p.Faults = append(p.Faults, d.fault(err))
	}
	limits := d.limits(object)
	if len(limits) == 0 { // else they may follow from those
		limits = d.related(p.PDPool)
	}
	p.Faults = append(p.Faults, limits...)
	p.Faults = append(p.Faults, d.duplicates(d.node, "")...)
	c.Pools = append(c.Pools, p)
}

// unmarshalPlace is where the value stands that a field does not take.
func (d document) unmarshalPlace(err error) Place {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return d.find(steps(wrong.Field))
	}
	return d.place(d.node)
}

func misfit(err error) string {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return wrong.Field + " takes " + taken(wrong) + ", not a " + wrong.Value
	}
	return "the object can't be read as a PDPool: " + err.Error()
}

func taken(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); {
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	case kind == "slice":
		return "a list"
	case kind == "struct", kind == "map":
		return "a map"
	default:
		return "a " + kind
	}
}

func (d document) fault(err error) Fault {
	f := Fault{Text: err.Error(), Place: d.place(d.node), Fix: "remove it, or look its name up in docs/fields.md"}
	if at, ok := errors.AsType[kjson.FieldError](err); ok {
		f.Field = below(at.FieldPath())
		f.Place = d.find(steps(at.FieldPath()))
	}
	return f
}

// below is a path as problems have it: without spec in front.
func below(path string) string { return strings.TrimPrefix(path, "spec.") }
