package router

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func text(p pieces) string {
	b, err := io.ReadAll(p.reader())
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestCut(t *testing.T) {
	for body, want := range map[string][]string{
		`{}`:                                  nil,
		` {"a":1} `:                           {"a=1"},
		`{"a" : "x:,}" , "b":[1,2]}`:          {`a="x:,}"`, "b=[1,2]"},
		`{"a":{"b":{"c":1}},"d":"\\\""}`:      {`a={"b":{"c":1}}`, `d="\\\""`},
		`{"a.b":1,"":2}`:                      {"a.b=1", "=2"},
		`{"a":1,"a":2}`:                       {"a=2"},
		`{"st\u0072eam":true,"stream":false}`: {"stream=false"},
		`{"st\u0072eam":true}`:                {"stream=true"},
		"{\n\t\"a\": 1.5e3 ,\r\n\"b\": null}": {"a=1.5e3", "b=null"},
	} {
		d, err := cut(body)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		var got []string
		for _, f := range d.fields {
			got = append(got, f.key+"="+d.text[f.value.from:f.value.to])
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, not %q", body, got, want)
		}
	}
}

func TestCutRefuses(t *testing.T) {
	many := "{" + strings.Repeat(`"a":1,`, maxFields+1) + `"b":1}`
	for body, want := range map[string]string{
		``:                         "not valid JSON",
		`{`:                        "not valid JSON",
		`{"a":1}}`:                 "not valid JSON",
		`{"a":1,}`:                 "not valid JSON",
		`{"a"}`:                    "not valid JSON",
		`{"a":}`:                   "not valid JSON",
		`{"a":1 2}`:                "not valid JSON",
		`{"a":"`:                   "not valid JSON",
		`{'a':1}`:                  "not valid JSON",
		`{"a":01}`:                 "not valid JSON",
		`[1]`:                      "not a JSON object",
		`"a"`:                      "not a JSON object",
		`1`:                        "not a JSON object",
		`null`:                     "not a JSON object",
		many:                       "more than 1024 fields",
		strings.Repeat("[", 1<<20): "nested",
		`{"a":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}": "nested",
	} {
		if _, err := cut(body); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", body, err, want)
		}
	}
}

func TestWithKeepsWhatIsNotChanged(t *testing.T) {
	for _, c := range []struct {
		body  string
		edits []edit
		want  string
	}{
		{`{}`, nil, `{}`},
		{`{}`, []edit{{"x", "1"}}, `{"x":1}`},
		{`{"a" : 1.0,  "b":"\u00e9"}`, []edit{{"x", "1"}}, `{"a" : 1.0,  "b":"\u00e9","x":1}`},
		{`{"a":1,"b":2,"c":3}`, []edit{{"b", "9"}}, `{"a":1,"b":9,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []edit{{"b", ""}}, `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, []edit{{"a", ""}, {"c", ""}}, `{"b":2}`},
		{`{"a":1}`, []edit{{"a", ""}}, `{}`},
		{`{"a":1,"b":2,"a":3,"c":4}`, nil, `{"b":2,"a":3,"c":4}`},
		{`{"c":0,"a":1,"b":2,"a":3}`, []edit{{"x", "1"}}, `{"c":0,"b":2,"a":3,"x":1}`},
		{`{"\u0061":1,"b":2}`, []edit{{"a", "5"}}, `{"\u0061":5,"b":2}`},
		{`{"big":12345678901234567890,"f":-100.0}`, []edit{{"x", ""}}, `{"big":12345678901234567890,"f":-100.0}`},
	} {
		d, err := cut(c.body)
		if err != nil {
			t.Fatal(err)
		}
		p := d.with(c.edits)
		if got := text(p); got != c.want {
			t.Errorf("%s with %v: %s, not %s", c.body, c.edits, got, c.want)
		}
		if p.size() != int64(len(c.want)) {
			t.Errorf("%s: size %d", c.body, p.size())
		}
	}
}

// FuzzDocument holds cutting and editing against decoding and encoding.
func FuzzDocument(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[{"c":"\\\""}],"a":2}`, `{"st\u0072eam":true, "x" : null}`, `[`, `{"a":"\ud800"}`, `{"a":{"a":1}}`} {
		f.Add(s)
	}
	edits := []edit{{"a", "[7]"}, {"stream", ""}, {"new", `"n"`}}
	f.Fuzz(func(t *testing.T, body string) {
		d, err := cut(body)
		if err != nil {
			return
		}
		if !gjson.Valid(body) {
			t.Fatalf("accepts %q", body)
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(body), &want); err != nil {
			return // encoding/json is stricter about depth
		}
		for _, e := range edits {
			delete(want, e.key)
			if e.value != "" {
				want[e.key] = json.RawMessage(e.value)
			}
		}
		edited := text(d.with(edits))
		var got map[string]json.RawMessage
		if err := json.Unmarshal([]byte(edited), &got); err != nil {
			t.Fatalf("%q became %q: %v", body, edited, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q became %q", body, edited)
		}
	})
}
