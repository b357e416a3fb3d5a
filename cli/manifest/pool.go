package manifest

import (
	"encoding/json"
	"errors"
	"slices"
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
	// Lost says that what the field is meant to say is not known, so that nothing can
	// be said of the rest either.
	Lost bool
	// Meant says that what it is meant to say is known, and counts for the rest.
	Meant bool
	// Warns says that the object is taken all the same.
	Warns bool
}

// Identity is namespace/name, or the name alone.
func (p Pool) Identity() string {
	name := clip(p.Name, mostOfField)
	if name == "" && p.GenerateName != "" {
		name = clip(p.GenerateName, mostOfField) + "*"
	}
	if name == "" {
		name = "(no name)"
	}
	if p.Namespace != "" {
		return clip(p.Namespace, mostOfField) + "/" + name
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
		key, value := d.keys.child(n, step)
		if key == nil {
			break
		}
		at, n = d.place(key), value
	}
	return at
}

// maxMisfits bounds the values of a wrong type that are told of one object.
const maxMisfits = 20

// pool decodes an object as an API server would. A value of a type that its field
// does not take is told and left out, so that the others are looked at.
func (c *Content) pool(d document) {
	if len(c.Pools) >= MaxPools {
		c.fail(d.place(d.node), "the file has more than %d PDPools, and nothing from here on is read", MaxPools)
		c.full = true
		return
	}
	p := Pool{PDPool: &v1alpha1.PDPool{}, Place: d.place(d.node), doc: d}
	object, _ := plain(d.node).(map[string]any)
	unknown, err := p.decode(object)
	for range maxMisfits {
		at := misfit(err)
		if at == nil {
			break
		}
		f := Fault{Field: below(at.Field), Place: d.find(steps(at.Field)), Text: "it takes " + taken(at) + ", and this is a " + at.Value, Fix: "give " + taken(at)}
		meant, isNumber := d.quoted(at)
		if isNumber {
			f.Fix = "write " + meant.String() + " without quotes"
		}
		if !correct(object, steps(at.Field), meant) {
			break
		}
		f.Lost, f.Meant = !isNumber, isNumber
		p.Faults = append(p.Faults, f)
		unknown, err = p.decode(object)
	}
	if err != nil {
		c.fail(p.Place, "the object can't be read as a PDPool: %v", err)
		return
	}
	misfits := len(p.Faults)
	for _, err := range unknown {
		p.Faults = append(p.Faults, d.fault(err))
	}
	limits := slices.DeleteFunc(d.limits(object), func(f Fault) bool { return p.wrong(f.Field) })
	if len(limits)+misfits == 0 { // else they may follow from those
		limits = d.related(p.PDPool)
	}
	p.Faults = append(p.Faults, limits...)
	p.Faults = append(p.Faults, d.duplicates(d.node, nil, nil)...)
	p.bound()
	c.Pools = append(c.Pools, p)
}

// Most characters that are cited of what a file says.
const (
	mostOfField = 253
	mostOfText  = 500
)

// bound keeps the first faults, in short, and says that there are more.
func (p *Pool) bound() {
	for i, f := range p.Faults {
		p.Faults[i].Field, p.Faults[i].Text = clip(f.Field, mostOfField), clip(f.Text, mostOfText)
	}
	if len(p.Faults) <= MaxFaults {
		return
	}
	more := Fault{Place: p.Place, Warns: true, Text: "there are more faults than the " + strconv.Itoa(MaxFaults) + " that are told", Fix: "mend those, and check again"}
	for _, f := range p.Faults[MaxFaults:] {
		more.Warns = more.Warns && f.Warns
		more.Lost = more.Lost || f.Lost
	}
	p.Faults = append(p.Faults[:MaxFaults:MaxFaults], more)
}

// decode reads the object anew, and returns the fields that there are not.
func (p *Pool) decode(object map[string]any) (unknown []error, err error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	p.PDPool = &v1alpha1.PDPool{}
	return kjson.UnmarshalStrict(text, p.PDPool, kjson.DisallowUnknownFields)
}

// wrong says that a field has a fault already.
func (p *Pool) wrong(field string) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Field == field && !f.Warns })
}

// misfit is the value that a field does not take; nil for other errors.
func misfit(err error) *json.UnmarshalTypeError {
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return wrong
	}
	return nil
}

// correct puts what is meant in the place of a value, or takes it out where that is
// not known, and says whether the value was there.
func correct(value any, path []string, meant json.Number) bool {
	if len(path) == 0 {
		return false
	}
	switch v := value.(type) {
	case map[string]any:
		inner, ok := v[path[0]]
		switch {
		case !ok:
			return false
		case len(path) > 1:
			return correct(inner, path[1:], meant)
		case meant != "":
			v[path[0]] = meant
		default:
			delete(v, path[0])
		}
		return true
	case []any: // the error names no index
		found := false
		for _, item := range v {
			found = correct(item, path, "") || found
		}
		return found
	}
	return false
}

// quoted is the whole number that a text in its place is meant as.
func (d document) quoted(wrong *json.UnmarshalTypeError) (json.Number, bool) {
	n := d.node
	for _, step := range steps(wrong.Field) {
		_, n = child(n, step)
	}
	if n == nil || n.Kind != yaml.ScalarNode || !strings.HasPrefix(wrong.Type.Kind().String(), "int") {
		return "", false
	}
	i, err := strconv.ParseInt(n.Value, 10, 32)
	if err != nil {
		return "", false
	}
	return json.Number(strconv.FormatInt(i, 10)), true
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
