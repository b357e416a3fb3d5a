package msgpack

import "github.com/tinylib/msgp/msgp"

// Extend begins one more field in the map that is, under key, the last entry of the map
// that b consists of. What the caller appends next is the value of that field. B is a
// message of this package, whose maps have headers of one byte; anything else, an inner
// map that is not there, not last or full is an *Error, and b is as it was.
func Extend(b []byte, key, name string) ([]byte, error) {
	if len(b) == 0 || b[0]&0xf0 != 0x80 {
		return b, Errorf(BadField, "", "is no short map")
	}
	var last, value []byte
	rest := b[1:]
	for range int(b[0] & 0x0f) {
		k, v, err := msgp.ReadStringZC(rest)
		if err == nil {
			rest, err = skip(v)
		}
		if err != nil {
			return b, Errorf(Truncated, "", "ends too early")
		}
		last, value = k, v
	}
	switch {
	case len(rest) > 0:
		return b, Errorf(Malformed, "", "%d bytes follow the map", len(rest))
	case string(last) != key || value[0]&0xf0 != 0x80:
		return b, Errorf(BadField, key, "is not the last entry, or no short map")
	case value[0]&0x0f == maxFixed:
		return b, Errorf(TooLong, key, "has no room for one more field")
	}
	b[len(b)-len(value)]++
	return msgp.AppendString(b, name), nil
}
