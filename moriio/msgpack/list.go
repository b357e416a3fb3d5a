package msgpack

import (
	"maps"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// Nested is an optional map inside a map, nil when absent.
func Nested[T any](c *Codec, key string, v **T, fields func(*Codec, *T)) {
	if !c.Has(key, *v != nil) {
		return
	}
	if c.reading {
		*v = new(T)
	}
	Struct(c, key, *v, fields)
}

// Struct is a map inside a map.
func Struct[T any](c *Codec, key string, v *T, fields func(*Codec, *T)) {
	if !c.reading {
		c.key(key)
		writeStruct(c, key, v, fields)
		return
	}
	if b, ok := c.need(key); ok {
		readStruct(c, key, b, v, fields)
	}
}

func writeStruct[T any](c *Codec, key string, v *T, fields func(*Codec, *T)) {
	inner := Writer(c.out)
	fields(inner, v)
	c.out = inner.Bytes()
	c.adopt(key, inner.err)
}

func readStruct[T any](c *Codec, key string, b []byte, v *T, fields func(*Codec, *T)) []byte {
	inner := &Codec{reading: true}
	rest := inner.index(b)
	if inner.err == nil {
		fields(inner, v)
	}
	c.adopt(key, inner.err)
	return rest
}

// adopt takes over the problem of a map inside this one.
func (c *Codec) adopt(key string, err *Error) {
	if c.err != nil || err == nil {
		return
	}
	field := key
	if err.field != "" {
		field += "." + err.field
	}
	c.err = &Error{reason: err.reason, field: field, text: err.text}
}

// List is an array of maps, at most limit of them. Each has at least least bytes
// on the wire, so that a count that the message can't hold allocates nothing.
func List[T any](c *Codec, key string, v *[]T, limit, least int, fields func(*Codec, *T)) {
	if !c.reading {
		c.header(key, len(*v), limit)
		for i := range *v {
			writeStruct(c, key, &(*v)[i], fields)
		}
		return
	}
	b, ok := c.need(key)
	if !ok {
		return
	}
	list, b := makeList[T](c, key, b, limit, least)
	for i := range list {
		if c.err != nil {
			return
		}
		b = readStruct(c, key, b, &list[i], fields)
	}
	*v = list
}

// Ints is an array of at most limit numbers from low to high.
func Ints[T Integer](c *Codec, key string, v *[]T, limit int, low, high T) {
	if !c.reading {
		c.header(key, len(*v), limit)
		for _, n := range *v {
			checkInt(c, key, n, low, high)
			c.out = appendInt(c.out, n)
		}
		return
	}
	if b, ok := c.need(key); ok {
		*v, _ = readInts(c, key, b, limit, low, high)
	}
}

func readInts[T Integer](c *Codec, key string, b []byte, limit int, low, high T) ([]T, []byte) {
	list, b := makeList[T](c, key, b, limit, 1)
	for i := range list {
		if list[i], b = readInt(c, key, b, low, high); c.err != nil {
			return nil, nil
		}
	}
	return list, b
}

// Strings is an array of at most limit texts of at most each bytes.
func Strings(c *Codec, key string, v *[]string, limit, each int) {
	if !c.reading {
		c.header(key, len(*v), limit)
		for _, s := range *v {
			c.checkText(key, []byte(s), each)
			c.out = msgp.AppendString(c.out, s)
		}
		return
	}
	b, ok := c.need(key)
	if !ok {
		return
	}
	list, b := makeList[string](c, key, b, limit, 1)
	for i := range list {
		if list[i], b = c.readString(key, b, each); c.err != nil {
			return
		}
	}
	*v = list
}

// Groups is an array of at most groups arrays of numbers, limit numbers in all;
// or, when flat is set, one plain array for a single group. What is read is flat
// when its elements are numbers; an empty array is flat.
func Groups[T Integer](c *Codec, key string, v *[][]T, flat *bool, groups, limit int, low, high T) {
	if !c.reading {
		if *flat {
			var one []T
			if len(*v) > 0 {
				one = (*v)[0]
			}
			Ints(c, key, &one, limit, low, high)
			return
		}
		c.header(key, len(*v), groups)
		for _, g := range *v {
			c.out = msgp.AppendArrayHeader(c.out, uint32(len(g)))
			for _, n := range g {
				checkInt(c, key, n, low, high)
				c.out = appendInt(c.out, n)
			}
			limit -= len(g)
		}
		if limit < 0 {
			c.fail(TooLong, key, "has %d numbers too many", -limit)
		}
		return
	}
	if b, ok := c.need(key); ok {
		*v, *flat = readGroups(c, key, b, groups, limit, low, high)
	}
}

func readGroups[T Integer](c *Codec, key string, b []byte, groups, limit int, low, high T) ([][]T, bool) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		c.wrong(key, err)
		return nil, true
	}
	if n == 0 || msgp.NextType(rest) != msgp.ArrayType {
		one, _ := readInts(c, key, b, limit, low, high)
		return [][]T{one}, true
	}
	list, rest := makeList[[]T](c, key, b, groups, 1)
	for i := range list {
		list[i], rest = readInts(c, key, rest, limit, low, high)
		limit -= len(list[i])
	}
	if c.err != nil {
		return nil, true
	}
	return list, false
}

// IntLists is a map from a name of at most MaxKey bytes to an array of at most
// each numbers from low to high. It is written in the order of the names.
func IntLists(c *Codec, key string, v *map[string][]int, limit, each, low, high int) {
	named(c, key, v, limit, func(n []int) {
		c.arrayHeader(key, len(n), each)
		for _, i := range n {
			checkInt(c, key, i, low, high)
			c.out = appendInt(c.out, i)
		}
	}, func(b []byte) ([]int, []byte) { return readInts(c, key, b, each, low, high) })
}

// IntMap is a map from a name of at most MaxKey bytes to a number from low to
// high. It is written in the order of the names.
func IntMap(c *Codec, key string, v *map[string]int, limit, low, high int) {
	named(c, key, v, limit, func(n int) {
		checkInt(c, key, n, low, high)
		c.out = appendInt(c.out, n)
	}, func(b []byte) (int, []byte) { return readInt(c, key, b, low, high) })
}

func named[T any](c *Codec, key string, v *map[string]T, limit int, write func(T), read func([]byte) (T, []byte)) {
	if !c.reading {
		c.key(key)
		if len(*v) > limit {
			c.fail(TooLong, key, "has %d entries, the limit is %d", len(*v), limit)
		}
		c.out = msgp.AppendMapHeader(c.out, uint32(len(*v)))
		for _, name := range slices.Sorted(maps.Keys(*v)) {
			c.checkText(key, []byte(name), MaxName)
			c.out = msgp.AppendString(c.out, name)
			write((*v)[name])
		}
		return
	}
	b, ok := c.need(key)
	if !ok {
		return
	}
	n, b := c.mapHeader(key, b, limit)
	m := make(map[string]T, n)
	for range n {
		var name string
		name, b = c.readString(key, b, MaxName)
		if c.err != nil {
			return
		}
		if _, twice := m[name]; twice {
			c.fail(BadField, key, "has the name %q twice", name)
			return
		}
		m[name], b = read(b)
	}
	if c.err == nil && n > 0 {
		*v = m
	}
}

// MaxName bounds the names of IntMap, IntLists and BytesLists, in bytes.
const MaxName = 1024

// header writes the key and the array header of a list.
func (c *Codec) header(key string, n, limit int) {
	c.key(key)
	c.arrayHeader(key, n, limit)
}

func (c *Codec) arrayHeader(key string, n, limit int) {
	if n > limit {
		c.fail(TooLong, key, "has %d elements, the limit is %d", n, limit)
	}
	c.out = msgp.AppendArrayHeader(c.out, uint32(n))
}

// mapHeader reads a count of entries that is neither over limit nor more than b can hold.
func (c *Codec) mapHeader(key string, b []byte, limit int) (int, []byte) {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	switch {
	case err != nil:
		c.wrong(key, err)
	case int64(n) > int64(limit):
		c.fail(TooLong, key, "has %d entries, the limit is %d", n, limit)
	case int64(n)*2 > int64(len(rest)):
		c.fail(Truncated, key, "ends too early")
	}
	if c.err != nil {
		return 0, nil
	}
	return int(n), rest
}

// makeList reads an array header and makes the list for it, nil when it is empty.
func makeList[T any](c *Codec, key string, b []byte, limit, least int) ([]T, []byte) {
	if c.err != nil {
		return nil, nil
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	switch {
	case err != nil:
		c.wrong(key, err)
	case int64(n) > int64(limit):
		c.fail(TooLong, key, "has %d elements, the limit is %d", n, limit)
	case int64(n)*int64(least) > int64(len(rest)):
		c.fail(Truncated, key, "ends too early")
	}
	if c.err != nil || n == 0 {
		return nil, rest
	}
	return make([]T, n), rest
}
