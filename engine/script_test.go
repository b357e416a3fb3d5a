package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// describe is a script as its golden file has it.
func describe(s engine.Script) string {
	var b strings.Builder
	for _, l := range s.Launches {
		fmt.Fprintf(&b, "%s %s image=%q version=%q host=%t\n", l.Place, l.Engine, l.Image, l.Version, l.HostNetwork)
		for _, e := range l.Env {
			fmt.Fprintf(&b, "  %s=%s\n", e.Name, e.Value)
		}
		for i, a := range l.Args {
			fmt.Fprintf(&b, "  %s %q\n", l.ArgPlace(i), a)
		}
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "%s %s%s\n", n.Kind, n, about(n))
	}
	return b.String()
}

func TestCommandsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/commands/*.sh")
	if err != nil || len(files) == 0 {
		t.Fatal("no commands", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".sh")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			script := engine.ParseCommands(string(text))
			golden(t, "commands/"+name, describe(script))
			var b strings.Builder
			for _, l := range script.Launches {
				in, notes := l.Read()
				b.WriteString(fields(in))
				for _, n := range notes {
					fmt.Fprintf(&b, "%s %s%s\n", n.Kind, n, about(n))
				}
				b.WriteByte('\n')
			}
			golden(t, "commands/"+name+".read", b.String())
		})
	}
}

func about(n engine.Note) string {
	if n.Field == "" {
		return ""
	}
	return " (" + n.Field + ")"
}

// fields lists what an instance says, one field a line.
func fields(in engine.Instance) string {
	var b strings.Builder
	v := reflect.ValueOf(in)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; name != "Env" && !v.Field(i).IsZero() {
			fmt.Fprintf(&b, "%s: %+v\n", name, v.Field(i).Interface())
		}
	}
	return b.String()
}

// launches is each launch as "engine|arguments", with the environment in front.
func launches(s engine.Script) []string {
	var out []string
	for _, l := range s.Launches {
		var b strings.Builder
		for _, e := range l.Env {
			b.WriteString(e.Name + "=" + e.Value + " ")
		}
		fmt.Fprintf(&b, "%s|%s", l.Engine, strings.Join(l.Args, "|"))
		out = append(out, b.String())
	}
	return out
}

func TestParseCommands(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"plain", "vllm serve m -tp 4", []string{"vLLM|m|-tp|4"}},
		{"quotes", `vllm serve 'a b' "c \"d\" \$x" e\ f $'g\th\x41\u00e9'`, []string{"vLLM|a b|c \"d\" $x|e f|g\thAé"}},
		{"empty words", `vllm serve '' ""`, []string{"vLLM||"}},
		{"joined quotes", `X=9; vllm serve m '{"a":"'"$X"'"}'`, []string{`vLLM|m|{"a":"9"}`}},
		{"continued", "vllm serve m \\\n  --port 1 \\\r\n  -tp 2", []string{"vLLM|m|--port|1|-tp|2"}},
		{"inside a word", "vllm serve m --po\\\nrt 1", []string{"vLLM|m|--port|1"}},
		{"comment", "vllm serve m # -tp 2\n# vllm serve n", []string{"vLLM|m"}},
		{"hash inside", "vllm serve m#1", []string{"vLLM|m#1"}},
		{"prefix", "A=1 B='2 3' vllm serve m", []string{"A=1 B=2 3 vLLM|m"}},
		{"prefix is not expanded", "A=0\nA=1 vllm serve $A", []string{"A=1 vLLM|0"}},
		{"export", "export A=1 B=2\nC=3\nexport C\nD=4\nvllm serve m", []string{"A=1 B=2 C=3 vLLM|m"}},
		{"export later value", "export A=1\nA=2\nvllm serve m", []string{"A=2 vLLM|m"}},
		{"unset", "export A=1; unset A; vllm serve m", []string{"vLLM|m"}},
		{"set -a", "set -a; A=1; set +a; B=2; vllm serve m", []string{"A=1 vLLM|m"}},
		{"split", "F='-tp 4  --port 1'; vllm serve m $F \"$F\" ${F}x", []string{"vLLM|m|-tp|4|--port|1|-tp 4  --port 1|-tp|4|--port|1x"}},
		{"no split after =", "F='a b'; G=$F; vllm serve \"$G\"", []string{"vLLM|a b"}},
		{"empty expands to nothing", "F=; vllm serve m $F \"$F\"", []string{"vLLM|m|"}},
		{"default", `vllm serve ${M:-a/b} ${N-"c"} ${O:=d}`, []string{"vLLM|a/b|c|d"}},
		{"alternative", "A=1; vllm serve m${A:+-x}${B:+-y}", []string{"vLLM|m-x"}},
		{"default of a variable", "D=7; vllm serve ${M:-$D}", []string{"vLLM|7"}},
		{"append", "A=x; A+=y; vllm serve $A", []string{"vLLM|xy"}},
		{"array", "A=(-tp 4 'b c')\nA+=(--x)\nvllm serve m \"${A[@]}\"", []string{"vLLM|m|-tp|4|b c|--x"}},
		{"empty array", "A=()\nvllm serve m \"${A[@]}\"", []string{"vLLM|m"}},
		{"cd and", "cd x && nohup vllm serve m > log 2>&1 &", []string{"vLLM|m"}},
		{"several", "vllm serve a; vllm serve b || vllm serve c | tee x", []string{"vLLM|a", "vLLM|b", "vLLM|c"}},
		{"redirect in front", "</dev/null vllm serve m 2>>log &>all <<<x", []string{"vLLM|m"}},
		{"subshell", "(cd x; vllm serve m)", []string{"vLLM|m"}},
		{"group and keywords", "if true; then { vllm serve m; }; fi", []string{"vLLM|m"}},
		{"prompt", "$ vllm serve m\nroot@host:~# vllm serve n", []string{"vLLM|m", "vLLM|n"}},
		{"path", "/opt/venv/bin/vllm serve m", []string{"vLLM|m"}},
		{"env", "env -u X A=1 vllm serve m", []string{"A=1 vLLM|m"}},
		{"env -i", "export B=2; env -i A=1 vllm serve m", []string{"A=1 vLLM|m"}},
		{"wrappers", "sudo -E -u me timeout -k 5 30 numactl --membind 0 nice -n 5 vllm serve m", []string{"vLLM|m"}},
		{"wrappers with =", "sudo -E -u me timeout -k 5 30 numactl --membind=0 nice -n 5 vllm serve m", []string{"vLLM|m"}},
		{"taskset", "taskset -c 0-7 stdbuf -oL exec vllm serve m", []string{"vLLM|m"}},
		{"tini", "tini -s -- vllm serve m", []string{"vLLM|m"}},
		{"python module", "python3.12 -u -m vllm.entrypoints.openai.api_server --model m", []string{"vLLM|--model|m"}},
		{"python cli", "python -m vllm.entrypoints.cli.main serve m", []string{"vLLM|m"}},
		{"script", "python3 /app/vllm/entrypoints/openai/api_server.py --model m", []string{"vLLM|--model|m"}},
		{"sglang", "python -m sglang.launch_server --model-path m", []string{"SGLang|--model-path|m"}},
		{"sglang serve", "sglang serve m", []string{"SGLang|m"}},
		{"simulator", "enginesim serve m", []string{"Simulator|m"}},
		{"not an engine", "vllm bench serve --model m\npython3 x.py vllm serve m\necho vllm serve m\npip install vllm", nil},
		{"bash -c", `A=1 bash -lc "cd x && B=2 vllm serve 'm n' \$A"`, []string{"A=1 B=2 vLLM|m n|1"}},
		{"bash -c keeps variables to itself", `A=1; bash -c 'vllm serve m${A:-none}'`, []string{"vLLM|mnone"}},
		{"nested", `bash -c "sh -c 'vllm serve m'"`, []string{"vLLM|m"}},
		{"ssh", "ssh node1 'vllm serve m'", []string{"vLLM|m"}},
		{"srun", "srun -N1 --gres=gpu:8 vllm serve m", []string{"vLLM|m"}},
		{"uv", "uv run --with x vllm serve m", []string{"vLLM|m"}},
		{"tmux", "tmux new-session -d -s p 'vllm serve m'", []string{"vLLM|m"}},
		{"docker", "export C=3; docker run -itd --rm -p 1:1 -e A=1 --env B=2 -e C -v a:b --gpus all img:1 vllm serve m", []string{"A=1 B=2 C=3 vLLM|m"}},
		{"docker image that serves", "docker run --rm vllm/vllm-openai:v0.9.0 --model m", []string{"vLLM|--model|m"}},
		{"docker entry point", "docker run --entrypoint bash img -c 'vllm serve m'", []string{"vLLM|m"}},
		{"docker exec", "docker exec -it -e A=1 c vllm serve m", []string{"A=1 vLLM|m"}},
		{"docker of something else", "docker run rocm/vllm-router:1 --kv-connector moriio", nil},
		{"kubectl run", "kubectl run p --image=vllm/vllm-openai-rocm:v0.33.0 --env=A=1 --env B=2 -n x -- --model m", []string{"A=1 B=2 vLLM|--model|m"}},
		{"kubectl run command", "kubectl run p --image img --command -- vllm serve m", []string{"vLLM|m"}},
		{"kubectl exec", "kubectl -n x exec p -c c -- vllm serve m", []string{"vLLM|m"}},
		{"kubectl exec first", "kubectl exec p -c c -- vllm serve m", []string{"vLLM|m"}},
		{"JSON without quotes after =", `vllm serve m --x={"a":"b c"}`, []string{`vLLM|m|--x={"a":"b c"}`}},
		{"braces", "vllm serve {a,b} x{y", []string{"vLLM|{a,b}|x{y"}},
		{"JSON without quotes", `vllm serve m --kv-transfer-config {"a":1,"b":[2,{"c":"}"}]} -tp 2`, []string{`vLLM|m|--kv-transfer-config|{"a":1,"b":[2,{"c":"}"}]}|-tp|2`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := engine.ParseCommands(tc.text)
			if diff := cmp.Diff(tc.want, launches(s)); diff != "" {
				t.Errorf("%s\n%s\nnotes %v", tc.text, diff, s.Notes)
			}
		})
	}
}

func TestParseCommandsOf(t *testing.T) {
	for text, want := range map[string]string{
		"-tp 8 --block-size 64":                 "vLLM|-tp|8|--block-size|64",
		"org/m -tp 8":                           "vLLM|org/m|-tp|8",
		"A=1 --port 1":                          "A=1 vLLM|--port|1",
		"/usr/bin/vllm serve m":                 "vLLM|m",
		"/usr/bin/nohup sglang serve m":         "SGLang|m",
		"python3 -m sglang.launch_server --x 1": "SGLang|--x|1",
	} {
		if diff := cmp.Diff([]string{want}, launches(engine.ParseCommandsOf(kvlayout.VLLM, text))); diff != "" {
			t.Errorf("%s\n%s", text, diff)
		}
	}
	for _, text := range []string{"echo -tp 8", "ls"} {
		if s := engine.ParseCommandsOf(kvlayout.VLLM, text); len(s.Launches) > 0 {
			t.Errorf("%s: %v", text, launches(s))
		}
	}
}
