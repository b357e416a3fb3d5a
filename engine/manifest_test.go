package engine_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

const podHead = "apiVersion: apps/v1\nkind: Deployment\nspec:\n  template:\n    spec:\n      hostNetwork: true\n      containers:\n"

func TestManifests(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"lists", podHead + "      - name: a\n        image: x\n        env: [{name: A, value: \"1\"}]\n        command: [vllm, serve]\n        args:\n        - m\n        - -tp\n        - \"8\"\n", []string{"A=1 vLLM|m|-tp|8"}},
		{"several", podHead + "      - args: [vllm, serve, a]\n      - {image: busybox, command: [sleep, \"9\"]}\n      - command: [vllm, serve, b]\n", []string{"vLLM|a", "vLLM|b"}},
		{"image that serves", podHead + "      - image: vllm/vllm-openai:v0.33.0\n        args: [--model, m]\n", []string{"vLLM|--model|m"}},
		{"shell", podHead + "      - command: [/bin/bash, -c]\n        args:\n        - |\n          A=$((N * 2))\n          exec vllm serve m \\\n            -dp $A -tp $TP\n        env:\n        - name: N\n          value: \"8\"\n        - {name: TP, value: \"2\"}\n", []string{"N=8 TP=2 vLLM|m|-dp|16|-tp|2"}},
		{"references", podHead + "      - command: [vllm, serve, $(M), -tp, $(TP)]\n        env: [{name: M, value: a/b}]\n", []string{"M=a/b vLLM|a/b|-tp|$(TP)"}},
		{"compose", "services:\n  a:\n    image: vllm/vllm-openai-rocm:v0.33.0\n    command: >\n      --model m\n      --x '{\"a\": 1}'\n    environment:\n      A: 1\n  b:\n    image: vllm/vllm-openai-rocm:v0.33.0\n    command: [--model, n]\n    environment: [B=2]\n", []string{"A=1 vLLM|--model|m|--x|{\"a\": 1}", "B=2 vLLM|--model|n"}},
		{"compose entry point", "services:\n  a:\n    image: x\n    entrypoint: vllm serve\n    command: m -tp 8\n", []string{"vLLM|m|-tp|8"}},
		{"compose with continued lines", "services:\n  a:\n    image: x\n    command: |\n      vllm serve m \\\n        -tp 8\n", []string{"vLLM|m|-tp|8"}},
		{"fragment", "command: [python3, -m, sglang.launch_server]\nargs: [--model-path, m]\n", []string{"SGLang|--model-path|m"}},
		{"documents", "---\nkind: Service\n---\nspec:\n  containers:\n  - args: [vllm, serve, m]\n", []string{"vLLM|m"}},
		{"JSON", `{"spec": {"containers": [{"command": ["vllm", "serve", "m"], "args": ["-tp", "8"]}]}}`, []string{"vLLM|m|-tp|8"}},
		{"exec array", `["vllm","serve","deepseek-ai/DeepSeek-R1","-tp","4"]`, []string{"vLLM|deepseek-ai/DeepSeek-R1|-tp|4"}},
		{"list", "- vllm\n- serve\n- m\n- -tp\n- \"4\"\n", []string{"vLLM|m|-tp|4"}},
		{"anchor", "a: &x [vllm, serve, m]\nb:\n  command: *x\n", []string{"vLLM|m"}},
		{"no manifest", "[ -f x ] && vllm serve m", []string{"vLLM|m"}},
		{"no manifest either", "prefill:\nvllm serve m -tp 8\n", []string{"vLLM|m|-tp|8"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := engine.ParseCommands(tc.text)
			if diff := cmp.Diff(tc.want, launches(s)); diff != "" {
				t.Errorf("%s\n%s\nnotes %v", tc.text, diff, s.Notes)
			}
		})
	}
}

func TestManifestPlaces(t *testing.T) {
	text := podHead + "      - image: vllm/vllm-openai:v0.33.0\n        command: [sh, -c]\n        args:\n        - |\n          # é\n          vllm serve m \\\n            -tp 8\n"
	l := engine.ParseCommands(text).Launches[0]
	if p, _ := l.FieldPlace("layout.tp"); p.String() != "14:13" || l.Place.String() != "13:11" || !l.HostNetwork || l.Version != "0.33.0" {
		t.Errorf("tp is at %s, the launch at %s: %+v", p, l.Place, l)
	}
	l = engine.ParseCommandsOf(kvlayout.VLLM, "args:\n- \"--block-size\"\n- 64\n").Launches[0]
	if p, _ := l.FieldPlace("engine.blockSize"); p.String() != "2:3" {
		t.Errorf("block size is at %s", p)
	}
}

func TestManifestNotes(t *testing.T) {
	for _, n := range []noted{
		{podHead + "      - args: [vllm, serve, m, --tensor-parallel-size 8]\n", engine.Stops, "layout.tp", "in one argument"},
		{podHead + "      - args: [vllm, serve, m, -tp, $(TP)]\n        env: [{name: TP, valueFrom: {fieldRef: {fieldPath: x}}}]\n", engine.Unread, "layout.tp", "$(TP)"},
		{podHead + "      - args: [vllm, serve, m]\n        env: [{name: VLLM_MORIIO_CONNECTOR_READ_MODE, valueFrom: {}}]\n", engine.Unread, "transfer.mode", "the manifest does not say"},
	} {
		n.check(t)
	}
	for text, want := range map[string]string{
		"prefill:\n  containers:\n  - image: x\n    modelCommand: vllmServe\n    args: [--block-size=64]\n": "give the pods (helm template",
		"command: [vllm, serve\nargs: [xrgs }}\n":                                                           "looks like a manifest, but it is no YAML",
		"args:\n" + strings.Repeat("- a\n", 2000):                                                           "so many pieces",
		"services:\n  a:\n    image: x\n    command: sleep 1\n":                                             "no command here starts",
	} {
		s := engine.ParseCommands(text)
		if len(s.Launches) > 0 || len(s.Notes) == 0 || s.Notes[0].Kind != engine.Unread || !strings.Contains(s.Notes[0].Text, want) {
			t.Errorf("%.40q: %v, want %q", text, s.Notes, want)
		}
	}
}
