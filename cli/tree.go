package cli

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/engine"
)

// tree is a map of YAML whose keys keep their order. What is empty is left out.
type tree struct{ node *yaml.Node }

func newTree() *tree { return &tree{&yaml.Node{Kind: yaml.MappingNode}} }

// flow writes the map in one line.
func (t *tree) flow() { t.node.Style = yaml.FlowStyle }

// add takes a string, an int, a list of strings or a tree.
func (t *tree) add(key string, value any) {
	var v *yaml.Node
	switch value := value.(type) {
	case string:
		if value != "" {
			v = text(value)
		}
	case int:
		if value != 0 {
			v = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(value)}
		}
	case []string:
		if len(value) > 0 {
			v = &yaml.Node{Kind: yaml.SequenceNode}
			for _, s := range value {
				v.Content = append(v.Content, text(s))
			}
		}
	case *tree:
		if len(value.node.Content) > 0 {
			v = value.node
		}
	}
	if v != nil {
		t.node.Content = append(t.node.Content, text(key), v)
	}
}

func (t *tree) addUnless(key string, value, standard int) {
	if value != standard {
		t.add(key, value)
	}
}

func (t *tree) addEnv(env []engine.EnvVar) {
	if len(env) == 0 {
		return
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, e := range env {
		entry := newTree()
		entry.add("name", e.Name)
		entry.node.Content = append(entry.node.Content, text("value"), text(e.Value))
		entry.flow()
		list.Content = append(list.Content, entry.node)
	}
	t.node.Content = append(t.node.Content, text("env"), list)
}

// text is a string that stays one for readers of YAML 1.1 too.
func text(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if isOldWord(s) || isNumber(s) || legible(s) != s {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// isOldWord says that YAML 1.1 reads a plain word as something else.
func isOldWord(s string) bool {
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "":
		return true
	}
	return false
}

// yaml is the text of the tree. What of it a terminal would obey lies between double
// quotes, where escapes mean the same.
func (t *tree) yaml() (string, error) {
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(t.node); err != nil {
		return "", err
	}
	return jsonLegible(b.String()), e.Close()
}

// quantity is bytes as Kubernetes writes them; "" for none.
func quantity(bytes int64) string {
	if bytes < 1 {
		return ""
	}
	return resource.NewQuantity(bytes, resource.BinarySI).String()
}
