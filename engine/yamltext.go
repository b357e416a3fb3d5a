package engine

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlBudget bounds what it may cost to parse a text as YAML, in bytes.
const yamlBudget = 500 << 10

// parseYAML gives the documents of a text. It refuses what would take too much memory
// before it begins.
func parseYAML(text string) ([]*yaml.Node, error) {
	if err := fewNodes(text); err != nil {
		return nil, err
	}
	var out []*yaml.Node
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc yaml.Node
		switch err := d.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, fmt.Errorf("it is no YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		out = append(out, doc.Content...)
	}
}

// fewNodes says whether a text has few enough pieces to be parsed as YAML. What a
// piece costs was measured.
func fewNodes(text string) error {
	cost := 12 * len(text)
	for _, c := range []struct {
		piece string
		bytes int
	}{
		{"[", 700}, {"{", 700}, {",", 300}, {": ", 550}, {":\n", 550}, {"- ", 800}, {"-\n", 800}, {"? ", 800}, {"\n", 50}, {"*", 500}, {"&", 300},
	} {
		cost += strings.Count(text, c.piece) * c.bytes
	}
	if cost > yamlBudget {
		return fmt.Errorf("YAML of %d bytes in so many pieces is not read: give the container's command alone", len(text))
	}
	return nil
}

var (
	// yamlStart is how a text of YAML or JSON begins, and no command.
	yamlStart = regexp.MustCompile(`^(\[|\{\s*"|- |---(\s|$)|[A-Za-z_][\w.-]*:(\s|$))`)
	// chartValue is what the templates of a Helm chart take from it.
	chartValue = regexp.MustCompile(`\{\{[^}]*\.(Values|Release|Chart|Capabilities)\b`)
	// yamlCommand is a line that has a container's command.
	yamlCommand = regexp.MustCompile(`(?m)^\s*(- )?"?(command|args|entrypoint|image)"?:(\s|$)`)
)

// ChartTemplate says that a text of YAML, which can be parsed or not, is a template of a
// Helm chart, and at which byte its first expression is.
func ChartTemplate(text string, parsed bool) (at int, ok bool) {
	at = strings.Index(text, "{{")
	return at, at >= 0 && (!parsed || chartValue.MatchString(text))
}

// looksYAML says that a text is YAML or JSON, by its first line that is no comment.
func looksYAML(text string) bool {
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); trimmed != "" && trimmed[0] != '#' {
			return yamlStart.MatchString(trimmed)
		}
	}
	return false
}

// manifest reads the containers of a manifest, of a compose file or of a part of
// either, and arguments that are a list. It says false for a text that is none of
// these.
func (s *shell) manifest() bool {
	if at := strings.Index(s.src, "{{"); !looksYAML(s.src) && (at < 0 || strings.TrimSpace(s.src[:at]) != "") {
		return false
	}
	docs, err := parseYAML(s.src)
	if at, ok := ChartTemplate(s.src, err == nil); ok {
		s.unread(s.at(at), "this is a template of a Helm chart, whose values are not here: render it with helm template and give what that prints")
		s.refused = true
		return true
	}
	m := manifestReader{shell: s, lines: lineStarts(s.src)}
	if err != nil {
		if yamlCommand.MatchString(s.src) {
			s.unread(0, "this looks like a manifest, but %s", err)
			s.refused = true
			return true
		}
		return false
	}
	for _, doc := range docs {
		if doc.Kind == yaml.SequenceNode && scalars(doc) {
			m.list(doc)
			continue
		}
		m.walk(doc, podFacts{}, 0)
	}
	return m.found
}

// lineStarts are the offsets of the lines of a text.
func lineStarts(text string) []int {
	out := make([]int, 1, 1+strings.Count(text, "\n"))
	for i := range len(text) {
		if text[i] == '\n' {
			out = append(out, i+1)
		}
	}
	return out
}

func scalars(n *yaml.Node) bool {
	for _, c := range n.Content {
		if c.Kind != yaml.ScalarNode {
			return false
		}
	}
	return len(n.Content) > 0
}

// field is the value of a key, also of a mapping that is merged in; nil where there is none.
func field(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return aliased(n.Content[i+1])
		}
	}
	for _, m := range merged(n) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			if m.Content[i].Value == key {
				return aliased(m.Content[i+1])
			}
		}
	}
	return nil
}

// merged are the mappings that a mapping takes over (<<), of which those are not read that
// they take over in turn.
func merged(n *yaml.Node) []*yaml.Node {
	var out []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "<<" {
			continue
		}
		from := aliased(n.Content[i+1])
		if from.Kind == yaml.MappingNode {
			return []*yaml.Node{from}
		}
		for _, m := range from.Content[:min(len(from.Content), maxNested)] {
			if m = aliased(m); m.Kind == yaml.MappingNode {
				out = append(out, m)
			}
		}
	}
	return out
}

// eachField gives the keys of a mapping and their values, but for what it takes over.
func eachField(n *yaml.Node, do func(key string, value *yaml.Node)) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value != "<<" {
			do(n.Content[i].Value, aliased(n.Content[i+1]))
		}
	}
}

func aliased(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// text is the value of a key that has one; "" without.
func fieldText(n *yaml.Node, key string) string {
	if v := field(n, key); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}
