package msgpack

import "github.com/tinylib/msgp/msgp"

// Tuple is a row of numbers without keys, for lists that are long. Elements that
// a newer peer appends are skipped.
type Tuple struct {
	c     *Codec
	key   string
	rest  []byte // reading: what follows
	left  int    // reading: elements that have not been read
	count int    // writing: elements written
}

// Tuples is an array of at most limit tuples of at least size elements each.
func Tuples[T any](c *Codec, key string, v *[]T, limit, size int, elements func(*Tuple, *T)) {
	if !c.reading {
		c.header(key, len(*v), limit)
		for i := range *v {
			start := len(c.out)
			c.out = append(c.out, 0x90)
			t := Tuple{c: c, key: key}
			elements(&t, &(*v)[i])
			if t.count != size || size > maxFixed {
				panic("msgpack: a tuple was written with another size than it was declared with")
			}
			c.out[start] = 0x90 | byte(size)
		}
		return
	}
	b, ok := c.need(key)
	if !ok {
		return
	}
	list, b := makeList[T](c, key, b, limit, 1+size)
	for i := range list {
		t := Tuple{c: c, key: key, rest: b}
		t.open(size)
		elements(&t, &list[i])
		if b = t.close(); c.err != nil {
			return
		}
	}
	*v = list
}

func (t *Tuple) open(size int) {
	n, rest, err := msgp.ReadArrayHeaderBytes(t.rest)
	switch {
	case err != nil:
		t.c.wrong(t.key, err)
	case n < uint32(size) || n > MaxFields:
		t.c.fail(BadField, t.key, "has a row of %d numbers where %d belong", n, size)
	}
	t.rest, t.left = rest, int(n)
}

func (t *Tuple) close() []byte {
	var err error
	for ; t.left > 0 && t.c.err == nil; t.left-- {
		if t.rest, err = skip(t.rest); err != nil {
			t.c.wrong(t.key, err)
		}
	}
	return t.rest
}

// Element is the next number of a tuple.
func Element[T Integer](t *Tuple, v *T, low, high T) {
	if !t.c.reading {
		checkInt(t.c, t.key, *v, low, high)
		t.c.out = appendInt(t.c.out, *v)
		t.count++
		return
	}
	if t.c.err != nil {
		return
	}
	*v, t.rest = readInt(t.c, t.key, t.rest, low, high)
	t.left--
}
