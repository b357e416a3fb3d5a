package manifest

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// plain is a node as JSON has it, by the rules of YAML 1.1, as kubectl reads files:
// yes and on are booleans there.
func plain(n *yaml.Node) any {
	switch n = aliased(n); n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for _, merged := range merges(n) {
			maps.Copy(out, merged)
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if key := aliased(n.Content[i]); key.Kind == yaml.ScalarNode && !isMerge(key) {
				out[key.Value] = plain(n.Content[i+1])
			}
		}
		return out
	case yaml.SequenceNode:
		out := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			out = append(out, plain(item))
		}
		return out
	case yaml.ScalarNode:
		return scalar(n)
	default:
		return nil
	}
}

func isMerge(key *yaml.Node) bool { return key.ShortTag() == "!!merge" }

// merges are the maps that << brings in, those that count least first.
func merges(n *yaml.Node) []map[string]any {
	var out []map[string]any
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !isMerge(n.Content[i]) {
			continue
		}
		sources := []*yaml.Node{aliased(n.Content[i+1])}
		if sources[0].Kind == yaml.SequenceNode {
			sources = slices.Clone(sources[0].Content)
			slices.Reverse(sources)
		}
		for _, s := range sources {
			if m, ok := plain(s).(map[string]any); ok {
				out = append(out, m)
			}
		}
	}
	return out
}

func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		var i int64
		if n.Decode(&i) == nil {
			return json.Number(strconv.FormatInt(i, 10))
		}
	case "!!binary":
		var s string
		if n.Decode(&s) == nil {
			return s
		}
	case "!!float":
		var f float64
		if n.Decode(&f) == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	case "!!str":
		if n.Style == 0 {
			if b, ok := oldBool(n.Value); ok {
				return b
			}
		}
	}
	return n.Value
}

// isBinary says that a value is base64, which stands for what it encodes.
func isBinary(n *yaml.Node) bool {
	var s string
	return n.Decode(&s) == nil
}

// oldBool is a boolean of YAML 1.1 that 1.2 has no more.
func oldBool(value string) (is, ok bool) {
	switch value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// trail is where a node stands, from the inside out. It becomes a text only where
// something is said of the node, as keys may be long and nodes many.
type trail struct {
	around *trail
	step   string // with its dot or brackets
}

func (t *trail) String() string {
	var parts []string
	for ; t != nil; t = t.around {
		parts = append(parts, t.step)
	}
	slices.Reverse(parts)
	return strings.TrimPrefix(strings.Join(parts, ""), ".")
}

// duplicates adds keys that a map has twice. kubectl takes the last of them and says
// nothing.
func (d document) duplicates(n *yaml.Node, path *trail, out []Fault) []Fault {
	switch n.Kind {
	case yaml.MappingNode:
		first := make(map[string]*yaml.Node, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content) && len(out) <= MaxFaults; i += 2 {
			key := n.Content[i]
			at := &trail{path, "." + key.Value}
			if before, ok := first[key.Value]; ok && key.Kind == yaml.ScalarNode && !isMerge(key) {
				out = append(out, Fault{
					Field: below(at.String()), Place: d.place(key), Warns: true, Fix: "remove one of them",
					Text: "it is given twice, and what line " + strconv.Itoa(d.base+before.Line) + " says does not count",
				})
			}
			first[key.Value] = key
			out = d.duplicates(n.Content[i+1], at, out)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			out = d.duplicates(item, &trail{path, "[" + strconv.Itoa(i) + "]"}, out)
		}
	default:
	}
	return out
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
