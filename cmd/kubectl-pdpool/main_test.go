package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/pdpool/pdpool/cli"
)

func runPlugin(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var text, diagnostics bytes.Buffer
	err := run(t.Context(), args, strings.NewReader(""), &text, &diagnostics)
	return text.String() + diagnostics.String(), cli.ExitCode(err)
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"version"}, 0, "dev\n"},
		{[]string{"--help"}, 0, "kubectl pdpool [command]"},
		{[]string{"check", "-f", "../../config/samples/smallest.yaml"}, 0, "admitted"},
		{[]string{"check", "-f", "../../config/samples/refused.yaml"}, 1, "refused"},
		{[]string{"check", "-f", "no/such/file"}, 2, ""},
		{[]string{"completion", "bash"}, 0, "kubectl-pdpool"},
		{[]string{"completion", "zsh"}, 0, "kubectl-pdpool"},
		{[]string{"completion", "fish"}, 0, "kubectl-pdpool"},
		{[]string{"__complete", "check", "-o", ""}, 0, "sarif"},
		{[]string{"__complete", "rules", "dcp-v"}, 0, "dcp-version"},
		{[]string{"__complete", "geometry", "--model", "deepseek"}, 0, "deepseek-ai/DeepSeek-R1"},
	} {
		out, code := runPlugin(t, c.args...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%v: exit status %d, want %d: %s", c.args, code, c.code, out)
		}
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	if colours(&bytes.Buffer{}) {
		t.Error("colours into a buffer")
	}
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if colours(file) {
		t.Error("colours into a file")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	t.Setenv("NO_COLOR", "1")
	if colours(null) {
		t.Error("colours though NO_COLOR is set")
	}
}

func TestKubectlSaysWhatIsWrong(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := kubectl(t.Context(), "get", "nodes"); err == nil || !strings.Contains(err.Error(), "kubectl get nodes") {
		t.Errorf("%v", err)
	}
}

func TestCauseIsWithoutTheLog(t *testing.T) {
	log := `E1129 22:01:02.123456   12345 memcache.go:265] "Unhandled Error" err="couldn't get current server API group list: refused"` + "\n"
	for said, want := range map[string]string{
		log + log + "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n": "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
		log:                 strings.TrimSpace(log),
		"one\none\n\ntwo\n": "one; two",
		"":                  "",
	} {
		if got := cause(said); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
