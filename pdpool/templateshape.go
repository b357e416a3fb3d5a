package pdpool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Bounds of a user's template. A merge compares each element of a list with each, and
// both the webhook and every look of the operator merge it.
const (
	maxTemplate         = 64 << 10 // bytes of JSON
	maxTemplateDepth    = 32       // lists and objects in each other; a pod has half of it
	maxTemplateList     = 128      // elements of a list, as of engine.args
	maxTemplateValues   = 2048
	maxTemplateKey      = 512 // bytes; keys of labels have at most 317
	maxTemplateQuantity = 64  // bytes
)

// fits says that a template is JSON and within its bounds: what is not is refused, and
// nothing else looks at it.
func fits(raw []byte) bool {
	return len(raw) <= maxTemplate && json.Valid(raw) && beyondShape(raw) == ""
}

// beyondShape says in a sentence which bound a template exceeds, "" for none. It takes
// JSON that is valid.
func beyondShape(raw []byte) string {
	s := shapeScan{raw: raw}
	for s.next < len(raw) && s.beyond == "" {
		s.token()
	}
	return s.beyond
}

// CheckQuantities refuses a pool as JSON, before it is decoded, for a quantity that would
// take minutes to decode. The schema bounds no quantities of resources. Those of
// templates are a rule's.
func CheckQuantities(raw []byte) error {
	s := shapeScan{raw: raw, whole: true}
	for s.next < len(raw) && s.beyond == "" {
		s.token()
	}
	if s.beyond != "" {
		return errors.New(strings.Replace(s.beyond, "template", "pool", 1))
	}
	return nil
}

// shapeScan goes through JSON once and keeps only where it is.
type shapeScan struct {
	whole         bool // a pool, not a template: only quantities are bounded
	raw           []byte
	next          int
	depth, values int
	open          [maxTemplateDepth + 1]struct {
		list     bool
		elements int
		key      []byte
	}
	beyond string
}

func (s *shapeScan) token() {
	begin, b := s.next, s.raw[s.next]
	s.next++
	switch b {
	case '{', '[':
		s.enter(b == '[')
	case '}', ']':
		s.depth = max(s.depth-1, 0) // of JSON that is none
	case ',':
		s.element()
	case '"':
		s.text(begin)
	case ' ', '\t', '\r', '\n', ':':
	default:
		for s.next < len(s.raw) && !ends(s.raw[s.next]) {
			s.next++
		}
		s.scalar(s.raw[begin:s.next])
	}
	if s.values > maxTemplateValues && s.beyond == "" && !s.whole {
		s.beyond = fmt.Sprintf("the template has more than %d values", maxTemplateValues)
	}
}

func blank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

// ends says whether a number, true, false or null ends before b.
func ends(b byte) bool { return blank(b) || b == ',' || b == ']' || b == '}' }

func (s *shapeScan) enter(list bool) {
	s.values++
	if s.depth++; s.depth > maxTemplateDepth {
		if s.whole {
			return
		}
		s.beyond = fmt.Sprintf("the template has more than %d lists and objects in each other", maxTemplateDepth)
		return
	}
	at := &s.open[s.depth]
	at.list, at.elements, at.key = list, 1, nil
	if list {
		at.key = s.open[s.depth-1].key
	}
}

func (s *shapeScan) element() {
	s.values++
	if s.whole {
		return
	}
	at := &s.open[s.depth]
	if at.elements++; at.list && at.elements > maxTemplateList {
		s.beyond = fmt.Sprintf("the list %s of the template has more than %d elements", clip(string(at.key), maxSpelled), maxTemplateList)
	}
}

// text is a string: a key or a value.
func (s *shapeScan) text(begin int) {
	for s.next < len(s.raw) && s.raw[s.next] != '"' {
		if s.raw[s.next] == '\\' {
			s.next++
		}
		s.next++
	}
	s.next = min(s.next+1, len(s.raw))
	whole, behind := s.raw[begin:s.next], s.next
	for behind < len(s.raw) && blank(s.raw[behind]) {
		behind++
	}
	if behind == len(s.raw) || s.raw[behind] != ':' {
		s.scalar(whole)
		return
	}
	key := whole[1 : len(whole)-1]
	if s.whole {
		if s.depth <= maxTemplateDepth {
			s.open[s.depth].key = key
		}
		return
	}
	switch s.open[s.depth].key = key; {
	case len(key) > maxTemplateKey:
		s.beyond = fmt.Sprintf("the key %q of the template has more than %d bytes", clip(string(key), maxSpelled), maxTemplateKey)
	case bytes.IndexByte(key, '\\') >= 0: // which could spell any of those below
		s.beyond = fmt.Sprintf("the key %q of the template has a character that no key of a pod has", clip(string(key), maxSpelled))
	}
}

// scalar looks at what becomes a quantity. Of one with a large exponent the decoder makes
// a number with as many digits, which takes minutes.
func (s *shapeScan) scalar(text []byte) {
	if s.depth < 1 || s.depth > maxTemplateDepth || !s.quantity() {
		return
	}
	plain := strings.Trim(string(text), `"`)
	_, exponent, _ := strings.Cut(strings.ToLower(plain), "e")
	if len(plain) > maxTemplateQuantity || len(strings.TrimLeft(exponent, "+-")) > 2 || strings.Contains(plain, `\`) {
		s.beyond = fmt.Sprintf("the template holds the quantity %s, whose exponent or length is too large", clip(plain, maxSpelled))
	}
}

// quantity says whether a scalar here is one: of the fields of pods that hold any.
func (s *shapeScan) quantity() bool {
	named := func(key []byte, names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return len(key) == len(name) && strings.EqualFold(string(key), name)
		})
	}
	return named(s.open[s.depth].key, quantities) || named(s.open[s.depth-1].key, quantityLists)
}

// Fields of pods that hold a quantity, and those that hold one under each key.
var (
	quantities    = []string{"sizeLimit", "divisor"}
	quantityLists = []string{"limits", "requests", "overhead", "capacity"}
)
