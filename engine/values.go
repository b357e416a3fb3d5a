package engine

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Last is the last occurrence of a flag without a dotted key.
func (f Flags) Last(name string) (Flag, bool) {
	for _, g := range slices.Backward(f.List) {
		if g.Name == name && g.Key == "" {
			return g, true
		}
	}
	return Flag{}, false
}

// All lists the values of every occurrence of a flag.
func (f Flags) All(name string) []string {
	var out []string
	for _, g := range f.List {
		if g.Name == name {
			out = append(out, g.Values...)
		}
	}
	return out
}

// Value is the value of a flag's last occurrence; "" when there is none.
func (f Flags) Value(name string) string {
	g, ok := f.Last(name)
	if !ok || len(g.Values) == 0 {
		return ""
	}
	return g.Values[0]
}

// Switch says whether a switch is on at its last occurrence.
func (f Flags) Switch(name string) bool {
	g, ok := f.Last(name)
	return ok && !g.Negated
}

// Int is the number that a flag has, or the given one when it is not there.
func (f Flags) Int(name string, missing int) (int, error) {
	v := f.Value(name)
	if v == "" {
		return missing, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0, fmt.Errorf("--%s needs a whole number, not %q", name, v)
	}
	return n, nil
}

// Size is a number that may carry vLLM's unit: k, m, g, t are decimal and may
// follow a fraction, K, M, G, T are binary.
func (f Flags) Size(name string, missing int64) (int64, error) {
	v := f.Value(name)
	if v == "" {
		return missing, nil
	}
	n, ok := parseSize(v)
	if !ok {
		return 0, fmt.Errorf("--%s needs a number such as 4096, 8k or 2G, not %q", name, v)
	}
	return n, nil
}

func parseSize(v string) (int64, bool) {
	const decimal, binary = "kmgt", "KMGT"
	digits, unit := v, byte(0)
	if last := v[len(v)-1]; strings.IndexByte(decimal+binary, last) >= 0 {
		digits, unit = v[:len(v)-1], last
	}
	if i := strings.IndexByte(decimal, unit); unit != 0 && i >= 0 {
		x, err := strconv.ParseFloat(digits, 64)
		x *= math.Pow(1000, float64(i+1))
		return int64(x), err == nil && math.Abs(x) < 1<<62
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || unit == 0 {
		return n, err == nil
	}
	shift := 10 * (strings.IndexByte(binary, unit) + 1)
	if n > math.MaxInt64>>shift || n < math.MinInt64>>shift {
		return 0, false
	}
	return n << shift, true
}

// Bounds of a JSON flag.
const (
	maxJSON     = 16 << 10 // bytes of its values
	maxKeyDepth = 16       // of a dotted key
)

// JSON is the value of a JSON flag: its last whole value with the dotted keys
// that were given set in it. nil when the flag is not there.
func (f Flags) JSON(name string) ([]byte, error) {
	whole, there := f.Last(name)
	value := map[string]any{}
	size := 0
	for _, v := range f.All(name) {
		if size += len(v); size > maxJSON {
			return nil, fmt.Errorf("the value of --%s has more than %d bytes", name, maxJSON)
		}
	}
	if there {
		if len(whole.Values) == 0 {
			return nil, fmt.Errorf("--%s needs a value", name)
		}
		if err := json.Unmarshal([]byte(whole.Values[0]), &value); err != nil || value == nil {
			return nil, fmt.Errorf("the value of --%s is not a JSON object", name)
		}
	}
	for _, g := range f.List {
		if g.Name != name || g.Key == "" {
			continue
		}
		there = true
		if err := setKey(value, g); err != nil {
			return nil, err
		}
	}
	if !there {
		return nil, nil
	}
	out, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode --%s: %w", name, err)
	}
	return out, nil
}

// setKey puts the value of a dotted flag where it belongs. A value that is JSON
// counts as that, anything else is text.
func setKey(object map[string]any, g Flag) error {
	if len(g.Values) == 0 {
		return fmt.Errorf("%s needs a value", g.Spelled)
	}
	var value any
	if err := json.Unmarshal([]byte(g.Values[0]), &value); err != nil {
		value = g.Values[0]
	}
	path := strings.SplitN(g.Key, ".", maxKeyDepth+1)
	if len(path) > maxKeyDepth {
		return fmt.Errorf("--%s has a key of more than %d parts", g.Name, maxKeyDepth)
	}
	for _, step := range path[:len(path)-1] {
		inner, ok := object[step].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[step] = inner
		}
		object = inner
	}
	object[path[len(path)-1]] = value
	return nil
}
