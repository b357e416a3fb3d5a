package engine

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// manifestReader finds containers in YAML.
type manifestReader struct {
	shell *shell
	lines []int // offsets of the lines
	found bool
}

// podFacts are what the manifest says around a container.
type podFacts struct {
	host    bool
	compose bool
}

// maxYAMLDepth bounds how deep containers are looked for.
const maxYAMLDepth = 24

// walk looks for containers below a node.
func (m *manifestReader) walk(n *yaml.Node, pod podFacts, depth int) {
	if depth > maxYAMLDepth {
		return
	}
	if n.Kind == yaml.SequenceNode {
		for _, c := range n.Content {
			m.walk(c, pod, depth+1)
		}
	}
	if n.Kind == yaml.MappingNode {
		if m.container(n, pod) {
			return
		}
		pod.host = pod.host || fieldText(n, "hostNetwork") == "true"
		for i := 0; i+1 < len(n.Content); i += 2 {
			inner := pod
			inner.compose = n.Content[i].Value == "services"
			if pod.compose && n.Content[i+1].Kind == yaml.MappingNode {
				inner.compose = true
			}
			m.walk(n.Content[i+1], inner, depth+1)
		}
	}
}

// list reads arguments that are a list.
func (m *manifestReader) list(n *yaml.Node) {
	if first := n.Content[0].Value; strings.Contains(first, " ") && !strings.HasPrefix(first, "-") {
		return // a list of commands, in words
	}
	m.found = true
	command{shell: m.shell, words: m.words(n, nil)}.start()
}

// container reads a mapping that has a command, as a container of a pod does or a
// service of a compose file; false when it is neither.
func (m *manifestReader) container(n *yaml.Node, pod podFacts) bool {
	cmd, args, entry := field(n, "command"), field(n, "args"), field(n, "entrypoint")
	if m.task(n) {
		return true
	}
	if !runnable(cmd) && !runnable(args) && !runnable(entry) {
		return false
	}
	m.found = true
	compose := args == nil && (pod.compose || entry != nil || field(n, "environment") != nil || cmd != nil && cmd.Kind == yaml.ScalarNode)
	c := command{shell: m.shell, image: fieldText(n, "image"), alone: true, host: pod.host || fieldText(n, "network_mode") == "host"}
	if strings.ContainsAny(c.image, "${") {
		c.image = ""
	}
	c.env = m.environment(n)
	if !compose {
		entry, cmd = cmd, args
	}
	c.enterContainer(m.asWords(c, entry), m.asWords(c, cmd), word{text: c.image, at: m.offset(n)})
	return true
}

// task reads a mapping with a script or a list of commands, as files of tasks have it;
// false where it has none that starts an engine.
func (m *manifestReader) task(n *yaml.Node) bool {
	for _, key := range []string{"run", "commands", "script"} {
		text := field(n, key)
		if text == nil {
			continue
		}
		w := word{text: text.Value, at: m.offset(text), spans: m.spans(text)}
		if text.Kind == yaml.SequenceNode {
			w = word{}
			for i, line := range text.Content {
				if i > 0 {
					w = w.plus(word{text: "\n", body: m.offset(line)})
				}
				w = w.plus(word{text: line.Value, at: m.offset(line), spans: m.spans(line)})
			}
		}
		if starts(w.text) {
			m.found = true
			command{shell: m.shell, env: m.environment(n), alone: true, image: fieldText(n, "image")}.inside(w, nil)
			return true
		}
	}
	return false
}

// runnable is a command: text, or a list of texts.
func runnable(n *yaml.Node) bool {
	return n != nil && (n.Kind == yaml.SequenceNode && scalars(n) || n.Kind == yaml.ScalarNode && n.Value != "" && n.Tag == "!!str")
}

// asWords are the words of a command; text is split as a shell would.
func (m *manifestReader) asWords(c command, n *yaml.Node) []word {
	switch {
	case !runnable(n):
		return nil
	case n.Kind == yaml.SequenceNode:
		return m.words(n, c.env)
	}
	text := strings.NewReplacer("\\\n", "  ", "\n", " ").Replace(n.Value)
	inner := &shell{reader: m.shell.reader, src: text, wrote: m.spans(n), depth: maxDepth, vars: newScope(c.env)}
	return inner.rest(false)
}

// reference is how a manifest refers to a variable of the container.
var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// words are the texts of a list, with the variables of the container filled in.
func (m *manifestReader) words(n *yaml.Node, env []setting) []word {
	var out []word
	for _, c := range n.Content[:min(len(n.Content), maxWords)] {
		c = aliased(c)
		w := word{text: c.Value, at: m.offset(c), spans: m.spans(c)}
		for _, ref := range reference.FindAllStringSubmatch(c.Value, maxNested) {
			value, ok := lookupSetting(env, ref[1])
			switch m.shell.expanded += len(value); {
			case ok && m.shell.expanded < maxExpanded:
				w.text, w.spans = strings.Replace(w.text, ref[0], value, 1), w.spans[:1]
			case w.open == "":
				w.open = ref[0]
			}
		}
		out = append(out, w)
	}
	return out
}

func lookupSetting(env []setting, name string) (string, bool) {
	for _, e := range slices.Backward(env) {
		if e.name == name {
			return e.value.first().text, true
		}
	}
	return "", false
}

// environment is what the manifest says of a container's variables: a list of pairs of
// name and value, as in a pod, a map, or a list of NAME=value. One whose value comes
// from elsewhere is not among them.
func (m *manifestReader) environment(n *yaml.Node) []setting {
	var out []setting
	add := func(name string, value *yaml.Node) {
		switch {
		case name == "" || len(out) == maxVariables:
		case value == nil || value.Kind != yaml.ScalarNode || value.Tag == "!!null":
			if _, read := readVariables[name]; read {
				m.shell.variableNote(m.offset(n), name, "the manifest does not say what %s is set to", brief(name))
			}
		default:
			at := m.offset(value)
			out = append(out, setting{name: name, value: variable{words: []word{{text: value.Value, at: at, spans: m.spans(value)}}}, at: at})
		}
	}
	for _, key := range []string{"env", "environment", "envs"} {
		env := field(n, key)
		switch {
		case env == nil:
		case env.Kind == yaml.MappingNode:
			for _, of := range slices.Backward(append([]*yaml.Node{env}, merged(env)...)) { // the first has the say
				eachField(of, add)
			}
		case env.Kind == yaml.SequenceNode:
			for _, e := range env.Content {
				if e = aliased(e); e.Kind == yaml.MappingNode {
					add(fieldText(e, "name"), field(e, "value"))
				} else if name, value, ok := strings.Cut(e.Value, "="); ok {
					add(name, &yaml.Node{Kind: yaml.ScalarNode, Value: value, Line: e.Line, Column: e.Column})
				}
			}
		}
	}
	return out
}

// offset is where a node begins in the text.
func (m *manifestReader) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(m.lines) {
		return 0
	}
	at, text := m.lines[n.Line-1], m.shell.src
	for range n.Column - 1 {
		if at >= len(text) || text[at] == '\n' {
			break
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return min(at, len(text))
}

// spans says where the lines of a text in the YAML were written.
func (m *manifestReader) spans(n *yaml.Node) []span {
	at := m.offset(n)
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		at++
	}
	out := []span{{0, int32(at)}}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		return out
	}
	out = out[:0]
	from := 0
	for line := n.Line; line < len(m.lines) && len(out) < maxSpans; line++ {
		begin, end := m.lines[line], len(m.shell.src)
		if line+1 < len(m.lines) {
			end = m.lines[line+1]
		}
		whole := m.shell.src[begin:end]
		typed := strings.TrimSpace(whole)
		i := strings.Index(n.Value[from:], typed)
		if typed == "" {
			continue
		}
		if i < 0 {
			break
		}
		out = append(out, span{int32(from + i), int32(begin + strings.Index(whole, typed))})
		from += i + len(typed)
	}
	if len(out) == 0 {
		return []span{{0, int32(at)}}
	}
	out[0].from = 0
	return out
}
