package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pdpool/pdpool/kvlayout"
)

// ReadFile gives the content of a file that a command line names. The name is as
// typed there.
type ReadFile func(name string) ([]byte, error)

// MaxConfig is the size of a file of flags that is read, in bytes.
const MaxConfig = 16 << 10

// WithFiles is the launch with the flags of the file that --config names, which read
// gives: they stand in front of those typed, so that these count. Their place is that
// of the name. Without a read, or where the file is none, the launch stays as it is,
// and Read says so.
func (l Launch) WithFiles(read ReadFile) Launch {
	flags, _ := ParseArgsOf(l.Engine, l.Args)
	g, ok := flags.Last("config")
	if read == nil || !ok || g.bare() || g.inline {
		return l
	}
	if at := g.valueAt(); at < len(l.typed) && l.typed[at].open != "" {
		return l
	}
	args, err := configArgs(l.Engine, g.Values[0], read)
	if err != nil {
		l.config = err
		return l
	}
	if l.Engine != kvlayout.SGLang && (len(flags.Positional) > 0 || flags.Value("model") != "") {
		args = withoutModel(args) // that of the command line counts
	}
	n := 0 // the model stays in front
	if len(flags.PositionalAt) > 0 && flags.PositionalAt[0] == 0 {
		n = 1
	}
	from := slices.Repeat([]typed{{place: l.ArgPlace(g.valueAt())}}, len(args))
	l.Args = spliced(l.Args, args, n, g.Index, g.valueAt()+1)
	l.typed = spliced(l.typed, from, n, g.Index, g.valueAt()+1)
	return l
}

func withoutModel(args []string) []string {
	i := slices.Index(args, "--model")
	if i < 0 {
		return args
	}
	return slices.Delete(args, i, min(i+2, len(args)))
}

// spliced is a new slice with more put in at n and the elements from one index to
// another left out.
func spliced[E any](s, more []E, n, from, to int) []E {
	if len(s) == 0 {
		return nil
	}
	to = min(to, len(s))
	return slices.Concat(s[:n], more, s[n:from], s[to:])
}

// configArgs are the arguments that a file of flags stands for.
func configArgs(kind kvlayout.Engine, name string, read ReadFile) ([]string, error) {
	if ext := path.Ext(name); ext != ".yaml" && ext != ".yml" {
		return nil, fmt.Errorf("%s takes a file whose name ends in .yaml or .yml", kind)
	}
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxConfig || strings.Count(string(data), "\n") > maxWords {
		return nil, fmt.Errorf("it has %d bytes, and %d in %d lines are read", len(data), MaxConfig, maxWords)
	}
	docs, err := parseYAML(string(data))
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	root := docs[0]
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("it holds no flags with their values")
	}
	var out []string
	for i := 0; i+1 < len(root.Content); i += 2 {
		more, err := configFlag(kind, root.Content[i].Value, root.Content[i+1])
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// configFlag is a flag with its value. A switch that is off is left out where it has
// no name for that.
func configFlag(kind kvlayout.Engine, key string, value *yaml.Node) ([]string, error) {
	flag := "--" + key
	switch value.Kind {
	case yaml.ScalarNode:
	case yaml.SequenceNode:
		if len(value.Content) == 0 {
			return nil, nil
		}
		out := []string{flag}
		for _, n := range value.Content {
			out = append(out, n.Value)
		}
		return out, nil
	default:
		var v map[string]any
		if err := value.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: the value of %s can't be read", value.Line, brief(key))
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("line %d: the value of %s is no JSON object", value.Line, brief(key))
		}
		return []string{flag, string(text)}, nil
	}
	if value.Tag != "!!bool" {
		return []string{flag, value.Value}, nil
	}
	return configSwitch(dialectOf(kind), key, strings.EqualFold(value.Value, "true")), nil
}

// configSwitch is a flag whose value is true or false.
func configSwitch(d *dialect, key string, on bool) []string {
	flag := "--" + key
	_, k := d.identify(flag)
	switch {
	case !d.flexible && !k.bare():
		return []string{flag, strconv.FormatBool(on)}
	case on:
		return []string{flag}
	case d.flexible && k.takes == toggle:
		return []string{"--no-" + key}
	}
	return nil
}
