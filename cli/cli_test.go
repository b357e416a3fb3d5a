package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pdpool/pdpool/kvlayout"
)

var update = flag.Bool("update", false, "write golden files")

// now is the time of all tests.
func now() time.Time { return time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC) }

// result is what a user sees of a command.
type result struct {
	out  string
	err  error
	code int
}

func runWith(t *testing.T, o Options, in string, args ...string) result {
	t.Helper()
	var out, diagnostics bytes.Buffer
	o.Version, o.In, o.Out, o.Err, o.Now = "v0.0.0-test", strings.NewReader(in), &out, &diagnostics, now
	cmd := Command(t.Context(), o)
	cmd.SetArgs(args)
	err := cmd.Execute()
	if diagnostics.Len() > 0 {
		t.Errorf("standard error: %s", &diagnostics)
	}
	return result{out: out.String(), err: err, code: ExitCode(err)}
}

func run(t *testing.T, in string, args ...string) result {
	t.Helper()
	return runWith(t, Options{Kubectl: noKubectl}, in, args...)
}

func noKubectl(_ context.Context, args ...string) ([]byte, error) {
	return nil, fmt.Errorf("no cluster for kubectl %v", args)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test ./cli -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (go test ./cli -update writes it):\n%s", path, diff)
	}
}

// TestOutputs holds what every command prints, and its exit status.
func TestOutputs(t *testing.T) {
	const m = "testdata/manifests/"
	pair := []string{"--prefill-cmd", "@testdata/r1.sh", "--decode-cmd", "@testdata/r1.sh"}
	for _, c := range []struct {
		name string
		code int
		args []string
	}{
		{"check-admitted.txt", 0, []string{"check", "-f", m + "r1.yaml"}},
		{"check-refused.txt", 1, []string{"check", "-f", m + "refused.yaml"}},
		{"check-folder.txt", 2, []string{"check", "-f", "testdata/manifests"}},
		{"check-folder.json", 2, []string{"check", "-f", "testdata/manifests", "-o", "json"}},
		{"check-folder.sarif", 2, []string{"check", "-f", "testdata/manifests", "-o", "sarif"}},
		{"check-pair.txt", 0, append([]string{"check"}, pair...)},
		{"check-pair-strict.txt", 1, append([]string{"check", "--strict"}, pair...)},
		{"check-pair-0.33.0.txt", 1, append([]string{"check", "--engine-version", "0.33.0", "--mover", "Engine"}, pair...)},
		{"check-pair-agent.json", 0, append([]string{"check", "--engine-version", "0.33.0", "--mover", "Agent", "-o", "json"}, pair...)},
		{"check-pair.sarif", 0, append([]string{"check", "-o", "sarif"}, pair...)},
		{"plan-simulator.txt", 0, []string{"plan", "-f", m + "r1.yaml"}},
		{"plan-simulator.json", 0, []string{"plan", "-f", m + "r1.yaml", "-o", "json"}},
		{"plan-simulator.svg", 0, []string{"plan", "-f", m + "r1.yaml", "-o", "svg"}},
		{"plan-heads.txt", 0, []string{"plan", "-f", m + "llama.yaml", "--kv-memory", "64Gi", "--tokens", "8192"}},
		{"plan-heads.svg", 0, []string{"plan", "-f", m + "llama.yaml", "-o", "svg"}},
		{"plan-hybrid.txt", 1, []string{"plan", "-f", m + "kimi.yaml", "--blocks", "3177"}},
		{"advise-seed.txt", 0, []string{"advise", "-f", "testdata/seed.yaml", "--load", "in=8192,out=4096,concurrency=256", "--blocks", "22616"}},
		{"advise-seed.json", 0, []string{"advise", "-f", "testdata/seed.yaml", "--load", "in=8192,out=4096,concurrency=256", "--blocks", "22616", "-o", "json"}},
		{"advise-gpus.txt", 0, []string{"advise", "-f", m + "llama.yaml", "--load", "in=8192,out=4096,concurrency=256", "--gpus", "4x8", "--kv-memory", "60Gi"}},
		{"geometry-mla.yaml", 0, []string{"geometry", "--config", "testdata/mla.json"}},
		{"geometry-gqa.yaml", 0, []string{"geometry", "--model", "openai/gpt-oss-120b", "-o", "json"}},
		{"geometry-hybrid.yaml", 1, []string{"geometry", "--model", "moonshotai/Kimi-Linear-48B-A3B-Instruct"}},
		{"import.yaml", 1, append([]string{"import", "--engine-version", "0.33.0"}, pair...)},
		{"import-unlike.yaml", 1, []string{"import", "--name", "mixed", "--prefill-cmd", "@testdata/unlike.sh", "--decode-cmd", "@testdata/unlike.sh"}},
		{"rules-dcp-version.txt", 0, []string{"rules", "dcp-version", "schema"}},
		{"rules-dcp-version.json", 0, []string{"rules", "dcp-version", "-o", "json"}},
		{"version.txt", 0, []string{"version"}},
		{"plan-hybrid.svg", 1, []string{"plan", "-f", m + "kimi.yaml", "-o", "svg"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, "", c.args...)
			if got.code != c.code || got.err != nil && !Silent(got.err) {
				t.Errorf("exit status %d (%v), want %d", got.code, got.err, c.code)
			}
			golden(t, c.name, got.out)
			if strings.Contains(got.out, "\x1b") {
				t.Error("colours without a terminal")
			}
		})
	}
}

func TestColours(t *testing.T) {
	got := runWith(t, Options{Colour: true}, "", "check", "-f", "testdata/manifests/refused.yaml")
	if !strings.Contains(got.out, "\x1b[1;31mrefused\x1b[0m") {
		t.Errorf("no colour: %s", got.out)
	}
}

// TestSeedPairs holds the verdicts on the pairs that DCP relayout is about.
func TestSeedPairs(t *testing.T) {
	r1 := "vllm serve deepseek-ai/DeepSeek-R1 --block-size 64 -tp 4 --kv-transfer-config " +
		`'{"kv_connector":"MoRIIOConnector","kv_role":"%s","kv_connector_extra_config":{"http_port":8000}}'`
	kimi := "vllm serve moonshotai/Kimi-Linear-48B-A3B-Instruct --block-size 2048 --max-model-len 32768 -tp 2 --kv-transfer-config " +
		`'{"kv_connector":"MoRIIOConnector","kv_role":"%s","kv_connector_extra_config":{"http_port":8000}}'`
	conv := "VLLM_SSM_CONV_STATE_LAYOUT=DS "
	for _, c := range []struct{ name, prefill, decode string }{
		{"interleave 1", fmt.Sprintf(r1, "kv_producer"), fmt.Sprintf(r1, "kv_consumer") + " -dcp 4"},
		{"interleave 64", fmt.Sprintf(r1, "kv_producer"), fmt.Sprintf(r1, "kv_consumer") + " -dcp 4 --cp-kv-cache-interleave-size 64"},
		{"Kimi-Linear", conv + fmt.Sprintf(kimi, "kv_producer"), conv + fmt.Sprintf(kimi, "kv_consumer") + " -dcp 2"},
	} {
		for _, v := range []struct {
			flags    []string
			admitted bool
			refusal  string
			warns    bool
		}{
			{admitted: true, warns: true},
			{flags: []string{"--engine-version", "0.33.0"}, refusal: "dcp-version"},
			{flags: []string{"--engine-version", "0.33.0", "--mover", "Engine"}, refusal: "dcp-version"},
			{flags: []string{"--engine-version", "0.33.0", "--mover", "Agent"}, admitted: true},
		} {
			t.Run(fmt.Sprint(c.name, v.flags), func(t *testing.T) {
				args := append([]string{"check", "-o", "json", "--prefill-cmd", c.prefill, "--decode-cmd", c.decode}, v.flags...)
				got := run(t, "", args...)
				var r Report
				if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Pools) != 1 {
					t.Fatalf("%v (%v): %s", err, got.err, got.out)
				}
				if r.Admitted != v.admitted || (got.code == 0) != v.admitted {
					t.Errorf("admitted %v, exit status %d: %s", r.Admitted, got.code, got.out)
				}
				var warned, refused bool
				for _, p := range r.Pools[0].Problems {
					warned = warned || p.Severity == kvlayout.Warn && p.Rule == "dcp-version"
					if refuses(p) {
						refused = true
						if p.Rule != v.refusal || !strings.Contains(p.Fix, "Agent") {
							t.Errorf("refused by %s: %s", p.Rule, p.Fix)
						}
					}
				}
				if warned != v.warns || refused == v.admitted {
					t.Errorf("warned %v, refused %v: %s", warned, refused, got.out)
				}
			})
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"check"}, "nothing to check"},
		{[]string{"check", "-f", "no/such/file"}, "no such file"},
		{[]string{"check", "-f", "testdata/manifests/others.yaml"}, "no PDPool"},
		{[]string{"check", "-f", "-", "-o", "xml"}, "none of text, json and sarif"},
		{[]string{"check", "--prefill-cmd", "x"}, "decode-cmd"},
		{[]string{"check", "--prefill-cmd", "ls", "--decode-cmd", "ls"}, "starts no engine"},
		{[]string{"check", "--prefill-cmd", "vllm serve a", "--decode-cmd", "vllm serve a; vllm serve b"}, "leave one"},
		{[]string{"check", "--prefill-cmd", "vllm serve a", "--decode-cmd", "vllm serve a", "--mover", "x"}, "none of Engine"},
		{[]string{"check", "--prefill-cmd", "vllm serve a", "--decode-cmd", "@", "--mover", "Agent"}, "names no file"},
		{[]string{"plan"}, "filename"},
		{[]string{"plan", "-f", "testdata/manifests/refused.yaml", "--tokens", "0"}, "0 tokens"},
		{[]string{"plan", "-f", "testdata/manifests/r1.yaml", "--kv-memory", "much"}, "no size"},
		{[]string{"plan", "-f", "testdata/manifests/r1.yaml", "--kv-memory", "1Gi", "--blocks", "5"}, "not both"},
		{[]string{"bogus"}, "unknown command"},
		{[]string{"advise", "-f", "testdata/seed.yaml", "--load", "in=1,out=1,concurrency=1"}, "not known: give --kv-memory"},
		{[]string{"advise", "-f", "testdata/seed.yaml", "--load", "in=x"}, "none of in=N"},
		{[]string{"advise", "-f", "testdata/seed.yaml", "--load", "out=1"}, "needs in and concurrency"},
		{[]string{"advise", "-f", "testdata/seed.yaml", "--load", "in=1,concurrency=1", "--gpus", "8"}, "not like 2x4"},
		{[]string{"geometry"}, "config"},
		{[]string{"geometry", "--model", "nobody/nothing"}, "give its config.json"},
		{[]string{"geometry", "--config", "testdata/unknown.json"}, "set model.geometry to {kind: "},
		{[]string{"geometry", "--config", "testdata/r1.sh"}, "JSON object"},
		{[]string{"rules", "dcp-versions"}, "dcp-version"},
		{[]string{"import", "--prefill-cmd", "vllm serve a"}, "decode-cmd"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			got := run(t, "", c.args...)
			if got.code != 2 || got.err == nil || !strings.Contains(got.err.Error(), c.want) || Silent(got.err) {
				t.Errorf("exit status %d: %v, want %q", got.code, got.err, c.want)
			}
		})
	}
}

// TestBeyondSchema holds that nothing is computed with numbers beyond all limits.
func TestBeyondSchema(t *testing.T) {
	text, err := os.ReadFile("testdata/manifests/r1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	huge := strings.Replace(string(text), "{tp: 4, dcp", "{tp: 2147483647, dcp", 1)
	for _, args := range [][]string{
		{"check", "-f", "-"},
		{"plan", "-f", "-"},
		{"advise", "-f", "-", "--load", "in=1,out=1,concurrency=1", "--blocks", "9"},
	} {
		if got := run(t, huge, args...); got.code != 1 || !strings.Contains(got.out, "2147483647 is above 1024") {
			t.Errorf("%v: exit status %d, %v: %s", args, got.code, got.err, got.out)
		}
	}
}

func TestStandardInput(t *testing.T) {
	text, err := os.ReadFile("testdata/manifests/r1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, "---\nkind: X\n"+string(text), "check", "-f", "-"); got.code != 0 || !strings.Contains(got.out, "stdin:4") {
		t.Errorf("%d: %s", got.code, got.out)
	}
}
