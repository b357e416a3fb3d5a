package manifest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `apiVersion: pdpool.dev/v1alpha1
kind: PDPool
metadata:
  name: r1
spec:
  model: {name: deepseek-ai/DeepSeek-R1}
  engine:
    type: Simulator
  prefill:
    layout: {tp: 4}
  decode:
    layout:
      tp: 4
      dcp: 4
`

func TestStreams(t *testing.T) {
	helm := "---\n# Source: x/templates/a.yaml\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n---\n# Source: x/b.yaml\n" + good + "---\n# empty\n"
	broken := "kind: [\n---\n" + good
	list := "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- " + strings.ReplaceAll(strings.TrimSuffix(good, "\n"), "\n", "\n  ") + "\n"
	for name, c := range map[string]struct {
		text                  string
		pools, others, errors int
		lines                 []int // of pools
	}{
		"one":              {text: good, pools: 1, lines: []int{1}},
		"crlf":             {text: strings.ReplaceAll("---\n"+good+"---\n"+good, "\n", "\r\n"), pools: 2, lines: []int{2, 17}},
		"byte order mark":  {text: "\xef\xbb\xbf" + good, pools: 1, lines: []int{1}},
		"helm":             {text: helm, pools: 1, others: 1, lines: []int{8}},
		"directive":        {text: "%YAML 1.1\n---\n" + good + "...\n" + good, pools: 2, lines: []int{3, 18}},
		"a broken one":     {text: broken, pools: 1, errors: 1, lines: []int{3}},
		"list":             {text: list, pools: 1, others: 1, lines: []int{6}},
		"JSON":             {text: `{"apiVersion":"pdpool.dev/v1alpha1","kind":"PDPool","metadata":{"name":"x"},` + "\n\t" + `"spec":{}}`, pools: 1, lines: []int{1}},
		"on the mark line": {text: `--- {apiVersion: pdpool.dev/v1alpha1, kind: PDPool}`, pools: 1, lines: []int{1}},
		"comments":         {text: "# nothing\n---\n\n"},
		"empty":            {text: ""},
		"another version":  {text: strings.ReplaceAll(good, "v1alpha1", "v9"), errors: 1},
		"another group":    {text: strings.ReplaceAll(good, "pdpool.dev", "example.org"), others: 1},
		"no kind":          {text: "a: b\n", errors: 1},
		"a text":           {text: "hello\n", errors: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := Read("f.yaml", []byte(c.text))
			if len(got.Pools) != c.pools || got.Others != c.others || len(got.Errors) != c.errors {
				t.Fatalf("%d pools, %d others, errors %v", len(got.Pools), got.Others, got.Errors)
			}
			for i, p := range got.Pools {
				if p.Place.Line != c.lines[i] {
					t.Errorf("pool %d is at %v, want line %d", i, p.Place, c.lines[i])
				}
				if len(p.Faults) > 0 && strings.Contains(c.text, "prefill") {
					t.Errorf("faults: %v", p.Faults)
				}
			}
		})
	}
}

func TestFieldPlace(t *testing.T) {
	p := Read("f.yaml", []byte("---\n"+good+`  engine: {args: [--a, "--b"]}`+"\n")).Pools[0]
	for field, want := range map[string]string{
		"decode.layout.dcp":        "f.yaml:15:7",
		"prefill.layout.tp":        "f.yaml:11:14",
		"decode.layout.interleave": "f.yaml:13:5", // the innermost that is there
		"metadata.name":            "f.yaml:5:3",
		"engine.args[1]":           "f.yaml:16:24", // the last of two counts
		"transfer.mover":           "f.yaml:6:1",
	} {
		if got := p.FieldPlace(field).String(); got != want {
			t.Errorf("%s is at %s, want %s", field, got, want)
		}
	}
	if twice := p.Faults[len(p.Faults)-1]; !twice.Warns || twice.Field != "engine" || twice.Place.Line != 16 {
		t.Errorf("the second engine is not told: %+v", p.Faults)
	}
}

func TestSyntaxErrorHasItsLine(t *testing.T) {
	got := Read("f.yaml", []byte(good+"---\nkind: PDPool\nspec:\n  a: b: c\n---\n"+good))
	if len(got.Errors) != 1 || got.Errors[0].Place.Line != 18 || len(got.Pools) != 2 {
		t.Errorf("%v, %d pools", got.Errors, len(got.Pools))
	}
}

func TestWhatAFieldDoesNotTake(t *testing.T) {
	for _, c := range []struct {
		old, now string
		want     []Fault
	}{
		{"dcp: 4", "dcp: four", []Fault{{Field: "decode.layout.dcp", Text: "it takes a whole number, and this is a string", Fix: "give a whole number", Lost: true}}},
		{"dcp: 4", `dcp: "4"`, []Fault{{Field: "decode.layout.dcp", Text: "it takes a whole number, and this is a string", Fix: "write 4 without quotes", Meant: true}}},
		{"dcp: 4", "cdp: 4", []Fault{{Field: "decode.layout.cdp", Text: `unknown field "spec.decode.layout.cdp"`, Fix: "remove it, or look its name up in docs/fields.md"}}},
		{"      dcp: 4", "      dcp: x\n      cdp: 4", []Fault{
			{Field: "decode.layout.dcp", Text: "it takes a whole number, and this is a string", Fix: "give a whole number", Lost: true},
			{Field: "decode.layout.cdp", Text: `unknown field "spec.decode.layout.cdp"`, Fix: "remove it, or look its name up in docs/fields.md"},
		}},
	} {
		got := Read("f.yaml", []byte(strings.Replace(good, c.old, c.now, 1)))
		if len(got.Errors) > 0 || len(got.Pools) != 1 || len(got.Pools[0].Faults) != len(c.want) {
			t.Errorf("%s: %+v", c.now, got)
			continue
		}
		for i, f := range got.Pools[0].Faults {
			if f.Place.Line < 14 {
				t.Errorf("%s: %v", c.now, f.Place)
			}
			f.Place = Place{}
			if f != c.want[i] {
				t.Errorf("%s: %+v, want %+v", c.now, f, c.want[i])
			}
		}
	}
}

// TestForeign holds which documents of a folder can be left out.
func TestForeign(t *testing.T) {
	for text, foreign := range map[string]bool{
		"a: b\n":  true,
		"- 1\n":   true,
		"hello\n": true,
		"a: [\n":  false,
		"apiVersion: pdpool.dev/v1alpha1\nspec: {}\n": false,
		"Kind: PDPool\nspec: {}\n":                    false,
	} {
		got := Read("f.yaml", []byte(text))
		if len(got.Errors) != 1 || got.Errors[0].Foreign != foreign {
			t.Errorf("%q: %+v", text, got)
			continue
		}
		got.LeaveOut()
		if (len(got.Errors) == 0) != foreign || (got.Others == 1) != foreign {
			t.Errorf("%q: left out %+v", text, got)
		}
	}
}

func TestScalars(t *testing.T) {
	text := good + "  network: {policy: yes}\n"
	if got := Read("f", []byte(text)); len(got.Pools) != 1 || len(got.Pools[0].Faults) != 1 || !strings.Contains(got.Pools[0].Faults[0].Text, "this is a bool") {
		t.Errorf("yes is a boolean for kubectl: %+v", got)
	}
	text = strings.Replace(good, "dcp: 4", "dcp: 0x4", 1)
	if got := Read("f", []byte(text)); len(got.Pools) != 1 || got.Pools[0].Spec.Decode.Layout.DCP != 4 {
		t.Errorf("%+v", got)
	}
	text = "apiVersion: pdpool.dev/v1alpha1\nkind: PDPool\nspec:\n  prefill: &p {layout: &l {tp: 4}}\n  decode:\n    <<: *p\n    layout: {<<: [*l], dcp: 2}\n"
	if got := Read("f", []byte(text)); len(got.Pools) != 1 || got.Pools[0].Spec.Decode.Layout.DCP != 2 || got.Pools[0].Spec.Decode.Layout.TP != 4 {
		t.Errorf("%+v", got)
	}
}

// TestBounds holds that hostile texts cost little memory and end with a word.
func TestBounds(t *testing.T) {
	head := "apiVersion: pdpool.dev/v1alpha1\nkind: PDPool\nspec:\n"
	var laughs strings.Builder
	laughs.WriteString(head + "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 20 {
		fmt.Fprintf(&laughs, "  a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	for name, c := range map[string]struct{ text, want string }{
		"10 MB":              {head + strings.Repeat("  # a comment\n", 10<<20/14), "bytes, more than"},
		"10 MB of lists":     {head + "  a: [" + strings.Repeat("[],", 10<<20/3) + "]", "bytes, more than"},
		"many values":        {head + "  a: [" + strings.Repeat("a,", 150_000) + "]", "more than 100000 values"},
		"deep flow":          {head + "  a: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "deep"},
		"deeper":             {head + "  a: " + strings.Repeat("[", 500_000), "PDPool or what it is"},
		"deep block":         {head + "  a:\n    " + strings.Repeat("- ", 5000) + "x", "deep"},
		"aliases":            {laughs.String(), "more than 100000 values"},
		"an alias of itself": {head + "  a: &a [*a]\n", ""},
		"comments":           {head + strings.Repeat("#\n", 200_000), ""},
		"comments in a list": {head + "  a:\n" + strings.Repeat("  - 1 #\n", 40_000), ""},
		"a long key":         {head + "  ? " + strings.Repeat("a", 1<<20-200) + "\n  : b\n", ""},
		"open quotes":        {head + "  a: \"" + strings.Repeat("\\\n", 500_000), ""},
		"anchors":            {head + "  a: [" + strings.Repeat("&a x,", 120_000) + "]", "more than 100000 values"},
		"other kinds":        {"kind: Other\ndata: [" + strings.Repeat("[],", 10<<20/3) + "]", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			var got Content
			bytes := allocated(func() { got = Read("f.yaml", []byte(c.text)) })
			if bytes > 200<<20 {
				t.Errorf("%d bytes are allocated for %d", bytes, len(c.text))
			}
			switch {
			case c.want == "none":
				if len(got.Errors) > 0 || got.Others != 1 {
					t.Errorf("%v, others %d", got.Errors, got.Others)
				}
			case strings.Contains(c.want, "or what"), c.want == "":
			case len(got.Errors) != 1 || !strings.Contains(got.Errors[0].Text, c.want):
				t.Errorf("%v, want %q", got.Errors, c.want)
			}
			t.Logf("%d KiB of %d: %v", bytes>>10, len(c.text)>>10, got.Errors)
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("a: &a [*a]\n---\n" + good))
	f.Add([]byte("{\"kind\":\"List\",\"items\":[{}]}"))
	samples, err := filepath.Glob("../../config/samples/*.yaml")
	if err != nil || len(samples) == 0 {
		f.Fatal(samples, err)
	}
	for _, s := range samples {
		text, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 64<<10 {
			return
		}
		got := Read("f", text)
		lines := bytes.Count(text, []byte("\n")) + bytes.Count(text, []byte("\r")) + 2
		for _, e := range got.Errors {
			if e.Place.Line < 1 || e.Place.Line > lines || e.Text == "" {
				t.Errorf("%v in a text of %d lines", e, lines)
			}
		}
		for _, p := range got.Pools {
			for _, field := range []string{"decode.layout.dcp", "engine.args[0]", "metadata.name"} {
				if at := p.FieldPlace(field); at.Line < 1 || at.Line > lines {
					t.Errorf("%s is at %v in a text of %d lines", field, at, lines)
				}
			}
		}
	})
}
