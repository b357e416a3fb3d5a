package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// folder is a folder with a pool and other files that people keep beside one.
func folder(t *testing.T, names ...string) string {
	t.Helper()
	pool, err := os.ReadFile("testdata/manifests/r1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{
		"pool.yaml": string(pool), "values.yaml": "tp: 4\n", "kustomization.yaml": "resources: [pool.yaml]\n",
		"package.json": `{"name":"x"}`, "list.json": `[1,2]`, "forgotten.yaml": "apiVersion: pdpool.dev/v1alpha1\nspec: {}\n",
	}
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(texts[name]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFolders holds that what is no Kubernetes object is left out of a folder and
// counted, and told where it is named itself.
func TestFolders(t *testing.T) {
	dir := folder(t, "pool.yaml", "values.yaml", "kustomization.yaml", "package.json", "list.json")
	if got := run(t, "", "check", "-f", dir); got.code != 0 || !strings.Contains(got.out, "1 pool checked") || !strings.Contains(got.out, "4 other objects and documents left out") {
		t.Errorf("exit status %d: %v: %s", got.code, got.err, got.out)
	}
	named := filepath.Join(dir, "values.yaml")
	for _, files := range [][]string{{dir, named}, {named, dir}} {
		if got := run(t, "", "check", "-f", files[0], "-f", files[1]); got.code != 2 || strings.Count(got.out, "says no kind") != 1 {
			t.Errorf("%v: exit status %d: %s", files, got.code, got.out)
		}
	}
	if got := run(t, "", "check", "-f", dir, "-f", filepath.Join(dir, ".", "pool.yaml")); !strings.Contains(got.out, "1 pool checked") {
		t.Errorf("a file of the folder is checked twice: %s", got.out)
	}
	if got := run(t, "", "check", "-f", folder(t, "pool.yaml", "forgotten.yaml")); got.code != 2 || !strings.Contains(got.out, "says no kind") {
		t.Errorf("a pool without a kind: exit status %d: %s", got.code, got.out)
	}
}

func TestAllowEmpty(t *testing.T) {
	empty := folder(t, "values.yaml")
	for _, c := range []struct {
		in   string
		args []string
		code int
		want string
	}{
		{"", []string{"check", "-f", empty}, 2, ""},
		{"", []string{"check", "-f", empty, "--allow-empty"}, 0, "0 pools checked"},
		{"apiVersion: v1\nkind: Service\n", []string{"check", "-f", "-", "--allow-empty"}, 0, "1 other object or document left out"},
		{"", []string{"check", "-f", "-", "--allow-empty", "-o", "json"}, 0, `"pools": []`},
		{"a: [\n", []string{"check", "-f", "-", "--allow-empty"}, 2, "unread"},
	} {
		if got := run(t, c.in, c.args...); got.code != c.code || !strings.Contains(got.out, c.want) {
			t.Errorf("%v: exit status %d: %v: %s", c.args, got.code, got.err, got.out)
		}
	}
	if got := run(t, "", "check", "-f", "-"); got.err == nil || !strings.Contains(got.err.Error(), "no PDPool in standard input") {
		t.Errorf("%v", got.err)
	}
}

// TestWrongTypes holds that a field of a wrong type is a refusal of the schema, beside
// what else is wrong, and that no rule speaks of a value that is not known.
func TestWrongTypes(t *testing.T) {
	text, err := os.ReadFile("testdata/manifests/r1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		old, now string
		want     []string // rule and field of all problems
	}{
		{"dcp: 4", `dcp: "4"`, []string{"schema decode.layout.dcp"}},
		{"dcp: 4", `dcp: "3"`, []string{"schema decode.layout.dcp", "dcp-tp decode.layout.dcp"}},
		{"tp: 4, dcp: 4", "tp: x, dcp: 3", []string{"schema decode.layout.tp"}},
		{"tp: 4, dcp: 4", "tp: -1, dcp: 4", []string{"schema decode.layout.tp"}},
	} {
		changed := strings.Replace(string(text), c.old, c.now, 1)
		if changed == string(text) {
			t.Fatalf("%q is not there", c.old)
		}
		got := run(t, changed, "check", "-f", "-", "-o", "json")
		var r Report
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Pools) != 1 || got.code != 1 {
			t.Errorf("%s: exit status %d, %v: %s", c.now, got.code, err, got.out)
			continue
		}
		var found []string
		for _, p := range r.Pools[0].Problems {
			found = append(found, p.Rule+" "+p.Field)
		}
		if strings.Join(found, ",") != strings.Join(c.want, ",") {
			t.Errorf("%s: %v, want %v", c.now, found, c.want)
		}
	}
}

// TestSpelling holds that values of flags are taken as they are meant, and that those of
// no effect are refused.
func TestSpelling(t *testing.T) {
	const pool = "testdata/manifests/r1.yaml"
	pair := []string{"--prefill-cmd", "@testdata/r1.sh", "--decode-cmd", "@testdata/r1.sh"}
	for _, args := range [][]string{
		append([]string{"check", "--mover", "agent", "--engine", "vllm"}, pair...),
		{"check", "-f", pool, "-o", "JSON"},
		{"version", "-o", "json"},
		{"rules", "-o", "markdown"},
		{"advise", "-f", "testdata/seed.yaml", "--load", "in=8Ki,out=4k,concurrency=256", "--blocks", "22616"},
	} {
		if got := run(t, "", args...); got.code != 0 {
			t.Errorf("%v: exit status %d: %v %s", args, got.code, got.err, got.out)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"check", pool}, "give files as -f " + pool},
		{[]string{"plan", pool}, "give files as -f"},
		{[]string{"geometry", "config.json"}, "give --config or --model"},
		{[]string{"check", "-f", pool, "--mover", "Agent"}, "--mover is about command lines"},
		{[]string{"check", "-f", pool, "--engine-version", "0.33.0"}, "--engine-version is about command lines"},
		{[]string{"check", "-f", pool, "--config", "testdata/mla.json"}, "--config is about command lines"},
		{[]string{"plan", "-f", pool, "--kv-memory", "90"}, "holds no block, which takes"},
		{[]string{"plan"}, "filename prefill-cmd"},
		{append([]string{"plan", "-f", pool}, pair...), "filename prefill-cmd"},
		{[]string{"geometry", "--model", "Qwen3-235B"}, "but Qwen/Qwen3-235B-A22B, "},
		{[]string{"geometry", "--model", "testdata"}, "give its config.json with --config"},
		{[]string{"geometry", "--config", "testdata/broken.json"}, "testdata/broken.json:3:"},
	} {
		got := run(t, "", c.args...)
		if got.code != 2 || got.err == nil || !strings.Contains(got.err.Error(), c.want) {
			t.Errorf("%v: exit status %d: %v, want %q", c.args, got.code, got.err, c.want)
		}
	}
}

// TestNoFiles holds that what kubectl would take for -f is told what to give here.
func TestNoFiles(t *testing.T) {
	for path, want := range map[string]string{
		"https://example.org/pool.yaml": "fetch it and give it as -f -", "a.yaml,b.yaml": "give each file its own -f", "none.yaml": "no such file",
	} {
		if got := run(t, "", "check", "-f", path); got.code != 2 || got.err == nil || !strings.Contains(got.err.Error(), path+": ") || !strings.Contains(got.err.Error(), want) {
			t.Errorf("%s: exit status %d: %v: %s", path, got.code, got.err, got.out)
		}
	}
}

func TestLoads(t *testing.T) {
	for text, want := range map[string]Load{
		"in=8k,out=4Ki,concurrency=256": {8000, 4096, 256},
		"in=8K, concurrency=1m":         {8000, 0, 1_000_000},
		"in=1,out=0,concurrency=1":      {1, 0, 1},
	} {
		if got, err := parseLoad(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"in=1.5,concurrency=1", "in=-1,concurrency=1", "in=1G,concurrency=1", "in=,concurrency=1"} {
		if got, err := parseLoad(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestGeometryList(t *testing.T) {
	if got := run(t, "", "geometry", "--list"); got.code != 0 || !strings.Contains(got.out, "\ndeepseek-ai/DeepSeek-R1 ") {
		t.Errorf("exit status %d: %v: %.300s", got.code, got.err, got.out)
	}
	if got := run(t, "", "geometry", "--list", "-o", "json"); got.code != 0 || !json.Valid([]byte(got.out)) {
		t.Errorf("exit status %d: %v: %.300s", got.code, got.err, got.out)
	}
}

// TestFiguresAreOfTheSpec holds that the verdict and the figures are of one look at a
// pool: what an operator recorded in a status that came along decides neither.
func TestFiguresAreOfTheSpec(t *testing.T) {
	pool, err := os.ReadFile("testdata/manifests/r1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stored := strings.Replace(string(pool), "  name: r1\n", "  name: r1\n  generation: 3\n", 1) +
		"status:\n  observedGeneration: 3\n  decode: {blockSize: 16}\n  transfer: {mover: Engine, moverReason: an earlier look chose it}\n"
	bare, with := run(t, string(pool), "check", "-f", "-"), run(t, stored, "check", "-f", "-")
	if with.code != bare.code || with.out != bare.out {
		t.Errorf("exit status %d of %s\nand with a status %d of %s", bare.code, bare.out, with.code, with.out)
	}
}

// TestChartTemplates holds that a template of a Helm chart is told as one, at its first
// expression, and not as what it is no good for.
func TestChartTemplates(t *testing.T) {
	for text, line := range map[string]string{
		"{{- if .Values.on }}\napiVersion: pdpool.dev/v1alpha1\nkind: PDPool\nspec: {}\n{{- end }}\n":                                   "stdin:1",
		"kind: PDPool\nmetadata:\n  name: {{ .Release.Name }}\n":                                                                        "stdin:3",
		"apiVersion: pdpool.dev/v1alpha1\nkind: PDPool\nmetadata:\n  name: x\nspec:\n  prefill: {layout: {tp: \"{{ .Values.tp }}\"}}\n": "stdin:6",
	} {
		got := run(t, text, "check", "-f", "-")
		if got.code != 2 || !strings.Contains(got.out, line+"\n") || !strings.Contains(got.out, "template of a Helm chart: check what it renders, helm template CHART | kubectl pdpool check -f -") || strings.Contains(got.out, "schema") {
			t.Errorf("exit status %d: %v: %s", got.code, got.err, got.out)
		}
	}
	if got := run(t, "kind: PrometheusRule\nspec: {a: '{{ $labels.pod }}'}\n", "check", "--allow-empty", "-f", "-"); got.code != 0 {
		t.Errorf("exit status %d: %v: %s", got.code, got.err, got.out)
	}
}
