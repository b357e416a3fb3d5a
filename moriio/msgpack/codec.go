// Package msgpack reads and writes messages that are MessagePack maps with
// string keys. A message describes its fields once, to a Codec, and the same
// description writes and reads them, under the same limits. It is pure.
//
// Writing follows what Python's msgpack emits: the shortest form of every number,
// non-negative ones in the unsigned family, str for text, bin for bytes.
// Reading takes keys in any order, skips unknown ones, refuses a key that comes
// twice, and compares every length with its limit before it allocates.
package msgpack

import (
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// Limits of any map that is read, whatever its message.
const (
	MaxFields = 64  // keys of one message, unknown ones included
	MaxKey    = 128 // bytes of a key
)

// maxFixed is how many entries fit into a map or array header of one byte, the
// only header that a message or tuple written here has.
const maxFixed = 15

// Codec writes or reads the fields of one map. The first problem sticks: later
// calls do nothing. When writing, a value over its limit is a problem too, but
// the bytes are written all the same; whether that is an error is for the caller.
type Codec struct {
	reading bool
	err     *Error

	in []entry // reading: the fields of the map, in their order

	out   []byte // writing
	start int    // offset of the map header in out
	count int    // fields written
}

// entry is one field of a map that is read: its key and its encoded value.
type entry struct {
	key   string
	value []byte
}

// Writer begins a map at the end of b.
func Writer(b []byte) *Codec {
	return &Codec{out: append(b, 0x80), start: len(b)}
}

// Reader takes apart the one map that b consists of. The values refer to b until
// they are read; what the fields are set to does not.
func Reader(b []byte) (*Codec, error) {
	c := &Codec{reading: true}
	rest := c.index(b)
	if c.err == nil && len(rest) > 0 {
		c.fail(Malformed, "", "%d bytes follow the map", len(rest))
	}
	return c, c.Err()
}

// Reading says whether the codec reads.
func (c *Codec) Reading() bool { return c.reading }

// Err is the first problem, nil when there is none.
func (c *Codec) Err() error {
	if c.err == nil {
		return nil
	}
	return c.err
}

// Bytes ends the map that is written and returns the slice given to Writer with
// the map appended.
func (c *Codec) Bytes() []byte {
	if c.count > maxFixed {
		panic("msgpack: a message has more fields than its header holds")
	}
	c.out[c.start] = 0x80 | byte(c.count)
	return c.out
}

// Fail notes a problem that the caller has found.
func (c *Codec) Fail(reason, field, format string, args ...any) {
	c.fail(reason, field, format, args...)
}

func (c *Codec) fail(reason, field, format string, args ...any) {
	if c.err == nil {
		c.err = Errorf(reason, field, format, args...)
	}
}

// Has begins an optional field. Writing, it returns present; reading, it returns
// whether the map has the field, null counting as absent.
func (c *Codec) Has(key string, present bool) bool {
	if !c.reading {
		return present
	}
	v, ok := c.find(key)
	return ok && !msgp.IsNil(v)
}

// Text returns a text field without asking for it, empty when it is absent or no text.
func (c *Codec) Text(key string) string {
	v, ok := c.find(key)
	if !ok {
		return ""
	}
	s, _, err := msgp.ReadStringZC(v)
	if err != nil {
		return ""
	}
	return string(s)
}

func (c *Codec) find(key string) ([]byte, bool) {
	for _, e := range c.in {
		if e.key == key {
			return e.value, true
		}
	}
	return nil, false
}

// need returns the encoded value of a field that must be there.
func (c *Codec) need(key string) ([]byte, bool) {
	if c.err != nil {
		return nil, false
	}
	v, ok := c.find(key)
	if !ok {
		c.fail(BadField, key, "is missing")
	}
	return v, ok
}

// key writes the key of the next field.
func (c *Codec) key(key string) {
	c.out = msgp.AppendString(c.out, key)
	c.count++
}

// index reads the keys of the map that b begins with and returns what follows it.
func (c *Codec) index(b []byte) []byte {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		c.wrong("", err)
		return nil
	}
	if n > MaxFields {
		c.fail(TooLong, "", "map of %d fields, the limit is %d", n, MaxFields)
		return nil
	}
	c.in = make([]entry, 0, min(int(n), len(rest)/2))
	for range n {
		var k []byte
		if k, rest, err = msgp.ReadStringZC(rest); err != nil {
			c.wrong("", err)
			return nil
		}
		if len(k) > MaxKey || !utf8.Valid(k) {
			c.fail(BadField, "", "key of %d bytes is no short text", len(k))
			return nil
		}
		value := rest
		if rest, err = skip(rest); err != nil {
			c.wrong(string(k), err)
			return nil
		}
		if _, twice := c.find(string(k)); twice {
			c.fail(BadField, string(k), "is there twice")
			return nil
		}
		c.in = append(c.in, entry{string(k), value[:len(value)-len(rest)]})
	}
	return rest
}

// wrong notes an error of the MessagePack library.
func (c *Codec) wrong(field string, err error) {
	switch e := err.(type) { //nolint:errorlint // msgp returns its errors bare
	case msgp.TypeError:
		c.fail(BadField, field, "is %s where %s belongs", e.Encoded, e.Method)
	case msgp.InvalidPrefixError:
		c.fail(Malformed, field, "has the byte 0x%x, which begins no value", byte(e))
	case msgp.UintBelowZero:
		c.fail(BadField, field, "is %d, below 0", e.Value)
	case msgp.UintOverflow:
		c.fail(BadField, field, "is %d, out of range", e.Value)
	default:
		c.fail(Truncated, field, "ends too early")
	}
}

// skip returns what follows the value at the start of b. It keeps count of the
// values still to come instead of recursing, so that nesting costs nothing.
func skip(b []byte) ([]byte, error) {
	var err error
	for pending := uint64(1); pending > 0; pending-- {
		if pending > uint64(len(b)) {
			return nil, msgp.ErrShortBytes
		}
		var n uint32
		switch msgp.NextType(b) {
		case msgp.MapType:
			n, b, err = msgp.ReadMapHeaderBytes(b)
			pending += 2 * uint64(n)
		case msgp.ArrayType:
			n, b, err = msgp.ReadArrayHeaderBytes(b)
			pending += uint64(n)
		default:
			b, err = msgp.Skip(b)
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}
