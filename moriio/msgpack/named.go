package msgpack

import (
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// Choice is one value of an enumeration and its name on the wire.
type Choice[T comparable] struct {
	Value T
	Name  string
}

// Enum is a text field that names one of a few values.
func Enum[T comparable](c *Codec, key string, v *T, choices []Choice[T]) {
	if !c.reading {
		name := ""
		for _, o := range choices {
			if o.Value == *v {
				name = o.Name
			}
		}
		if name == "" {
			c.fail(BadField, key, "is %v, which has no name here", *v)
		}
		c.key(key)
		c.out = msgp.AppendString(c.out, name)
		return
	}
	b, ok := c.need(key)
	if !ok {
		return
	}
	name, _ := c.readString(key, b, MaxKey)
	if c.err != nil {
		return
	}
	for _, o := range choices {
		if o.Name == name {
			*v = o.Value
			return
		}
	}
	c.fail(BadField, key, "is %q, which is not known", name)
}

// Pieces are the byte strings that a map has under one name.
type Pieces struct {
	Name   string
	Pieces [][]byte
}

// PiecesLimits bounds what ParsePieces accepts.
type PiecesLimits struct {
	Names int // entries of the map
	Each  int // pieces under one name
	Bytes int // length of one piece
}

// AppendPieces appends the map from each name to the array of its pieces, in the
// order given.
func AppendPieces(b []byte, all []Pieces) []byte {
	b = msgp.AppendMapHeader(b, uint32(len(all)))
	for _, p := range all {
		b = msgp.AppendString(b, p.Name)
		b = msgp.AppendArrayHeader(b, uint32(len(p.Pieces)))
		for _, piece := range p.Pieces {
			b = msgp.AppendBytes(b, piece)
		}
	}
	return b
}

// ParsePieces reads the one map that b consists of, in its order. The pieces are copies.
func ParsePieces(b []byte, limits PiecesLimits) ([]Pieces, error) {
	c := &Codec{reading: true}
	n, b := c.mapHeader("", b, limits.Names)
	var all []Pieces
	if c.err == nil && n > 0 {
		all = make([]Pieces, n)
	}
	seen := make(map[string]bool, n)
	for i := range all {
		if b = c.readPieces(b, &all[i], limits); c.err != nil {
			return nil, c.err
		}
		if name := all[i].Name; seen[name] {
			return nil, Errorf(BadField, name, "is there twice")
		}
		seen[all[i].Name] = true
	}
	if c.err == nil && len(b) > 0 {
		c.fail(Malformed, "", "%d bytes follow the map", len(b))
	}
	if c.err != nil {
		return nil, c.err
	}
	return all, nil
}

func (c *Codec) readPieces(b []byte, p *Pieces, limits PiecesLimits) []byte {
	p.Name, b = c.readString("name", b, MaxName)
	p.Pieces, b = makeList[[]byte](c, p.Name, b, limits.Each, 2)
	for i := range p.Pieces {
		if c.err != nil {
			return nil
		}
		p.Pieces[i], b = c.readBytes(p.Name, b, limits.Bytes)
	}
	return b
}

// IsMap says whether b begins with the header of a map.
func IsMap(b []byte) bool {
	return msgp.NextType(b) == msgp.MapType
}

// IsPlainText says whether b is UTF-8 of 1 to limit bytes without control characters.
func IsPlainText(b []byte, limit int) bool {
	if len(b) == 0 || len(b) > limit || !utf8.Valid(b) {
		return false
	}
	for _, ch := range b {
		if ch < 0x20 || ch == 0x7f {
			return false
		}
	}
	return true
}
