package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pdpool/pdpool/engine"
)

func FuzzParseCommands(f *testing.F) {
	files, err := filepath.Glob("testdata/commands/*.sh")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	addTexts(f)
	f.Fuzz(func(t *testing.T, text string) {
		var s engine.Script
		frugal(t, "parsing", func() { s = engine.ParseCommands(text) })
		much := strings.Repeat(text, engine.MaxText/max(len(text), 1))
		frugal(t, fmt.Sprintf("parsing %.60q again and again", text), func() { engine.ParseCommands(much) })
		inside := func(p engine.Place) {
			if p.Line < 1 || p.Column < 1 || p.Column > utf8.RuneCountInString(text)+1 {
				t.Fatalf("place %s is not in %q", p, text)
			}
		}
		for _, n := range s.Notes {
			inside(n.Place)
		}
		for _, l := range s.Launches {
			inside(l.Place)
			for i := range l.Args {
				inside(l.ArgPlace(i))
			}
			in, notes := l.Read()
			for _, n := range notes {
				inside(n.Place)
			}
			if len(in.Rest) > len(l.Args) {
				t.Fatalf("%q: more left than there was", text)
			}
		}
	})
}

// addTexts adds hostile texts, and small ones with much in them.
func addTexts(f *testing.F) {
	for _, text := range hostile() {
		f.Add(text[:200])
	}
	for _, text := range []string{
		`vllm serve $'\u00e9\x4\777' "${A[@]}${B:-$C}${D:+x}" {"a":1`, "A+=(x) A+=y sglang serve $A", "docker run -e=A=1 -itp1 --env i bash -c",
		"kubectl run --image -- ", "env -u", "timeout", "python -m", "<<A\n<<'", "vllm serve \\", "a=<b>c vllm serve $a$a", "ssh x 'ssh y \"vllm serve z\"'",
		"if [ -z $A ]; then A=(1); elif x; then A+=(2); else B=3; fi; vllm serve m ${A[@]} $B", "case $R in p) A=1;; *) A=2; esac; vllm serve $A",
		"A=$(cat <<E\n$B $((1+2))\nE\n)\nvllm serve \"$A\" $((A*-2))", "command: [vllm, serve, $(M)]\nenv: [{name: M, value: é}]\n", "services:\n  a:\n    command: >\n      vllm serve\n      'm n'\n",
		"spec: {containers: [{command: [sh, -c], args: ['vllm serve m \\\n -tp 8']}]}",
		"f() { local a=$1; shift; vllm serve $a \"$@\"; }\nf m -tp 2; set -- x; f \"${@:1}\" $# $*", "cat >r.sh <<E\nvllm serve \\$1\nE\n. r.sh m; ssh x sh -s <<'E'\nvllm serve m\nE\n",
		"a\n```sh\nvllm serve m\n```\n```yaml\nargs: [vllm]\n```\n", "[Container]\nImage=vllm:1\nExec=--model é \\\n -tp 1\n[program:a]\nenvironment=A=\"é\",B=2\ncommand=vllm serve $A\n",
		"envs: {M: é}\nrun: |\n  vllm serve $M\n", "commands:\n- é\n- vllm serve m \"$@\"\n",
		"[Service]\nEnvironment='A=b c'\nExecStart=@vllm serve $A \\\n -tp 8\n", "while getopts a: o; do case $o in a) A=$OPTARG;; *) B=1; esac; done; vllm serve $A$B",
		"- vllm\n- serve\n- |\n  m\n",
		"f() { local A; [ $1 = a ] && { A=1; } || { A=2; }\n case $1 in a|[b]*) return;; esac; while ((A++)); do A[0]=1; ! [ $A ] ||\n break; done; read B; vllm serve $A$B; }\nf a; f b",
	} {
		f.Add(text)
	}
}
