package msgpack

import (
	"math"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

// Integer is any type of number that a field may have.
type Integer interface {
	~int | ~int32 | ~int64 | ~uint32 | ~uint64
}

// Const is a text field with a fixed value. It is not compared when reading: who
// reads has chosen the parser by it.
func (c *Codec) Const(key, value string) {
	if c.reading {
		return
	}
	c.key(key)
	c.out = msgp.AppendString(c.out, value)
}

// String is a text field of at most limit bytes.
func String[T ~string](c *Codec, key string, v *T, limit int) {
	if c.reading {
		if b, ok := c.need(key); ok {
			s, _ := c.readString(key, b, limit)
			*v = T(s)
		}
		return
	}
	c.key(key)
	c.checkText(key, []byte(*v), limit)
	c.out = msgp.AppendString(c.out, string(*v))
}

// Sentence is a text for people: when writing it is cut to limit bytes instead of
// being over it.
func Sentence(c *Codec, key string, v *string, limit int) {
	if c.reading {
		String(c, key, v, limit)
		return
	}
	s := Cut(*v, limit)
	String(c, key, &s, limit)
}

// Cut makes valid UTF-8 of at most limit bytes of s, as Sentence does.
func Cut(s string, limit int) string {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// Bytes is a bin field of at most limit bytes. What is read is a copy, nil when empty.
func Bytes(c *Codec, key string, v *[]byte, limit int) {
	if c.reading {
		if b, ok := c.need(key); ok {
			*v, _ = c.readBytes(key, b, limit)
		}
		return
	}
	c.key(key)
	if len(*v) > limit {
		c.fail(TooLong, key, "has %d bytes, the limit is %d", len(*v), limit)
	}
	c.out = msgp.AppendBytes(c.out, *v)
}

// Int is a number from low to high.
func Int[T Integer](c *Codec, key string, v *T, low, high T) {
	if c.reading {
		if b, ok := c.need(key); ok {
			*v, _ = readInt(c, key, b, low, high)
		}
		return
	}
	c.key(key)
	checkInt(c, key, *v, low, high)
	c.out = appendInt(c.out, *v)
}

// Bool is a truth value.
func Bool(c *Codec, key string, v *bool) {
	if !c.reading {
		c.key(key)
		c.out = msgp.AppendBool(c.out, *v)
		return
	}
	b, ok := c.need(key)
	if !ok {
		return
	}
	t, _, err := msgp.ReadBoolBytes(b)
	if err != nil {
		c.wrong(key, err)
		return
	}
	*v = t
}

func appendInt[T Integer](b []byte, v T) []byte {
	if v < 0 {
		return msgp.AppendInt64(b, int64(v))
	}
	return msgp.AppendUint64(b, uint64(v))
}

// readInt compares in the widest type of the sign that low has, so that no value
// on the wire wraps into the range.
func readInt[T Integer](c *Codec, field string, b []byte, low, high T) (T, []byte) {
	if c.err != nil {
		return 0, nil
	}
	if msgp.NextType(b) == msgp.UintType || len(b) > 0 && b[0] < 0x80 {
		u, rest, err := msgp.ReadUint64Bytes(b)
		switch {
		case err != nil:
			c.wrong(field, err)
			return 0, nil
		case high < 0 || u > uint64(high) || low > 0 && u < uint64(low):
			c.fail(BadField, field, "is %d, allowed are %d to %d", u, low, high)
			return 0, nil
		}
		return T(u), rest
	}
	i, rest, err := msgp.ReadInt64Bytes(b)
	switch {
	case err != nil:
		c.wrong(field, err)
		return 0, nil
	case outside(i, low, high):
		c.fail(BadField, field, "is %d, allowed are %d to %d", i, low, high)
		return 0, nil
	}
	return T(i), rest
}

// outside compares a signed number of the wire with a range of any type.
func outside[T Integer](i int64, low, high T) bool {
	if i < 0 {
		return low >= 0 || i < int64(low)
	}
	return high < 0 || uint64(i) > uint64(high) || low > 0 && uint64(i) < uint64(low)
}

func checkInt[T Integer](c *Codec, field string, v, low, high T) {
	if v < low || v > high {
		c.fail(BadField, field, "is %d, allowed are %d to %d", v, low, high)
	}
}

func (c *Codec) readString(field string, b []byte, limit int) (string, []byte) {
	if c.err != nil {
		return "", nil
	}
	s, rest, err := msgp.ReadStringZC(b)
	if err != nil {
		c.wrong(field, err)
		return "", nil
	}
	c.checkText(field, s, limit)
	if c.err != nil {
		return "", nil
	}
	return string(s), rest
}

func (c *Codec) checkText(field string, s []byte, limit int) {
	switch {
	case len(s) > limit:
		c.fail(TooLong, field, "has %d bytes, the limit is %d", len(s), limit)
	case !utf8.Valid(s):
		c.fail(BadField, field, "is not UTF-8")
	}
}

func (c *Codec) readBytes(field string, b []byte, limit int) ([]byte, []byte) {
	if c.err != nil {
		return nil, nil
	}
	v, rest, err := msgp.ReadBytesZC(b)
	switch {
	case err != nil:
		c.wrong(field, err)
		return nil, nil
	case len(v) > limit:
		c.fail(TooLong, field, "has %d bytes, the limit is %d", len(v), limit)
		return nil, nil
	case len(v) == 0:
		return nil, rest
	}
	return append([]byte(nil), v...), rest
}

// Ranges of numbers that most fields share.
const (
	MaxInt32 = math.MaxInt32
	MaxInt64 = math.MaxInt64
)
