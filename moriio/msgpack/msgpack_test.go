package msgpack_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tinylib/msgp/msgp"

	"github.com/pdpool/pdpool/moriio/msgpack"
)

// shape has one field of every kind.
type shape struct {
	Text   string
	Bytes  []byte
	Small  int32
	Wide   uint64
	Signed int64
	Flag   bool
	Names  []string
	Rows   []row
	Inner  *shape
}

type row struct{ A, B int64 }

func fields(c *msgpack.Codec, s *shape) {
	msgpack.String(c, "text", &s.Text, 10)
	msgpack.Bytes(c, "bytes", &s.Bytes, 10)
	msgpack.Int(c, "small", &s.Small, -5, 100)
	msgpack.Int(c, "wide", &s.Wide, 0, math.MaxUint64)
	msgpack.Int(c, "signed", &s.Signed, math.MinInt64, math.MaxInt64)
	msgpack.Bool(c, "flag", &s.Flag)
	msgpack.Strings(c, "names", &s.Names, 3, 5)
	msgpack.Tuples(c, "rows", &s.Rows, 4, 2, func(t *msgpack.Tuple, r *row) {
		msgpack.Element(t, &r.A, math.MinInt64, math.MaxInt64)
		msgpack.Element(t, &r.B, 0, 9)
	})
	msgpack.Nested(c, "inner", &s.Inner, fields)
}

func write(s *shape) ([]byte, error) {
	c := msgpack.Writer(nil)
	fields(c, s)
	return c.Bytes(), c.Err()
}

func read(b []byte) (*shape, error) {
	c, err := msgpack.Reader(b)
	if err != nil {
		return nil, err
	}
	s := new(shape)
	fields(c, s)
	return s, c.Err()
}

func filled() *shape {
	return &shape{
		Text: "text", Bytes: []byte{1}, Small: -5, Wide: math.MaxUint64, Signed: math.MinInt64, Flag: true,
		Names: []string{"a", ""}, Rows: []row{{math.MaxInt64, 9}, {-1, 0}}, Inner: &shape{Wide: 1 << 63, Signed: 1 << 40},
	}
}

func TestRoundTrip(t *testing.T) {
	b, err := write(filled())
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(filled(), got); diff != "" {
		t.Errorf("read (-want +got):\n%s", diff)
	}
}

// Both directions hold a value to the same limit, and name the field alike.
func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		field, reason string
		change        func(*shape)
	}{
		{"text", msgpack.TooLong, func(s *shape) { s.Text = strings.Repeat("x", 11) }},
		{"text", msgpack.BadField, func(s *shape) { s.Text = "\xff" }},
		{"bytes", msgpack.TooLong, func(s *shape) { s.Bytes = make([]byte, 11) }},
		{"small", msgpack.BadField, func(s *shape) { s.Small = -6 }},
		{"small", msgpack.BadField, func(s *shape) { s.Small = 101 }},
		{"names", msgpack.TooLong, func(s *shape) { s.Names = make([]string, 4) }},
		{"names", msgpack.TooLong, func(s *shape) { s.Names[1] = "xxxxxx" }},
		{"rows", msgpack.TooLong, func(s *shape) { s.Rows = make([]row, 5) }},
		{"rows", msgpack.BadField, func(s *shape) { s.Rows[1].B = 10 }},
		{"inner.small", msgpack.BadField, func(s *shape) { s.Inner.Small = 101 }},
	} {
		s := filled()
		tc.change(s)
		b, writing := write(s)
		_, reading := read(b)
		for _, err := range []error{writing, reading} {
			e, ok := errors.AsType[*msgpack.Error](err)
			if !ok || e.Field() != tc.field || e.Reason() != tc.reason {
				t.Errorf("%s: %v, want %s", tc.field, err, tc.reason)
			}
		}
	}
}

// Numbers come in any width and family; none wraps into a range.
func TestNumbers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		value []byte
		want  int32
		ok    bool
	}{
		{"int8", []byte{0xd0, 100}, 100, true},
		{"int16", []byte{0xd1, 0, 100}, 100, true},
		{"int64", msgp.AppendInt64(nil, -5), -5, true},
		{"uint64", []byte{0xcf, 0, 0, 0, 0, 0, 0, 0, 100}, 100, true},
		{"2^32", msgp.AppendUint64(nil, 1<<32), 0, false},
		{"2^64-1", msgp.AppendUint64(nil, math.MaxUint64), 0, false},
		{"-2^32", msgp.AppendInt64(nil, -1<<32), 0, false},
		{"-2^63", msgp.AppendInt64(nil, math.MinInt64), 0, false},
		{"float", msgp.AppendFloat64(nil, 1), 0, false},
		{"nil", []byte{0xc0}, 0, false},
		{"true", []byte{0xc3}, 0, false},
	} {
		c, err := msgpack.Reader(append(msgp.AppendString([]byte{0x81}, "n"), tc.value...))
		if err != nil {
			t.Fatal(err)
		}
		var n int32
		msgpack.Int(c, "n", &n, -5, 100)
		if err := c.Err(); n != tc.want || (err == nil) != tc.ok {
			t.Errorf("%s: %d, %v", tc.name, n, err)
		}
	}
}

func TestNewerTuplesAreLonger(t *testing.T) {
	rows := func(b ...byte) (got []row, err error) {
		c, err := msgpack.Reader(append(msgp.AppendString([]byte{0x81}, "rows"), b...))
		if err != nil {
			t.Fatal(err)
		}
		msgpack.Tuples(c, "rows", &got, 4, 2, func(t *msgpack.Tuple, r *row) {
			msgpack.Element(t, &r.A, 0, 9)
			msgpack.Element(t, &r.B, 0, 9)
		})
		return got, c.Err()
	}
	got, err := rows(0x92, 0x93, 1, 2, 0xa1, 'x', 0x92, 3, 4)
	if diff := cmp.Diff([]row{{1, 2}, {3, 4}}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := rows(0x92, 0x91, 1, 0x94, 1, 2, 3, 4); err == nil {
		t.Error("a short row was accepted")
	}
}

func TestTooManyFieldsToWrite(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a message that no header holds was written")
		}
	}()
	c := msgpack.Writer(nil)
	for range 16 {
		c.Const("k", "v")
	}
	c.Bytes()
}
