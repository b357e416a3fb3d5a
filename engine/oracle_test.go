package engine_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pdpool/pdpool/engine"
)

var scriptSeed = flag.Uint64("engine.seed", 1, "seed of TestScriptsAsAShell; 0 for a random one")

// TestScriptsAsAShell holds what is read of scripts against what bash gives the engine
// when it runs them: the same arguments, and the same environment.
func TestScriptsAsAShell(t *testing.T) {
	seed := *scriptSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
		t.Logf("repeat with -engine.seed=%d", seed)
	}
	g := scripts{rand.New(rand.NewPCG(seed, 0))}
	texts := make([]string, 400)
	for i := range texts {
		texts[i] = g.script()
	}
	for i, want := range run(t, texts) {
		read := engine.ParseCommands(texts[i])
		for _, l := range read.Launches {
			slices.SortFunc(l.Env, func(a, b engine.EnvVar) int { return strings.Compare(a.Name, b.Name) })
		}
		if got := launches(read); !slices.Equal(got, want) {
			t.Fatalf("script %d of seed %d:\n%s\nread %q\nrun  %q", i, seed, texts[i], got, want)
		}
	}
}

// run is what bash starts for each script, as launches tells it.
func run(t *testing.T, texts []string) [][]string {
	t.Helper()
	const starts = `exec 3>&1
nohup() { "$@"; }
vllm() {
  shift
  for name in A B C; do
    local -n value=$name
    if [[ ${value@a} == *x* ]]; then printf '%s=%s ' $name "$value" >&3; fi
  done
  printf 'vLLM' >&3; printf '|%s' "$@" >&3; printf '\x01' >&3
}
`
	script := starts
	for _, text := range texts {
		script += "(\n" + text + "\n)\nprintf '\\0'\n"
	}
	cmd := exec.CommandContext(t.Context(), "bash", "--norc", "--noprofile", "-s")
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		errors.As(err, &failed)
		t.Fatalf("bash: %v: %s", err, failed.Stderr)
	}
	var all [][]string
	for one := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		launched := strings.Split(one, "\x01")
		all = append(all, slices.DeleteFunc(launched, func(l string) bool { return l == "" }))
	}
	if len(all) != len(texts) {
		t.Fatalf("bash ran %d scripts of %d", len(all), len(texts))
	}
	return all
}

// names are the variables of the scripts, each of one letter.
var names = []string{"A", "B", "C"}

// scripts makes up scripts that say all that they use.
type scripts struct{ *rand.Rand }

func (g scripts) any(of ...string) string { return of[g.IntN(len(of))] }

func (g scripts) script() string {
	var b strings.Builder
	for _, name := range names { // in an order, so that the environment has one
		fmt.Fprintf(&b, "%s%s=%s\n", g.any("", "export "), name, g.any("", "1", "'x  y'", `"a/b"`))
	}
	for range g.IntN(4) {
		b.WriteString(g.statement() + g.any("\n", "; ", " && ", " # comment 'x\n", "\n\n"))
	}
	for range 1 + g.IntN(2) {
		b.WriteString(g.prefix() + "vllm serve")
		for range g.IntN(5) {
			b.WriteString(g.any(" ", "  ", " \\\n  ", "\t") + g.word())
		}
		b.WriteString(g.any("", " >/dev/null", " 2>&1", " | cat") + "\n")
	}
	return b.String()
}

func (g scripts) prefix() string {
	return g.any("", "", "", "B="+g.value()+" ", "nohup ")
}

func (g scripts) statement() string {
	name := g.any(names...)
	switch g.IntN(8) {
	case 0:
		return name + "+=" + g.value()
	case 1:
		return "export " + name
	case 2:
		return "unset " + name + "\n" + name + "=" + g.any("", "1", "'x y'")
	case 3:
		return fmt.Sprintf("D=(x%s y%s); D+=(z%s)", g.word(), g.word(), g.word()) + `; vllm serve "${D[@]}" x`
	case 4:
		return name + "=$(( " + g.any("2", "3 * 4", "(7 - 2) / 2", "9 % 4 + 1") + " ))"
	case 5:
		return name + "=$(cat <<" + g.any("END\n", "'END'\n") + g.any("text", "$A 'b' \\$c", "{\"a\": \"$B\"}", "a\n\nb") + "\nEND\n)"
	case 6:
		return "{ " + name + "=" + g.value() + "; }"
	default:
		return name + "=" + g.value()
	}
}

// value is a word without what a shell would split.
func (g scripts) value() string {
	return g.any("", "1", "a/b", "'x y'", `"p  q"`, `"$A-$B"`, "${C}", "${A}z", `a\ b`, `'{"k":1}'`, `"\"$A\""`, "$'t\\tu'")
}

func (g scripts) word() string {
	var b strings.Builder
	for range 1 + g.IntN(3) {
		b.WriteString(g.any(
			"-x", "--port=1", "é", "a", "'b c'", `"d e"`, `\"`, `f\ g`, "${A}", `"$A"`, "${B}", `"${B} $C"`, "${A:-x}", `${B:+"y"}`, "${E:-z}", `"${E-$A}"`,
			`'{"a": [1, "b"]}'`, `"{\"a\":\"$C\"}"`, `$'\x41\n'`, "''", `""`, "=", "x=1", "$((1 + 2))",
		))
	}
	return b.String()
}
