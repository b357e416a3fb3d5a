package conformance_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/kvlayout/conformance"
)

const good = `- name: seed
  model: deepseek-ai/DeepSeek-R1
  pair: {version: "0.33.0", mover: Engine, prefill: {layout: {tp: 4}}, decode: {layout: {tp: 4, dcp: 4}}}
  verdict: refuse
  problems: [{rule: dcp-version, severity: Refuse, field: transfer.mover}]
  holds: [dcp-mla]
  prevents: decode hangs
  source: a test
`

func load(text string) ([]conformance.Entry, error) {
	return conformance.Load(fstest.MapFS{"one.yaml": {Data: []byte(text)}, "README.md": {Data: []byte("no entries")}})
}

func TestLoad(t *testing.T) {
	entries, err := load(good)
	if err != nil {
		t.Fatal(err)
	}
	e := entries[0]
	if len(entries) != 1 || e.File != "one" || e.Pair.Model == nil || !e.Pair.HasGeometry || e.Pair.Decode.Layout.DCP != 4 {
		t.Fatalf("read %+v", entries)
	}
	if text := e.Mismatch(kvlayout.Compatible(*e.Pair)); text != "" {
		t.Error(text)
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"unknown field":      {"verdict:", "verdicts:", "verdicts"},
		"unknown pair field": {"dcp: 4", "dcpp: 4", "dcpp"},
		"unknown model":      {"DeepSeek-R1", "DeepSeek-R9", "not in the catalog"},
		"other verdict":      {"verdict: refuse", "verdict: warn", "does not fit"},
		"no source":          {"  source: a test\n", "", "source"},
		"no pair":            {"  pair:", "  pool:", "not in the catalog"},
		"syntax":             {"holds: [", "holds: {", "one.yaml"},
	} {
		if _, err := load(strings.Replace(good, c.from, c.to, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something with %q", name, err, c.want)
		}
	}
}

func TestMismatch(t *testing.T) {
	entries, err := load(good)
	if err != nil {
		t.Fatal(err)
	}
	problem := func(rule, field string, s kvlayout.Severity) kvlayout.Problem {
		return kvlayout.Problem{Rule: rule, Field: field, Severity: s}
	}
	right := problem("dcp-version", "transfer.mover", kvlayout.Refuse)
	for name, c := range map[string]struct {
		found []kvlayout.Problem
		want  string
	}{
		"as said":        {[]kvlayout.Problem{right}, ""},
		"nothing":        {nil, "missing Refuse dcp-version transfer.mover"},
		"other severity": {[]kvlayout.Problem{problem("dcp-version", "transfer.mover", kvlayout.Warn)}, "unexpected Warn dcp-version"},
		"other field":    {[]kvlayout.Problem{problem("dcp-version", "engine.version", kvlayout.Refuse)}, "missing Refuse"},
		"one more":       {[]kvlayout.Problem{right, right}, "unexpected Refuse dcp-version"},
		"a kept rule":    {[]kvlayout.Problem{right, problem("dcp-mla", "x", kvlayout.Refuse)}, "should keep dcp-mla"},
	} {
		got := entries[0].Mismatch(c.found)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
