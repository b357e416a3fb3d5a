package enginesim

import (
	"slices"
	"testing"
	"time"
)

// until waits for a condition that another goroutine brings about.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(2 * patience); !ok(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it never came about")
		}
	}
}

var small = Geometry{Kind: gqa, Layers: 2, AttentionHeads: 4, KVHeads: 2, HeadValues: 8, ValueBytes: 2}

// A row differs whenever layer, plane, head, position, an earlier token or the
// salt does, and reading tells.
func TestRowsTellThemselvesApart(t *testing.T) {
	tokens := Tokenize("a b c d")
	other := Tokenize("x b c d")
	type version struct {
		s                *sequence
		layer, head, pos int
	}
	base := version{newSequence(small, tokens, "one"), 1, 1, 3}
	versions := []version{
		base,
		{base.s, 0, 1, 3},
		{base.s, 1, 0, 3},
		{base.s, 1, 1, 2},
		{newSequence(small, other, "one"), 1, 1, 3},
		{newSequence(small, tokens, "two"), 1, 1, 3},
	}
	var rows [][]uint64
	for _, v := range versions {
		row := make([]uint64, small.rowWords())
		v.s.write(row, v.layer, v.head, v.pos)
		for i := range row {
			if row[i]&poisonBit != 0 {
				t.Fatalf("content word %#x could be poison", row[i])
			}
			for j := range rows {
				if row[i] == rows[j][i] {
					t.Errorf("word %d of versions %d and %d is the same", i, len(rows), j)
				}
			}
		}
		rows = append(rows, row)
	}
	if n := small.planeWords(); slices.Equal(rows[0][:n], rows[0][n:]) {
		t.Error("both planes hold the same")
	}
	for i, row := range rows {
		if _, right := base.s.read(row, base.layer, base.head, base.pos); right != (i == 0) {
			t.Errorf("version %d read as the first: %t", i, right)
		}
	}
	for bit := range small.rowWords() * 64 {
		rows[0][bit/64] ^= 1 << (bit % 64)
		if _, right := base.s.read(rows[0], base.layer, base.head, base.pos); right {
			t.Fatalf("bit %d is not looked at", bit)
		}
		rows[0][bit/64] ^= 1 << (bit % 64)
	}
}

// Salt hides a request's rows from others, and changes no answer.
func TestDigestHasNoSalt(t *testing.T) {
	tokens := Tokenize("a b c")
	row := make([]uint64, small.rowWords())
	plain, salted := newSequence(small, tokens, ""), newSequence(small, tokens, "salt")
	want := plain.write(row, 1, 1, 2)
	if got := salted.write(row, 1, 1, 2); got != want {
		t.Errorf("digest %#x with salt, %#x without", got, want)
	}
	if got, right := salted.read(row, 1, 1, 2); got != want || !right {
		t.Errorf("read digest %#x, right %t; want %#x", got, right, want)
	}
}

func TestIsPoison(t *testing.T) {
	for _, tc := range []struct {
		row  []uint64
		want bool
	}{
		{[]uint64{3, 3, 3}, true}, {[]uint64{3, 3, 5}, false}, {[]uint64{2, 2, 2}, false}, {[]uint64{2, 3, 3}, false},
	} {
		if got := isPoison(tc.row); got != tc.want {
			t.Errorf("%v: %t", tc.row, got)
		}
	}
}

func TestAnswerFollowsFromThePrompt(t *testing.T) {
	a := Answer(small, Tokenize("the quick brown fox"), 8)
	if b := Answer(small, Tokenize("the quick brown fox"), 8); !slices.Equal(a, b) {
		t.Errorf("two answers to one prompt: %v, %v", a, b)
	}
	if b := Answer(small, Tokenize("the quick brown dog"), 8); slices.Equal(a, b) {
		t.Errorf("one answer to two prompts: %s", Text(a))
	}
	// The answer's own tokens count as prompt for what follows.
	long := append(Tokenize("the quick brown fox"), a[:3]...)
	if b := Answer(small, long, 5); !slices.Equal(a[3:], b) {
		t.Errorf("continued with %s, not %s", Text(b), Text(a[3:]))
	}
	if got := Tokenize(Text(a)); !slices.Equal(got, a) {
		t.Errorf("the answer %q is read as other tokens", Text(a))
	}
}

func TestVocabulary(t *testing.T) {
	seen := map[uint32]string{}
	for i, id := range wordTokens {
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the same token", other, vocabulary[i])
		}
		seen[id] = vocabulary[i]
	}
}

func TestCutter(t *testing.T) {
	for _, tc := range []struct {
		stops  []string
		pieces []string
		want   []string
		ends   bool
	}{
		{nil, []string{"a", " b"}, []string{"a", " b"}, false},
		{[]string{"b c"}, []string{"a", " b", " c", " d"}, []string{"a", " ", ""}, true},
		{[]string{"b c"}, []string{"a", " b", " d"}, []string{"a", " ", "b d"}, false},
		{[]string{"x", "b"}, []string{"abx"}, []string{"a"}, true},
	} {
		c := cutter{stops: tc.stops}
		var got []string
		stopped := false
		for _, p := range tc.pieces {
			if stopped {
				break
			}
			var out string
			out, stopped = c.add(p)
			got = append(got, out)
		}
		if !slices.Equal(got, tc.want) || stopped != tc.ends {
			t.Errorf("stops %q in %q: %q, stopped %t", tc.stops, tc.pieces, got, stopped)
		}
	}
}
