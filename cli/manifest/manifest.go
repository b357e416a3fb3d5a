// Package manifest finds PDPools in files of YAML or JSON as people keep them:
// several documents, lists, what kustomize and helm print. It keeps where each
// field stands, so that what is said of a field can name its line.
//
// Its cost is bounded whatever the text is: see the constants.
package manifest

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
)

// Bounds of a document. An API server takes no object near any of them.
const (
	MaxDocument = 1 << 20 // bytes
	MaxValues   = 100_000 // values, each alias counted with all that it stands for
	MaxDepth    = 100     // lists and maps in each other
	MaxFaults   = 100     // that are told of an object
)

// Bounds of a file. What comes behind them is not read, and an error says so.
const (
	MaxDocuments = 10_000
	MaxPools     = 2000
	MaxErrors    = 100
)

// Place is where something stands: lines and columns count from 1, 0 is unknown.
type Place struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// String is file:line:column, as terminals and editors open it.
func (p Place) String() string {
	switch {
	case p.Line < 1:
		return p.File
	case p.Column < 1:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Error is a document that could not be read, or not as a PDPool.
type Error struct {
	Place Place  `json:"place"`
	Text  string `json:"message"`
	// Foreign says that the document is no Kubernetes object and nothing in it points
	// to a PDPool: of a folder, where people keep other files too, it can be left out.
	Foreign bool `json:"-"`
}

func (e *Error) Error() string { return e.Place.String() + ": " + e.Text }

// Content is what a file holds.
type Content struct {
	Pools []Pool
	// Errors are the documents that could not be read. Those beside them were.
	Errors []*Error
	// Others counts objects of other kinds.
	Others int

	foreigners int
	// full says that no more is read, for the errors that there are.
	full bool
}

// Read reads all documents of a file. The name is for places only.
func Read(file string, text []byte) Content {
	var out Content
	documents := 0
	for c := range split(text) {
		if documents++; documents > MaxDocuments {
			out.fail(Place{File: file, Line: c.line}, "the file has more than %d documents, of which those from here on are not read", MaxDocuments)
			break
		}
		if out.chunk(file, c); out.full {
			break
		}
	}
	return out
}

// fail keeps an error. The last that there may be says that it is.
func (c *Content) fail(p Place, format string, args ...any) {
	if c.full {
		return
	}
	if len(c.Errors)-c.foreigners >= MaxErrors {
		c.full = true
		format, args = "more than %d documents can't be read, and from here on none is", []any{MaxErrors}
	}
	c.Errors = append(c.Errors, &Error{Place: p, Text: fmt.Sprintf(format, args...)})
}

// foreign keeps that a document is none of Kubernetes. Of many alike, it counts.
func (c *Content) foreign(p Place, text string) {
	if c.foreigners >= MaxErrors {
		c.Others++
		return
	}
	c.foreigners++
	c.Errors = append(c.Errors, &Error{Place: p, Text: text, Foreign: true})
}

// kindless is an object without a kind.
func (c *Content) kindless(at Place, n *yaml.Node) {
	const text = "the object says no kind"
	if namesPool(n) {
		c.fail(at, "%s", text)
		return
	}
	c.foreign(at, text)
}

// LeaveOut counts documents that are no Kubernetes objects among the others.
func (c *Content) LeaveOut() {
	n := len(c.Errors)
	c.Errors = slices.DeleteFunc(c.Errors, func(e *Error) bool { return e.Foreign })
	c.Others += n - len(c.Errors)
}

// namesPool says that an object without a kind is meant as a PDPool: by its
// apiVersion, or by a key that is spelled wrong.
func namesPool(n *yaml.Node) bool {
	for i := 1; i < len(n.Content); i += 2 {
		v := aliased(n.Content[i])
		if v.Kind == yaml.ScalarNode && (v.Value == "PDPool" || strings.HasPrefix(v.Value, v1alpha1.GroupVersion.Group+"/")) {
			return true
		}
	}
	return false
}

func (c *Content) chunk(file string, part chunk) {
	at := Place{File: file, Line: part.line}
	if len(part.text) > MaxDocument {
		if !bytes.Contains(part.text, []byte("PDPool")) {
			c.Others++
			return
		}
		c.fail(at, "the document has %d bytes, more than %d", len(part.text), MaxDocument)
		return
	}
	var root yaml.Node
	err := yaml.Unmarshal(part.text, &root)
	ours := err != nil || len(root.Content) > 0 && scalarOf(root.Content[0], "kind") == "PDPool"
	if i, ok := engine.ChartTemplate(string(part.text), err == nil); ours && ok {
		at.Line += bytes.Count(part.text[:i], []byte("\n"))
		c.fail(at, "this is a template of a Helm chart: check what it renders, helm template CHART | kubectl pdpool check -f -")
		return
	}
	if err != nil {
		line, text := syntax(err)
		at.Line += line
		c.fail(at, "%s", text)
		return
	}
	if len(root.Content) == 0 || isNull(root.Content[0]) {
		return // nothing but comments
	}
	c.object(document{file: file, base: part.line - 1, node: root.Content[0], keys: keyIndex{}})
}

// document is one object: the node of it, and the lines before its text.
type document struct {
	file string
	base int
	node *yaml.Node
	keys keyIndex
}

func (d document) place(n *yaml.Node) Place {
	return Place{File: d.file, Line: d.base + n.Line, Column: n.Column}
}

func (c *Content) object(d document) {
	at := d.place(d.node)
	group, kind := scalarOf(d.node, "apiVersion"), scalarOf(d.node, "kind")
	ours := strings.HasPrefix(group, v1alpha1.GroupVersion.Group+"/")
	list := kind == "List" || ours && kind == "PDPoolList"
	switch {
	case d.node.Kind != yaml.MappingNode:
		c.foreign(at, "the document is no object with apiVersion and kind")
		return
	case kind == "":
		c.kindless(at, d.node)
		return
	case !list && (kind != "PDPool" || group != "" && !ours):
		c.Others++
		return
	}
	if err := measure(d.node); err != nil {
		c.fail(at, "%v", err)
		return
	}
	if list {
		c.list(d)
		return
	}
	if known := v1alpha1.GroupVersion.String(); group != known {
		c.fail(at, "apiVersion %q is not known, only %s", group, known)
		return
	}
	c.pool(d)
}

func (c *Content) list(d document) {
	for _, item := range items(d.node) {
		if c.full {
			return
		}
		c.object(document{file: d.file, base: d.base, node: item, keys: d.keys})
	}
}

// items are the objects of a list.
func items(list *yaml.Node) []*yaml.Node {
	_, value := child(list, "items")
	if value == nil || value.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]*yaml.Node, 0, len(value.Content))
	for _, item := range value.Content {
		out = append(out, aliased(item))
	}
	return out
}

// isNull says that a document holds no value at all.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// aliased is what an alias stands for, and any other node itself.
func aliased(n *yaml.Node) *yaml.Node {
	for range MaxDepth {
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	return n
}

// child finds a key of a map; nils where there is none.
func child(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := len(n.Content) - 2; i >= 0; i -= 2 { // the last of a repeated key counts
		if k := aliased(n.Content[i]); k.Kind == yaml.ScalarNode && k.Value == name {
			return n.Content[i], aliased(n.Content[i+1])
		}
	}
	return nil, nil
}

// keyIndex finds keys of large maps, of which there may be as many faults as keys. It
// is filled as it is used, so a document is for one goroutine.
type keyIndex map[*yaml.Node]map[string]int

// fewKeys are as fast to look through.
const fewKeys = 16

func (x keyIndex) child(n *yaml.Node, name string) (key, value *yaml.Node) {
	if n == nil || n.Kind != yaml.MappingNode || len(n.Content) <= 2*fewKeys {
		return child(n, name)
	}
	keys := x[n]
	if keys == nil {
		keys = make(map[string]int, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := aliased(n.Content[i]); k.Kind == yaml.ScalarNode {
				keys[k.Value] = i
			}
		}
		x[n] = keys
	}
	i, ok := keys[name]
	if !ok {
		return nil, nil
	}
	return n.Content[i], aliased(n.Content[i+1])
}

func scalarOf(n *yaml.Node, name string) string {
	_, value := child(n, name)
	if value == nil || value.Kind != yaml.ScalarNode {
		return ""
	}
	return value.Value
}

// measure holds the bounds on values and depth, which also ends aliases of
// themselves.
func measure(n *yaml.Node) error {
	left := MaxValues
	var walk func(n *yaml.Node, depth int) error
	walk = func(n *yaml.Node, depth int) error {
		left--
		switch {
		case left < 0:
			return fmt.Errorf("the object has more than %d values, aliases counted with what they stand for", MaxValues)
		case depth > MaxDepth:
			return fmt.Errorf("lists and maps lie in each other more than %d deep", MaxDepth)
		case n.Kind == yaml.AliasNode:
			return walk(n.Alias, depth+1)
		case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!binary" && !isBinary(n):
			return fmt.Errorf("the !!binary value in line %d is no base64", n.Line)
		}
		for _, inner := range n.Content {
			if err := walk(inner, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(n, 0)
}

var lineOf = regexp.MustCompile(`^line (\d+): `)

// syntax splits the parser's error into the lines before its place and its text.
func syntax(err error) (lines int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := lineOf.FindStringSubmatch(text); m != nil {
		n, wrong := strconv.Atoi(m[1])
		if wrong == nil {
			return max(n-1, 0), "the YAML can't be read: " + text[len(m[0]):]
		}
	}
	return 0, "the YAML can't be read: " + text
}
