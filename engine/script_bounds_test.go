package engine_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// hostile are texts of the greatest size that try to make much out of it.
func hostile() map[string]string {
	fill := func(s string) string { return strings.Repeat(s, engine.MaxText/len(s)) }
	after := func(head, s string) string { return head + strings.Repeat(s, (engine.MaxText-len(head))/len(s)) }
	return map[string]string{
		"words":          after("vllm serve m ", "a "),
		"flags":          after("vllm serve m ", "-x "),
		"commands":       fill("a\n"),
		"launches":       fill("vllm serve m -x\n"),
		"settings":       fill("A=1 "),
		"variables":      fill("A=1;export B=2\n"),
		"arrays":         fill("A=(a a a a a a);"),
		"array appends":  after("A=(a);", "A+=(b);"),
		"appends":        after("A=a;", "A+=b;"),
		"doubling":       after("A=aaaaaaaa;", "A=$A$A;"),
		"expansions":     after("A='"+strings.Repeat("b ", 200)+"';vllm serve ", "$A "),
		"exports":        after("export A=1 B=2 C=3 D=4;", "vllm serve m;"),
		"quotes":         fill("'a'\"b\""),
		"quoted words":   after("vllm serve m ", "'a''b' "),
		"open quotes":    fill("\""),
		"braces":         after("vllm serve m ", "${"),
		"substitutions":  after("vllm serve m ", "$("),
		"backquotes":     fill("`"),
		"defaults":       after("vllm serve ", "${a:-b}"),
		"nested shells":  fill("bash -c 'vllm serve m';"),
		"deep shells":    after("bash -c \"", "bash -c \\\"a "),
		"here-documents": fill("<<a "),
		"here bodies":    fill("cat <<a\nvllm\n"),
		"redirects":      fill(">a "),
		"JSON":           after("vllm serve m ", `{"{`),
		"JSON value":     after("vllm serve m --kv-transfer-config '{\"kv_connector_extra_config\":{\"a\":[", "0,"),
		"JSON depth":     after("vllm serve m --kv-transfer-config '", "{\"a\":"),
		"dotted keys":    after("vllm serve m --kv-transfer-config", ".a") + " 1",
		"many keys":      after("vllm serve m ", "--kv-transfer-config.a=1 "),
		"docker":         after("docker run ", "-e A=1 "),
		"docker runs":    fill("docker run -e A i vllm serve m;"),
		"env settings":   after("env ", "A=1 "),
		"env unset":      after("export A=1 B=2; env ", "-u A "),
		"prefix appends": after("export A=1; ", "A+=1 ") + "vllm serve",
		"installs":       after("pip install ", "vllm==0.33.0 "),
		"unknown":        after("vllm serve m ", "$A "),
		"placeholders":   after("vllm serve m ", "<a> "),
		"C escapes":      after("vllm serve $'", `\x41`),
		"dangling":       after("vllm serve m\n", "--xyz_a\n"),
		"dangling flags": after("vllm serve m\n", "--port 1\n"),
		"comments":       after("vllm serve m \\\n", "# a \\\n-x \\\n"),
		"lines":          fill("\n"),
		"functions":      fill("f() { vllm serve m; }\nf\n"),
		"nested defines": fill("f() { "),
		"recursion":      after("f() { A=1 vllm serve m; f $@ x; f $@ y; }; f a;", "f b;"),
		"call arguments": after("f() { f \"$@\" \"$@\"; }; f ", "a "),
		"call chain":     after("a() { b \"$@\" x \"$@\"; }; b() { c \"$@\" \"$@\"; }; c() { d \"$@\" \"$@\"; }; d() { vllm serve \"$@\" \"$@\"; }; a ", "x "),
		"set arguments":  after("set -- a;", "set -- \"$@\" b;"),
		"shifts":         after("set -- "+strings.Repeat("a ", 999)+";", "shift;"),
		"patterns":       after("case $a in ", "a) B=1;; "),
		"files":          fill("cat >a <<E\nvllm serve m\nbash a\nE\nbash a\n"),
		"sources":        after("cat >a <<E\nvllm serve m\n. a\n. a\nE\n", ". a\n"),
		"fences":         fill("```\nvllm serve m\n```\n"),
		"tasks":          fill("- run: vllm serve m\n"),
		"task commands":  after("commands:\n", "- vllm serve m\n"),
		"programs":       after("[program:a]\nenvironment=", "A=1,"),
		"loops":          after("f() { while [ $# -gt 0 ]; do shift; A=1; done; vllm serve m; }; f ", "a "),
		"units":          fill("[Service]\nEnvironment=A=1 B=2\nExecStart=vllm serve m\n"),
		"templates":      after("kind: Pod\n", "a: {{ .Values.a }}\n"),
		"semicolons":     fill("a;"),
		"frames":         fill("if a; then A=1; fi;"),
		"open frames":    fill("if a; then A=1;"),
		"branches":       after("if a; then ", "A=1 B=2; else "),
		"cases":          after("case a in ", "x) A=1 ;; "),
		"frame arrays":   after("A=(a);", "if a; then A+=(b); fi;"),
		"guards":         fill("[ a ] && A=1;"),
		"here texts":     fill("A=$(cat <<E\na\nE\n)\n"),
		"open here text": fill("A=$(cat <<E\n"),
		"arithmetic":     after("A=1;", "A=$((A+1));"),
		"open sums":      after("vllm serve m ", "$(("),
		"blocks":         fill("```\n"),
		"unknown flags":  after("vllm serve m ", "--enable-prefx-caching --tensor-parallell-size=1 "),
		"unknown keys":   after("vllm serve m --kv-transfer-config.kv_role kv_producer --kv-transfer-config.kv_connector MoRIIOConnector ", "--kv-transfer-config.kv_connector_extra_config.a=1 "),
		"flow":           after("command: [vllm, serve", ",a"),
		"deep YAML":      after("command: ", "["),
		"deep maps":      after("a: ", "{a: "),
		"block lists":    after("args:\n", "- a\n"),
		"nested lists":   after("args:\n", "- - - - "),
		"YAML text":      after("spec:\n  command: [sh, -c]\n  args:\n  - |\n", "    vllm serve m\n"),
		"YAML lines":     after("spec:\n  command: [sh, -c]\n  args:\n  - |\n", "    a\n"),
		"containers":     after("c:\n", "- args: [vllm, serve, m]\n"),
		"references":     after("command: [vllm, serve]\nenv: [{name: A, value: aaaaaaaaaaaaaaaa}]\nargs: [\"", "$(A)"),
		"documents":      fill("---\na: b\n"),
		"aliases":        after("a: &a [b]\nc: [", "*a,"),
		"exec array":     after("[\"vllm\"", ",\"a\""),
		"long dash":      after("vllm serve m ", "— "),
		"empty appends":  fill("A+= A+=\n"),
		"env sets":       fill("env " + strings.Repeat("A= ", 16) + "\n"),
		"env pairs":      fill("env A= A=\n"),
		"env lines":      fill("env A=\n"),
		"export append":  fill("export A+=\n"),
		"docker empty":   after("docker run ", "-e A= "),
		"octal escapes":  fill("$'\\8" + strings.Repeat("\\0", 40) + "'"),
		"open octal":     after("$'", "\\8\\0\\0"),
		"self":           after("A=0$A$A$A", "A$A"),
		"background":     fill("export A= B=&env -u A&"),
	}
}

func TestBounds(t *testing.T) {
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			if len(text) > engine.MaxText+16 {
				t.Fatalf("%d bytes", len(text))
			}
			text = text[:min(len(text), engine.MaxText)]
			frugal(t, "parsing", func() { engine.ParseCommandsOf(kvlayout.VLLM, text) })
			var s engine.Script
			frugal(t, "parsing", func() { s = engine.ParseCommands(text) })
			if strings.HasPrefix(name, "YAML") && len(s.Launches) == 0 && len(s.Notes) == 0 {
				t.Error("nothing is said")
			}
			for _, l := range s.Launches[:min(len(s.Launches), 1)] {
				frugal(t, "reading a launch", func() { l.Read() })
			}
		})
	}
}

// frugal holds that something allocates at most 1 MiB in all.
func frugal(t *testing.T, what string, do func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%s allocated %d bytes", what, used)
	}
}
