package manifest

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// object is a pool whose spec begins with some fields of JSON.
func object(fields string) string {
	return `{"apiVersion":"pdpool.dev/v1alpha1","kind":"PDPool","metadata":{"name":"x"},"spec":{` + fields + `"model":{"name":"m"},"engine":{"type":"Simulator"},"prefill":{},"decode":{}}}`
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// allocated is how many bytes a function allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestManyFaults holds that an object costs no more for its faults, and that those that
// are not told are not forgotten either.
func TestManyFaults(t *testing.T) {
	wide := numbered(30_000, `"a%d":1,`)
	env := strings.TrimSuffix(strings.Repeat("{},", 38_000), ",")
	long := strings.Repeat("k", 1000) // YAML has no longer ones
	twice := "apiVersion: pdpool.dev/v1alpha1\nkind: PDPool\n" + strings.Repeat("metadata: {name: x}\n", 20_000) +
		"spec: {model: {name: m}, engine: {type: Simulator}, prefill: {}, decode: {}}\n"
	for name, c := range map[string]struct {
		text  string
		warns bool // of those that are not told
	}{
		"unknown keys and entries": {strings.Replace(object(wide), `"type":"Simulator"`, `"type":"Simulator","env":[`+env+`]`, 1), false},
		"a long unknown key":       {object(`"` + long + `":[` + strings.TrimSuffix(strings.Repeat("1,", 90_000), ",") + `],`), false},
		"keys given twice":         {twice, true},
		"below a long key":         {object(`"` + long + `":{` + numbered(300, `"b":%d,"c":1,`) + `"d":1},`), true},
	} {
		t.Run(name, func(t *testing.T) {
			var got Content
			bytes := allocated(func() { got = Read("f", []byte(c.text)) })
			if len(got.Pools) != 1 {
				t.Fatalf("%d pools, %v", len(got.Pools), got.Errors)
			}
			faults := got.Pools[0].Faults
			if len(faults) == 0 || len(faults) > MaxFaults+1 {
				t.Fatalf("%d faults", len(faults))
			}
			if last := faults[len(faults)-1]; len(faults) > MaxFaults && (!strings.Contains(last.Text, "more faults") || last.Warns != c.warns) {
				t.Errorf("%+v", last)
			}
			for _, f := range faults {
				if len(f.Text) > 2*mostOfText || len(f.Field) > 2*mostOfField {
					t.Fatalf("a fault of %d and %d bytes", len(f.Text), len(f.Field))
				}
			}
			if bytes > 200<<20 {
				t.Errorf("%d bytes are allocated for %d", bytes, len(c.text))
			}
			t.Logf("%d faults, %d MB", len(faults), bytes>>20)
		})
	}
}

// TestPlacesInWideMaps holds that a key of many is found where the last of its name is.
func TestPlacesInWideMaps(t *testing.T) {
	text := "apiVersion: pdpool.dev/v1alpha1\nkind: PDPool\nmetadata: {name: x}\nspec:\n" + numbered(200, "  a%d: 1\n") + "  a7: 2\n  engine: {type: Simulator}\n"
	got := Read("f", []byte(text))
	if len(got.Pools) != 1 {
		t.Fatal(got.Errors)
	}
	for field, line := range map[string]int{"a0": 5, "a7": 205, "a199": 204, "engine.type": 206, "none": 4} {
		if at := got.Pools[0].FieldPlace(field); at.Line != line {
			t.Errorf("%s is in line %d, want %d", field, at.Line, line)
		}
	}
}

// TestManyDocuments holds that a file ends where documents, or those that can't be read,
// are beyond counting, and says so.
func TestManyDocuments(t *testing.T) {
	for name, c := range map[string]struct {
		text                  string
		pools, others, errors int
		last                  string
	}{
		"unreadable":       {strings.Repeat("---\na: [\n", 50_000), 0, 0, MaxErrors + 1, "from here on"},
		"of other kinds":   {strings.Repeat("---\nkind: A\n", 50_000), 0, MaxDocuments, 1, "more than 10000 documents"},
		"no objects":       {strings.Repeat("---\na\n", 5000), 0, 5000 - MaxErrors, MaxErrors, "no object"},
		"pools":            {strings.Repeat("---\n"+good, 5000), MaxPools, 0, 1, "more than 2000 PDPools"},
		"items of a list":  {`{"apiVersion":"v1","kind":"List","items":[` + strings.TrimSuffix(strings.Repeat(`{"kind":"PDPool","apiVersion":"pdpool.dev/v9"},`, 9000), ",") + `]}`, 0, 0, MaxErrors + 1, "from here on"},
		"and a good first": {good + strings.Repeat("---\na: [\n", 50_000), 1, 0, MaxErrors + 1, "from here on"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Read("f", []byte(c.text))
			if len(got.Pools) != c.pools || got.Others != c.others || len(got.Errors) != c.errors {
				t.Fatalf("%d pools, %d others, %d errors", len(got.Pools), got.Others, len(got.Errors))
			}
			if last := got.Errors[len(got.Errors)-1]; !strings.Contains(last.Text, c.last) {
				t.Errorf("%v", last)
			}
		})
	}
}

// TestBinary holds that kubectl's reading of !!binary is ours.
func TestBinary(t *testing.T) {
	got := Read("f", []byte(strings.Replace(good, "name: r1", "name: !!binary cjE=", 1)))
	if len(got.Pools) != 1 || got.Pools[0].Name != "r1" {
		t.Errorf("%+v, %v", got.Pools, got.Errors)
	}
	got = Read("f", []byte(strings.Replace(good, "name: r1", "name: !!binary c", 1)))
	if len(got.Pools) != 0 || len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Text, "base64") {
		t.Errorf("%+v, %v", got.Pools, got.Errors)
	}
}

// TestLongNames holds that a name is cited in short.
func TestLongNames(t *testing.T) {
	name, err := json.Marshal(strings.Repeat("n", 900_000))
	if err != nil {
		t.Fatal(err)
	}
	got := Read("f", []byte(strings.Replace(object(""), `"x"`, string(name), 1)))
	if len(got.Pools) != 1 || len(got.Pools[0].Identity()) > 2*mostOfField {
		t.Error("it is cited whole")
	}
}
