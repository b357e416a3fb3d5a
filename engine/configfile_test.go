package engine_test

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// file gives the content of one file.
func file(name, content string) engine.ReadFile {
	return func(asked string) ([]byte, error) {
		if asked != name {
			return nil, fs.ErrNotExist
		}
		return []byte(content), nil
	}
}

func TestWithFiles(t *testing.T) {
	for _, tc := range []struct{ name, text, config, want string }{
		{"flat", "vllm serve m --config a.yaml -tp 8", "port: 12323\ntensor-parallel-size: 4\n", "vLLM|m|--port|12323|--tensor-parallel-size|4|-tp|8"},
		{"without a model", "vllm serve --config a.yaml -tp 8", "model: n\nblock-size: 64\n", "vLLM|--model|n|--block-size|64|-tp|8"},
		{"the typed model", "vllm serve m --config a.yaml", "model: n\nblock-size: 64\n", "vLLM|m|--block-size|64"},
		{"the flagged model", "vllm serve --model m --config a.yaml", "model: n\nport: 1\n", "vLLM|--port|1|--model|m"},
		{"switches", "vllm serve m --config a.yaml", "enable-prefix-caching: false\nenforce-eager: true\ntrust-remote-code: false", "vLLM|m|--no-enable-prefix-caching|--enforce-eager|--no-trust-remote-code"},
		{"lists", "vllm serve m --config a.yaml", "served-model-name: [a, b]\nmiddleware: []", "vLLM|m|--served-model-name|a|b"},
		{"objects", "vllm serve m --config a.yaml", "kv-transfer-config:\n  kv_role: kv_producer\n  kv_connector_extra_config: {http_port: 1}", `vLLM|m|--kv-transfer-config|{"kv_connector_extra_config":{"http_port":1},"kv_role":"kv_producer"}`},
		{"empty", "vllm serve m --config a.yaml -tp 8", "# nothing\n", "vLLM|m|-tp|8"},
		{"sglang", "sglang serve m --config a.yaml --tp 8", "tp-size: 4\nenable-metrics: true\ntrust-remote-code: false\n", "SGLang|m|--tp-size|4|--enable-metrics|--tp|8"},
		{"no file", "vllm serve m -tp 8", "", "vLLM|m|-tp|8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := engine.ParseCommands(tc.text)
			s.Launches[0] = s.Launches[0].WithFiles(file("a.yaml", tc.config))
			if diff := cmp.Diff([]string{tc.want}, launches(s)); diff != "" {
				t.Error(diff)
			}
			_, notes := s.Launches[0].Read()
			if slices.ContainsFunc(notes, func(n engine.Note) bool { return strings.Contains(n.Text, "--config") }) {
				t.Error(notes)
			}
		})
	}
}

func TestWithFilesPlaces(t *testing.T) {
	l := engine.ParseCommands("vllm serve m \\\n  -dcp 2 --config a.yaml").Launches[0].WithFiles(file("a.yaml", "tensor-parallel-size: 4"))
	in, _ := l.Read()
	if in.Layout != (kvlayout.Layout{TP: 4, DCP: 2}) {
		t.Errorf("%+v", in.Layout)
	}
	for field, want := range map[string]string{"layout.tp": "2:19", "layout.dcp": "2:3"} {
		if p, ok := l.FieldPlace(field); !ok || p.String() != want {
			t.Errorf("%s is at %s, want %s", field, p, want)
		}
	}
}

// A file that can't be read leaves no verdict, and nothing is opened without a reader.
func TestWithFilesUnread(t *testing.T) {
	for _, tc := range []struct {
		text string
		read engine.ReadFile
		want string
	}{
		{"vllm serve m --config a.yaml", nil, "flags in it are not known"},
		{"vllm serve m --config a.yaml", file("b.yaml", ""), "file does not exist"},
		{"vllm serve m --config a.yaml", func(string) ([]byte, error) { return nil, errors.New("too big") }, "too big"},
		{"vllm serve m --config a.json", file("a.json", "{}"), "ends in .yaml"},
		{"vllm serve m --config a.yaml", file("a.yaml", "a: [b"), "it is no YAML"},
		{"vllm serve m --config a.yaml", file("a.yaml", "- a\n"), "no flags with their values"},
		{"vllm serve m --config a.yaml", file("a.yaml", strings.Repeat("a", engine.MaxConfig+1)), "bytes"},
		{"vllm serve m --config a.yaml", file("a.yaml", strings.Repeat("[", 2000)), "so many pieces"},
		{"sglang serve m --config a.yaml", nil, "flags in it are not known"},
	} {
		_, notes := engine.ParseCommands(tc.text).Launches[0].WithFiles(tc.read).Read()
		if !slices.ContainsFunc(notes, func(n engine.Note) bool {
			return n.Kind == engine.Unread && n.Field == "" && strings.Contains(n.Text, "of --config is not read") && strings.Contains(n.Text, tc.want)
		}) {
			t.Errorf("%s: %v, want %q", tc.text, notes, tc.want)
		}
	}
	for text, want := range map[string]string{
		"vllm serve m --config=a.yaml": "write --config a.yaml", "vllm serve m --config $X": "$X is not known", "vllm serve m --config": "needs a value",
	} {
		asked := false
		l := engine.ParseCommands(text).Launches[0].WithFiles(func(string) ([]byte, error) { asked = true; return nil, nil })
		_, notes := l.Read()
		if asked || !slices.ContainsFunc(notes, func(n engine.Note) bool { return strings.Contains(n.Text, want) }) {
			t.Errorf("%s: asked %t, %v", text, asked, notes)
		}
	}
}
