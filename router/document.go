package router

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/tidwall/gjson"
)

// Bounds of a request's JSON.
const (
	maxDepth  = 200
	maxFields = 1024 // of the outermost object
)

// span is the half-open range [from, to) of a text.
type span struct{ from, to int }

// field is a member of the outermost object.
type field struct {
	nth   int    // place in the object
	key   string // unescaped
	whole span   // from the key's quote to the value's end
	value span
}

// document is a request's body, cut at the fields of its outermost object. It is
// edited by these cuts: what is not changed keeps its bytes, and a long prompt is
// neither decoded nor copied.
type document struct {
	text   string
	fields []field // of equal keys only the last, which is the one that engines take
}

// limitError says that a body is JSON of a shape that is not taken.
type limitError struct{ limit, text string }

func (e *limitError) Error() string { return e.text }

// cut reads a body. The error tells a client what is wrong with it.
func cut(text string) (document, error) {
	s := scanner{text: text}
	// The depth comes first: the validator recurses.
	if err := s.scan(); err != nil {
		return document{}, err
	}
	if !gjson.Valid(text) {
		return document{}, errors.New("the body is not valid JSON")
	}
	if !s.object {
		return document{}, errors.New("the body is not a JSON object")
	}
	d := document{text: text, fields: make([]field, 0, len(s.found))}
	last := map[string]int{}
	for i := range s.found {
		f := &s.found[i]
		f.nth = i
		f.key = gjson.Parse(text[f.whole.from:s.keyEnds[i]]).Str
		f.value = trim(text, f.value)
		f.whole.to = f.value.to
		last[f.key] = i
	}
	for i, f := range s.found {
		if last[f.key] == i {
			d.fields = append(d.fields, f)
		}
	}
	return d, nil
}

// raw is the text of a field's value; empty when it is not there.
func (d document) raw(key string) string {
	for _, f := range d.fields {
		if f.key == key {
			return d.text[f.value.from:f.value.to]
		}
	}
	return ""
}

// field is the value of a field; one that is not there does not exist.
func (d document) field(key string) gjson.Result { return gjson.Parse(d.raw(key)) }

// has says whether the field is there and not null.
func (d document) has(key string) bool { return d.field(key).Type != gjson.Null }

// edit sets a field to a JSON text, or drops it when value is empty.
type edit struct{ key, value string }

// with returns the document's text with the edits done: a field that is there is
// changed in its place, one that is not is appended.
func (d document) with(edits []edit) pieces {
	var out pieces
	sep := "{"
	put := func(parts ...string) {
		out = append(append(out, sep), parts...)
		sep = ","
	}
	done := make([]bool, len(edits))
	run := span{-1, -1} // of fields that stay as they are
	flush := func() {
		if run.from >= 0 {
			put(d.text[run.from:run.to])
			run = span{-1, -1}
		}
	}
	next := 0
	for _, f := range d.fields {
		e := indexOf(edits, f.key)
		if e < 0 {
			// A field that comes again later is missing here.
			if f.nth != next {
				flush()
			}
			if run.from < 0 {
				run.from = f.whole.from
			}
			run.to, next = f.whole.to, f.nth+1
			continue
		}
		flush()
		done[e] = true
		if edits[e].value != "" {
			put(d.text[f.whole.from:f.value.from], edits[e].value)
		}
	}
	flush()
	for i, e := range edits {
		if !done[i] && e.value != "" {
			put(`"`+e.key+`":`, e.value)
		}
	}
	if sep == "{" {
		out = append(out, sep)
	}
	return append(out, "}")
}

func indexOf(edits []edit, key string) int {
	for i := range edits {
		if edits[i].key == key {
			return i
		}
	}
	return -1
}

// pieces are a text in parts, so that most of it can be that of a request.
type pieces []string

// size is the length in bytes.
func (p pieces) size() (n int64) {
	for _, s := range p {
		n += int64(len(s))
	}
	return n
}

// reader reads the whole text.
func (p pieces) reader() io.ReadCloser { return &piecesReader{rest: p} }

type piecesReader struct {
	rest pieces
	at   int // in the first
}

func (r *piecesReader) Read(b []byte) (n int, err error) {
	for len(r.rest) > 0 && n < len(b) {
		k := copy(b[n:], r.rest[0][r.at:])
		n += k
		if r.at += k; r.at == len(r.rest[0]) {
			r.rest, r.at = r.rest[1:], 0
		}
	}
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *piecesReader) Close() error { return nil }

// scanner finds the fields of the outermost object in one pass. Of a text that is
// not JSON it finds anything.
type scanner struct {
	text    string
	object  bool
	found   []field
	keyEnds []int

	depth  int
	inside bool // a field of the outermost object has begun
	colon  bool // its key has ended
}

func (s *scanner) scan() error {
	for i := 0; i < len(s.text); i++ {
		switch s.text[i] {
		case '"':
			end := stringEnd(s.text, i)
			if s.depth == 1 && !s.inside {
				if len(s.found) == maxFields {
					return &limitError{limitFields, fmt.Sprintf("the body has more than %d fields", maxFields)}
				}
				s.inside = true
				s.found = append(s.found, field{whole: span{from: i}})
				s.keyEnds = append(s.keyEnds, end)
			}
			i = end - 1
		case ':':
			if s.depth == 1 && s.inside && !s.colon {
				s.colon = true
				s.found[len(s.found)-1].value.from = i + 1
			}
		case ',':
			s.end(i)
		case '{', '[':
			if s.depth == 0 {
				s.object = s.text[i] == '{'
			}
			if s.depth++; s.depth > maxDepth {
				return &limitError{limitDepth, fmt.Sprintf("the body is nested more than %d deep", maxDepth)}
			}
		case '}', ']':
			s.end(i)
			s.depth--
		}
	}
	return nil
}

// end ends the field of the outermost object that is being read.
func (s *scanner) end(at int) {
	if s.depth == 1 && s.colon {
		s.found[len(s.found)-1].value.to = at
		s.inside, s.colon = false, false
	}
}

// stringEnd is the index behind the quote that ends the string which begins at i.
func stringEnd(text string, i int) int {
	for j := i + 1; ; {
		k := strings.IndexByte(text[j:], '"')
		if k < 0 {
			return len(text)
		}
		j += k
		escapes := 0
		for text[j-1-escapes] == '\\' {
			escapes++
		}
		if j++; escapes%2 == 0 {
			return j
		}
	}
}

func trim(text string, s span) span {
	for s.from < s.to && blank(text[s.from]) {
		s.from++
	}
	for s.to > s.from && blank(text[s.to-1]) {
		s.to--
	}
	return s
}

func blank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
