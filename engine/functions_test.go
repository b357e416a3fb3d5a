package engine_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/engine"
)

// TestArguments holds that what a text gives its own parts is read there: functions,
// bash -c, and scripts that it writes and runs.
func TestArguments(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"function", "serve() {\n  vllm serve \"$1\" -tp $2\n}\nserve m 4", []string{"vLLM|m|-tp|4"}},
		{"function keyword", "function serve {\n  vllm serve ${1} -tp ${2:-8}\n}\nserve m &", []string{"vLLM|m|-tp|8"}},
		{"on one line", "go() { vllm serve \"$@\"; }; go m -tp 4", []string{"vLLM|m|-tp|4"}},
		{"called twice", "s() { A=$3 vllm serve $1 --port $2; }\ns m 1 x\ns n 2 y", []string{"A=x vLLM|m|--port|1", "A=y vLLM|n|--port|2"}},
		{"locals", "s() {\n local model=\"$1\" tp=$2\n local extra=(--x)\n extra+=(-tp \"$tp\")\n vllm serve \"$model\" \"${extra[@]}\"\n}\nmodel=z; s m 4; vllm serve $model", []string{"vLLM|m|--x|-tp|4", "vLLM|z"}},
		{"in a function", "a() { vllm serve \"$@\"; }\nb() { a m \"${@:2}\"; }\nb x -tp 2", []string{"vLLM|m|-tp|2"}},
		{"wrapper", "run() { echo \"+ $*\"; \"$@\"; }\nrun vllm serve m -tp 2", []string{"vLLM|m|-tp|2"}},
		{"shift", "s() { local role=$1; shift; R=$role vllm serve \"$@\"; }\ns prefill m -tp 2", []string{"R=prefill vLLM|m|-tp|2"}},
		{"condition", "s() { vllm serve $1; }\nif ! s m; then exit 1; fi", []string{"vLLM|m"}},
		{"never called", "s() { vllm serve m -tp 4; }\ntrap s TERM", []string{"vLLM|m|-tp|4"}},
		{"not at its definition", "M=a; s() { vllm serve $M; }\nM=b; s", []string{"vLLM|b"}},
		{"braces in quotes", "s() { vllm serve m --x '{\"a\":{\"b\":1}}' \"${V[@]}\" # }\n}\nV=(-tp 2)\ns", []string{"vLLM|m|--x|{\"a\":{\"b\":1}}|-tp|2"}},
		{"recursion", "s() { vllm serve m; s; }\ntrue", nil},
		{"variable in front", "s() { vllm serve $M; }\nM=a s\nM=b; s", []string{"M=a vLLM|a", "vLLM|b"}},
		{"bash -c with arguments", "bash -lc 'exec vllm serve \"$1\" --port \"$2\" \"${@:3}\"' bash m 80 -tp 2", []string{"vLLM|m|--port|80|-tp|2"}},
		{"bash -c without", "bash -c 'vllm serve m \"$@\"'", []string{"vLLM|m"}},
		{"set --", "set -- m -tp 2\nset -- \"$@\" --port 1\nvllm serve \"$@\"", []string{"vLLM|m|-tp|2|--port|1"}},
		{"default of an argument", "M=${1:-m} TP=${2-4}\nvllm serve $M -tp $TP", []string{"vLLM|m|-tp|4"}},
		{"comment in backquotes", "vllm serve m `# the network` --port 1 \\\n  `# parallelism` \\\n  -tp 2", []string{"vLLM|m|--port|1|-tp|2"}},
		{"script", "cat > run.sh <<'EOF'\n#!/bin/bash\nvllm serve \"$1\" -tp ${2:-4}\nEOF\nchmod +x run.sh && ./run.sh m 8", []string{"vLLM|m|-tp|8"}},
		{"script by bash", "TP=4\ncat <<EOF > /tmp/run.sh\nvllm serve \\$1 -tp $TP\nEOF\nnohup bash /tmp/run.sh m > log &", []string{"vLLM|m|-tp|4"}},
		{"script in a container", "tee run.sh <<'EOF' > /dev/null\nvllm serve m -tp 4\nEOF\ndocker run -v $PWD:/w img:1 bash /w/run.sh", []string{"vLLM|m|-tp|4"}},
		{"script of a batch", "cat > job.sbatch <<'EOF'\n#!/bin/bash\n#SBATCH -N1\nsrun vllm serve m -tp 8\nEOF\nsbatch --nodes 1 job.sbatch", []string{"vLLM|m|-tp|8"}},
		{"script that is sourced", "cat > s.sh <<'EOF'\nM=m\ns() { vllm serve $M -tp $1; }\nEOF\nsource ./s.sh\ns 2", []string{"vLLM|m|-tp|2"}},
		{"standard input", "ssh node1 bash -s <<'EOF'\nvllm serve m -tp 2\nEOF\nsbatch <<EOF\n#!/bin/sh\nvllm serve n\nEOF", []string{"vLLM|m|-tp|2", "vLLM|n"}},
		{"a script that is run elsewhere", "cat > a.sh <<'EOF'\nvllm serve m\nEOF\ncat > b.sh <<'EOF'\nvllm serve n\nEOF", []string{"vLLM|m", "vLLM|n"}},
		{"a manifest", "kubectl apply -f - <<EOF\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai-rocm:v0.33.0\n    args: [--model, m, -tp, \"2\"]\nEOF", []string{"vLLM|--model|m|-tp|2"}},
		{"services that are no compose file", "kind: Graph\nspec:\n  services:\n    Prefill:\n      pod:\n        main:\n          command: [python3, -m, dynamo.vllm]\n          args: [--model, m, -tp, \"2\"]\n", []string{"vLLM|--model|m|-tp|2"}},
		{"data", "python3 - <<'EOF'\nimport vllm\nEOF\nvllm serve m", []string{"vLLM|m"}},
		{"unit", "[Unit]\nDescription=x\n[Service]\nEnvironment=\"TP=4\" A=1\nEnvironment=B=2\nExecStart=-/usr/bin/vllm serve m \\\n  -tp ${TP}\nRestart=always\n", []string{"TP=4 A=1 B=2 vLLM|m|-tp|4"}},
		{"unit with a container", "[Service]\nExecStartPre=-/usr/bin/docker rm -f v\nExecStart=/usr/bin/docker run --rm --name v vllm/vllm-openai:v0.33.0 --model m\n", []string{"vLLM|--model|m"}},
		{"patterns", "while [[ $# -gt 0 ]]; do\n  case \"$1\" in\n    -m|--model) M=\"$2\"; shift 2 ;;\n    # the degree\n    --tp) TP=$2; shift 2;;\n    *) echo \"unknown $1\"; exit 1;;\n  esac\ndone\nvllm serve m", []string{"vLLM|m"}},
		{"a role by its argument", "s() {\n local kv=kv_producer\n [[ $1 == decode ]] && kv=kv_consumer\n if [ \"$1\" = prefill ]; then P=1; elif [ -n \"$2\" ]; then P=2; else P=3; fi\n vllm serve m --r $kv --port $P\n}\ns prefill\ns decode\ns decode 8", []string{"vLLM|m|--r|kv_producer|--port|1", "vLLM|m|--r|kv_consumer|--port|3", "vLLM|m|--r|kv_consumer|--port|2"}},
		{"a case by its argument", "s() {\n case \"$1\" in\n  p*|x) local A=1 ;;\n  decode) A=2; vllm serve n ;;\n  *) A=3 ;;\n esac\n vllm serve m -tp $A\n}\ns prefill; s decode; s other", []string{"vLLM|m|-tp|1", "vLLM|n", "vLLM|m|-tp|2", "vLLM|m|-tp|3"}},
		{"branches of a script all count", "ROLE=${1:-prefill}\nif [ $ROLE = prefill ]; then vllm serve m; else vllm serve n; fi\ncase $ROLE in prefill) vllm serve o;; *) vllm serve p;; esac", []string{"vLLM|m", "vLLM|n", "vLLM|o", "vLLM|p"}},
		{"options that the text does not set", "A=(-tp 4)\nif [ -n \"${LEN:-}\" ]; then A+=(--max-model-len $LEN); fi\nif [[ $EAGER == true ]]; then A+=(--enforce-eager); fi\n[ -n \"$X\" ] && A+=(--x $X)\nvllm serve m \"${A[@]}\"", []string{"vLLM|m|-tp|4"}},
		{"or", "s() { local N=''; [ \"$1\" = m ] || N=n; vllm serve $1 $N; }\ns m; s o", []string{"vLLM|m", "vLLM|o|n"}},
		{"a page with code", "# How\n\nDon't forget:\n\n```bash\nM=m\nvllm serve $M\n```\n\nIt's the other side's turn:\n\n```sh\nvllm serve n -tp 2\n```\n\n```python\nvllm serve o\n```\n\n```yaml\nargs: [vllm, serve, p]\n```\nThat's it", []string{"vLLM|m", "vLLM|n|-tp|2", "vLLM|p"}},
		{"a task's script", "envs:\n  M: m\n  TP: 4\nsetup: |\n  pip install vllm\nrun: |\n  cd x\n  vllm serve $M \\\n    -tp $TP\n", []string{"M=m TP=4 vLLM|m|-tp|4"}},
		{"a task's commands", "image: rocm/vllm:nightly\nenv: [M=m]\ncommands:\n  - export A=1\n  - vllm serve $M\n    -tp 4\n", []string{"M=m A=1 vLLM|m|-tp|4"}},
		{"arguments of the text", "M=${1:-m}\nshift\nvllm serve $M -tp 2 \"$@\"", []string{"vLLM|m|-tp|2"}},
		{"a quadlet", "[Container]\nImage=vllm/vllm-openai-rocm:v0.33.0\nEnvironment=A=1\nExec=--model m \\\n  -tp 4\n", []string{"A=1 vLLM|--model|m|-tp|4"}},
		{"a supervised program", "[program:v]\ncommand=/usr/bin/vllm serve m -tp 4\nenvironment=A=\"1\",B=\"2\"\nautostart=true\n", []string{"A=1 B=2 vLLM|m|-tp|4"}},
		{"options of a call", "s() {\n local model=x tp=1 extra=()\n while [[ $# -gt 0 ]]; do\n  case \"$1\" in\n   --model) model=\"$2\"; shift 2 ;;\n   --tp=*) tp=\"${1#*=}\"; shift ;;\n   --) shift; extra=(\"$@\"); set -- ;;\n   *) shift ;;\n  esac\n done\n vllm serve \"$model\" -tp $tp \"${extra[@]}\"\n}\ns --model a/b --tp=4\ns --tp=2 --verbose -- --port 1\ns", []string{"vLLM|a/b|-tp|4", "vLLM|x|-tp|2|--port|1", "vLLM|x|-tp|1"}},
		{"a loop without an end", "s() { while [ 1 = 1 ]; do A=1; done; vllm serve $1 -tp $A; }; s m", []string{"vLLM|m|-tp|1"}},
		{"parts of a value", "M=a/b:c:d; vllm serve ${M##*/} --x ${M#*:} --y ${M#a/} --z ${M#z}", []string{"vLLM|b:c:d|--x|c:d|--y|b:c:d|--z|a/b:c:d"}},
		{"the first of merged mappings", "x-a: &a {A: 1, B: 1}\nx-b: &b {A: 2, B: 2, C: 2}\nservices:\n  p:\n    image: vllm/vllm-openai:v0.33.0\n    environment: {<<: [*a, *b], B: 3}\n    command: --model m\n", []string{"A=1 B=3 C=2 vLLM|--model|m"}},
		{"merged mappings", "x-c: &c\n  image: vllm/vllm-openai:v0.33.0\n  environment: &e {A: 1}\nservices:\n  p:\n    <<: *c\n    environment: {<<: *e, B: 2}\n    command: --model m\n  d:\n    <<: [*c]\n    command: [--model, n]\n", []string{"A=1 B=2 vLLM|--model|m", "A=1 vLLM|--model|n"}},
		{"dynamo", "python3 -m dynamo.sglang --model-path m --disaggregation-mode prefill", []string{"SGLang|--model-path|m|--disaggregation-mode|prefill"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := engine.ParseCommands(tc.text)
			if diff := cmp.Diff(tc.want, launches(s)); diff != "" && tc.want != nil {
				t.Errorf("%s\n%s\nnotes %v", tc.text, diff, s.Notes)
			}
			for _, n := range s.Notes {
				if n.Kind == engine.Unread && tc.want != nil {
					t.Errorf("%s\nunread: %s", tc.text, n)
				}
			}
		})
	}
}

// TestTemplatesAreNamed holds that a chart's template is told as what it is, with its
// place and what to do.
func TestTemplatesAreNamed(t *testing.T) {
	for _, text := range []string{
		"apiVersion: apps/v1\nkind: Deployment\nspec:\n  containers:\n  - image: {{ .Values.image }}\n    args: [\"--model\", \"{{ .Values.model }}\"]\n",
		"{{- if .Values.prefill.enabled }}\nkind: Deployment\nspec:\n  command: [vllm, serve, m]\n{{- end }}\n",
		"kind: Pod\nspec:\n  containers:\n  - command: [vllm, serve]\n    args:\n    {{- toYaml .Values.args | nindent 4 }}\n",
	} {
		s := engine.ParseCommands(text)
		if len(s.Notes) != 1 || s.Notes[0].Kind != engine.Unread || !strings.Contains(s.Notes[0].Text, "template of a Helm chart") ||
			!strings.Contains(s.Notes[0].Text, "helm template") || s.Notes[0].Place.Line != 1+strings.Count(text[:strings.Index(text, "{{")], "\n") {
			t.Errorf("%s\n%v", text, s.Notes)
		}
	}
	if s := engine.ParseCommands("docker inspect --format '{{.State.Running}}' x\nvllm serve m"); len(s.Launches) != 1 || len(s.Notes) > 0 {
		t.Errorf("%+v", s)
	}
}

// TestOptionsOfTheCaller holds that what a script is called with does not hide what it
// does without, and that this is said of what rules depend on.
func TestOptionsOfTheCaller(t *testing.T) {
	for _, loop := range []string{
		"while [[ $# -gt 0 ]]; do\n  case \"$1\" in\n    -m | --model) MODEL=\"$2\"; shift 2 ;;\n    --tp=*) TP=\"${1#*=}\"; shift ;;\n    --port) PORT=$2; shift 2 ;;\n    -h|--help) usage ;;\n    *) echo \"what is $1\" >&2; exit 1 ;;\n  esac\ndone\n",
		"while getopts \"m:t:p:h\" opt; do\n  case $opt in\n    m) MODEL=$OPTARG ;;\n    t) TP=${OPTARG} ;;\n    p) PORT=$OPTARG;;\n    \\?) exit 1 ;;\n  esac\ndone\nshift $((OPTIND-1))\n",
		"if [ -n \"$1\" ]; then MODEL=$1; fi\n[ -n \"$2\" ] && TP=$2\nif [ $# -gt 2 ]; then\n  PORT=$3\nfi\n",
	} {
		text := "MODEL=a/b\nTP=4\nPORT=8000\n" + loop + "vllm serve \"$MODEL\" -tp $TP --port \"$PORT\""
		s := engine.ParseCommandsOf("vLLM", text)
		if diff := cmp.Diff([]string{"vLLM|a/b|-tp|4|--port|8000"}, launches(s)); diff != "" || len(s.Notes) > 0 {
			t.Errorf("%s\n%s\nnotes %v", text, diff, s.Notes)
			continue
		}
		in, notes := s.Launches[0].Read()
		said := 0
		for _, n := range notes {
			if strings.Contains(n.Text, "unless the arguments that the text is called with say another") && n.Kind == engine.Remark {
				said++
			}
		}
		if in.Model != "a/b" || in.Layout.TP != 4 || said != 2 {
			t.Errorf("%s\n%+v\n%v", text, in.Layout, notes)
		}
	}
	s := engine.ParseCommands("while getopts t: o; do case $o in t) TP=$OPTARG;; esac; done\nvllm serve m -tp $TP")
	if in, notes := s.Launches[0].Read(); in.Layout.TP != 0 || !strings.Contains(engine.Script{Notes: notes}.Notes[0].Text, "is not known") {
		t.Errorf("%+v, %v", in.Layout, notes)
	}
}

// TestBranchesOfCalls holds that what is read of a call is what bash does, or is open.
func TestBranchesOfCalls(t *testing.T) {
	const open = "open"
	for _, tc := range []struct{ name, text, want string }{
		{"a test that is turned round", "s() { if ! [ $1 = a ]; then T=8; else T=2; fi; vllm serve $T; }\ns a", "2"},
		{"tests on two lines", "s() { T=4; if [ $1 = a ] &&\n [ $2 = b ]; then T=8; fi; vllm serve $T; }\ns x b", "4"},
		{"a setting on the next line", "s() { T=4; [ $1 = a ] &&\n T=8\n vllm serve $T; }\ns x", "4"},
		{"either setting", "s() { [ $1 = a ] && T=8 || T=4; vllm serve $T; }\ns a", "8"},
		{"either setting of a script", "[ $1 = a ] && T=8 || T=4; vllm serve $T", open},
		{"braces", "s() { T=1; [ $1 = a ] && { D=1; T=8; }; vllm serve $T; }\ns b", "1"},
		{"braces in braces", "s() { [ $1 = a ] && { { D=1; }; T=8; } || { T=4; }; { D=2; }; vllm serve $T; }\ns b", "4"},
		{"a command in front of a test", "s() { T=4; if grep -q x f && [ $1 = a ]; then T=8; fi; vllm serve $T; }\ns a", open},
		{"return", "s() { if [ $1 = a ]; then T=8; return; fi; T=2; }\ns a; vllm serve $T", "8"},
		{"return that is not certain", "s() { if [ -f x ]; then T=8; return; fi; T=8; }\ns a; vllm serve $T", "8"},
		{"break", "s() { while [ $# -gt 0 ]; do case $1 in\n -t) T=$2; shift 2;;\n --) shift; break;;\n esac; done; vllm serve $T$1; }\ns -t 8 -- -t 3", "8-t"},
		{"continue", "s() { while [ $# -gt 0 ]; do if [ $1 = -t ]; then shift; continue; fi; T=$T$1; shift; done; vllm serve $T; }\nT=; s 1 -t 2", "12"},
		{"break that is not certain", "s() { T=1; while [ $# -gt 0 ]; do [ -f x ] && break; T=$1; shift; done; vllm serve $T; }\ns 2", open},
		{"a star and a slash", "s() { case $1 in\n *coder*) T=8;;\n *) T=2;;\n esac; vllm serve $T; }\ns Qwen/coder-x", "8"},
		{"characters but some", "s() { case $1 in\n [!x]*) T=8;;\n *) T=2;;\n esac; vllm serve $T; }\ns abc", open},
		{"a quoted star", "s() { case $1 in\n \"a*\") T=8;;\n *) T=2;;\n esac; vllm serve $T; }\ns abc", open},
		{"quotes in a pattern", "s() { case $1 in 'a'*) T=8;; *) T=2;; esac; vllm serve $T; }\ns abc", open},
		{"patterns on one line", "s() { case $1 in a|b|c) T=8;; *) T=2;; esac; vllm serve $T; }\ns b", "8"},
		{"the line behind braces", "s() { T=1; [ -z $1 ] && { D=1; }\n T=2; vllm serve $T; }\ns 1", "2"},
		{"a command that says no", "T=1; grep -q x f && T=2; vllm serve $T", open},
		{"where a command fails", "T=1; nproc > f || T=2; vllm serve $T", open},
		{"where a shift fails", "s() { while [ $1 != x ]; do T=$1; shift || break; done; vllm serve $T; }\ns 1 2 x", "2"},
		{"what is read", "T=1; read -r T < f; vllm serve $T", open},
		{"what is printed", "T=1; printf -v T %d 5; vllm serve $T", open},
		{"what is counted", "T=1; ((T++)); vllm serve $T", open},
		{"what is counted on", "T=1; ((T += 1)); vllm serve $T", open},
		{"what let sets", "T=1; let T=T+1; vllm serve $T", open},
		{"what is compared", "T=1; if ((T == 1 && T <= 3)); then D=1; fi; vllm serve $T", "1"},
		{"one of an array", "A=(1 2); A[0]=5; vllm serve \"${A[@]}\"", open},
		{"one taken from an array", "A=(1 2); unset 'A[1]'; vllm serve \"${A[@]}\"", open},
		{"numbers", "s() { T=4; [ $1 -eq 1 ] && T=8; vllm serve $T; }\ns 01", "8"},
		{"a local without a value", "T=4; s() { local T; T=8; }\ns; vllm serve $T", "4"},
		{"a global by declare", "T=4; s() { declare -g T=8; }\ns; vllm serve $T", "8"},
		{"a shift that fails", "s() { shift 3; vllm serve $1; }\ns 1 2", "1"},
		{"a shift by what is not known", "s() { shift $((OPTIND - 1)); vllm serve $1; }\ns -t m", open},
		{"arrays of branches", "A=(a b c); A+=(d); if [ -f x ]; then A+=(x); else A+=(y); fi; vllm serve \"${A[@]}\"", "a|b|c|d|" + open},
		{"what a test is turned round for", "T=1; if [ ! -n \"$X\" ]; then T=8; fi; vllm serve $T", open},
		{"the same in front", "T=1; if ! [ -n \"$X\" ]; then T=8; fi; vllm serve $T", open},
		{"one of two that are asked for", "T=1; if [ $Y = a ] || [ -n \"$X\" ]; then T=8; fi; vllm serve $T", open},
		{"both that are asked for", "T=1; if [ $Y = a ] && [ -n \"$X\" ]; then T=8; fi; vllm serve $T", "1"},
	} {
		got := strings.Join(launches(engine.ParseCommands(tc.text)), " ")
		got = strings.TrimPrefix(regexp.MustCompile(`\$\{?[A-Z1]([[@].*)?\}?`).ReplaceAllString(got, open), "vLLM|")
		if got != tc.want {
			t.Errorf("%s:\n%s\nread %q, want %q", tc.name, tc.text, got, tc.want)
		}
	}
}
