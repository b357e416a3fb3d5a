package cli

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

func TestLegible(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"Qwen/Qwen3 \u00e4\t\u4e2d": "Qwen/Qwen3 \u00e4\t\u4e2d",
		"a\x1b[31mb":                `a\x1b[31mb`,
		"a\nb\rc\x00\x7f":           `a\nb\rc\x00\x7f`,
		"\u0085\u009b\u2028":        `\u0085\u009b\u2028`,
		"a\u202eb":                  `a\u202eb`,
		"\xff\ufffd":                `\xff` + "\ufffd",
	} {
		if got := legible(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got, want := drawn("a\x01\ufffe\uffff\n<b\xff"), "a <b\ufffd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := Legible("it starts no engine\n  a\x1b:1: b\nerror: c"), "it starts no engine\n  a\\x1b:1: b\\nerror: c"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// hostile are texts that a terminal obeys, or that begin a line.
var hostile = []string{"\x1b[2J\x1b[31m", "\nadmitted  forged", "\rforged", "\u0085forged: 1", "\u2028forged: 1", "\u009b31m", "\u202eforged", "\x01"}

// obeyed is the first character of a text that more than marks its place. Lines ends are
// the program's own where no line begins as a forged one does.
func obeyed(text string) string {
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || r == '\u2028' || unicode.Is(unicode.Bidi_Control, r)) {
			return string(r)
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "forged") || strings.HasPrefix(line, "admitted  forged") {
			return line
		}
	}
	if !utf8.ValidString(text) {
		return "no UTF-8"
	}
	return ""
}

func jsonText(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return jsonLegible(string(text))
}

// poolNamed is a pool with a text of anybody's where texts may be.
func poolNamed(text string) string {
	return `{"apiVersion":"pdpool.dev/v1alpha1","kind":"PDPool","metadata":{"name":` + jsonText("r1"+text) + `},"spec":{` +
		`"model":{"name":` + jsonText("m"+text) + `,"geometry":{"kind":"MLA","layers":2,"attentionHeads":8,"headValues":576}},` +
		`"engine":{"type":"vLLM","image":` + jsonText("vllm:v0.33.0"+text) + `,"args":[` + jsonText("--x="+text) + `]},` +
		`"prefill":{"layout":{"tp":1}},"decode":{"layout":{"tp":1}}` + `}}`
}

// TestNothingReadIsObeyed holds that no command prints what a terminal would obey, or a
// line of somebody else's, whatever is in its input.
func TestNothingReadIsObeyed(t *testing.T) {
	for _, text := range hostile {
		folder := t.TempDir()
		name := filepath.Join(folder, "p"+strings.ReplaceAll(text, "/", "")+".yaml")
		unknown := strings.Replace(poolNamed(text), `"spec":{`, `"spec":{`+jsonText("x"+text)+`:1,`, 1)
		for file, content := range map[string]string{name: poolNamed(text), name + ".yaml": unknown, name + ".yml": "{\"a" + text} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		nodes := filepath.Join(folder, "nodes.txt")
		node := `{"kind":"Node","metadata":{"name":` + jsonText("n"+text) + `},"status":{"allocatable":{"amd.com/gpu":"1"}}}`
		if err := os.WriteFile(nodes, []byte(node), 0o600); err != nil {
			t.Fatal(err)
		}
		words := "vllm serve $'m" + shellEscaped(text) + "' --kv-cache-dtype $'x" + shellEscaped(text) + "'"
		for _, args := range [][]string{
			{"check", "-f", folder, "--nodes", nodes},
			{"check", "-f", folder, "-o", "json"},
			{"check", "-f", folder, "-o", "sarif"},
			{"check", "-f", name + "none"},
			{"plan", "-f", name},
			{"plan", "-f", name, "-o", "json"},
			{"plan", "-f", name, "-o", "svg"},
			{"advise", "-f", name, "--load", "in=10,out=10,concurrency=1", "--kv-memory", "10Gi"},
			{"check", "--prefill-cmd", words, "--decode-cmd", words},
			{"import", "--prefill-cmd", words, "--decode-cmd", words},
		} {
			said := allSaid(t, args)
			if found := obeyed(said); found != "" {
				t.Errorf("%q in %v: %q of\n%q", text, args[:2], found, said)
			}
		}
	}
}

// allSaid is what a command writes anywhere.
func allSaid(t *testing.T, args []string) string {
	t.Helper()
	var said strings.Builder
	cmd := Command(t.Context(), Options{In: strings.NewReader(""), Out: &said, Err: &said, Now: now})
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		said.WriteString("\nerror: " + Legible(err.Error()))
	}
	return said.String()
}

func shellEscaped(text string) string {
	quoted := legible(text)
	return strings.ReplaceAll(quoted, "'", `\'`)
}

// TestPicturesAreXML holds that a picture is well-formed whatever is in the names.
func TestPicturesAreXML(t *testing.T) {
	for _, text := range append(slices.Clone(hostile), "<&\"'>") {
		pool := strings.Replace(poolNamed(""), `"name":"r1"`, `"name":`+jsonText("r1"+text), 1)
		got := run(t, pool, "plan", "-f", "-", "-o", "svg")
		if !strings.HasPrefix(got.out, "<svg") {
			t.Fatalf("%q: no picture: %v %s", text, got.err, got.out)
		}
		for d := xml.NewDecoder(strings.NewReader(got.out)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
	}
}

// TestCommentsAreNotLeft holds that what import and geometry write has the keys of
// theirs only.
func TestCommentsAreNotLeft(t *testing.T) {
	for _, text := range []string{"\nforged: 1", "\rforged: 1", "\u0085forged: 1", "\u2028forged: 1", "\nforged: 1\n# x", "\x1b[31m"} {
		escaped := shellEscaped(text)
		for _, words := range []string{
			"vllm serve m --kv-cache-dtype $'x" + escaped + "'", "vllm serve $'m" + escaped + "'", "vllm serve m --revision $'x" + escaped + "'",
			"vllm serve m --foo$'" + escaped + "'", "docker run $'img" + escaped + "' vllm serve m", "cd $'/x" + escaped + "' && vllm serve m",
		} {
			got := run(t, "", "import", "--prefill-cmd", words, "--decode-cmd", "vllm serve m", "--image", "x:v0.33.0")
			holdsKeys(t, words, got.out, "apiVersion", "kind", "metadata", "spec")
		}
		config := `{"architectures":[` + jsonText("LlamaForCausalLM"+text) + `],"num_hidden_layers":2,"num_attention_heads":8,"num_key_value_heads":8,"hidden_size":1024}`
		got := run(t, config, "geometry", "--config", "-")
		holdsKeys(t, config, got.out, "model")
	}
}

func holdsKeys(t *testing.T, of, text string, keys ...string) {
	t.Helper()
	var read map[string]any
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		t.Errorf("%q: %v\n%s", of, err, text)
	}
	for _, k := range keys {
		delete(read, k)
	}
	if len(read) > 0 || obeyed(text) != "" {
		t.Errorf("%q: %v %q in\n%s", of, read, obeyed(text), text)
	}
}

// TestRefusedPoolsKeepTheFormat holds that what a file is made of is of the format that
// is asked for, though the schema refuses the pool.
func TestRefusedPoolsKeepTheFormat(t *testing.T) {
	pool := strings.Replace(poolNamed(""), `"layers":2`, `"layers":-2`, 1)
	for _, args := range [][]string{
		{"plan", "-f", "-", "-o", "json"},
		{"advise", "-f", "-", "--load", "in=10,out=10,concurrency=1", "-o", "json"},
	} {
		got := run(t, pool, args...)
		var v Verdict
		if err := json.Unmarshal([]byte(got.out), &v); err != nil || v.Admitted || len(v.Problems) == 0 || got.code != 1 {
			t.Errorf("%v: exit status %d, %v: %s", args, got.code, err, got.out)
		}
	}
	var out, beside strings.Builder
	cmd := Command(t.Context(), Options{In: strings.NewReader(pool), Out: &out, Err: &beside, Now: now})
	cmd.SetArgs([]string{"plan", "-f", "-", "-o", "svg"})
	if err := cmd.Execute(); ExitCode(err) != 1 || out.Len() > 0 || !strings.Contains(beside.String(), "refused") {
		t.Errorf("%v: %s; %s", err, &out, &beside)
	}
}
