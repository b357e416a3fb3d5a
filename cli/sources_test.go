package cli

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, name string) {
	t.Helper()
	if err := os.Symlink(to, name); err != nil {
		t.Skip("no links:", err)
	}
}

func poolText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("testdata/manifests/r1.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func reportOf(t *testing.T, got result) Report {
	t.Helper()
	var r Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil {
		t.Fatalf("%v: %v: %s", err, got.err, got.out)
	}
	return r
}

// TestLinks holds that links to files are read as files, such as those that a ConfigMap
// is mounted as, and that a folder may be a link.
func TestLinks(t *testing.T) {
	pool := poolText(t)
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	write(t, filepath.Join(mount, "..2026_11_29", "r1.yaml"), pool)
	link(t, "..2026_11_29", filepath.Join(mount, "..data"))
	link(t, filepath.Join("..data", "r1.yaml"), filepath.Join(mount, "r1.yaml"))
	link(t, "mount", filepath.Join(dir, "link"))
	for _, folder := range []string{mount, filepath.Join(dir, "link"), filepath.Join(dir, "link") + "/"} {
		r := reportOf(t, run(t, "", "check", "-f", folder, "-o", "json"))
		if len(r.Pools) != 1 || len(r.Errors) > 0 {
			t.Errorf("%s: %d pools, %v", folder, len(r.Pools), r.Errors)
			continue
		}
		if want := filepath.Join(folder, "r1.yaml"); r.Pools[0].Place.File != want {
			t.Errorf("%s is told as %s", want, r.Pools[0].Place.File)
		}
	}
	other := filepath.Join(dir, "other")
	write(t, filepath.Join(other, "r1.yaml"), pool)
	link(t, mount, filepath.Join(other, "folder.yaml"))
	link(t, "nothing", filepath.Join(other, "dead.yaml"))
	link(t, "loop.yaml", filepath.Join(other, "loop.yaml"))
	link(t, "..", filepath.Join(other, "up"))
	got := run(t, "", "check", "-f", other, "-o", "json")
	if r := reportOf(t, got); len(r.Pools) != 1 || len(r.Errors) != 2 || got.code != 2 {
		t.Errorf("exit status %d, %d pools, %v", got.code, len(r.Pools), r.Errors)
	}
}

// TestOneUnreadableFile holds that the others have their verdict.
func TestOneUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), poolText(t))
	missing := filepath.Join(dir, "missing.yaml")
	link(t, "nothing", missing)
	got := run(t, "", "check", "-f", dir, "-o", "json")
	r := reportOf(t, got)
	if got.code != 2 || len(r.Pools) != 1 || len(r.Errors) != 1 || r.Errors[0].Place.File != missing || !strings.Contains(r.Errors[0].Text, "no such file") {
		t.Errorf("exit status %d, %d pools, %v", got.code, len(r.Pools), r.Errors)
	}
	if got := run(t, "", "plan", "-f", dir); got.code != 2 || got.err == nil || strings.Count(got.err.Error(), missing) != 1 {
		t.Errorf("%v", got.err)
	}
}

// TestTotal holds that a folder of large files costs no more than one does, and ends.
func TestTotal(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), poolText(t))
	for _, name := range []string{"b", "c", "d", "e", "f", "g"} {
		file := filepath.Join(dir, name+".yaml")
		write(t, file, "")
		if err := os.Truncate(file, maxFile); err != nil {
			t.Fatal(err)
		}
	}
	got := run(t, "", "check", "-f", dir, "-o", "json")
	r := reportOf(t, got)
	if got.code != 2 || len(r.Pools) != 1 || len(r.Errors) != 2 {
		t.Fatalf("exit status %d, %d pools, %v", got.code, len(r.Pools), r.Errors)
	}
	if last := r.Errors[1]; filepath.Base(last.Place.File) != "f.yaml" || !strings.Contains(last.Text, "not read") {
		t.Errorf("%v", last)
	}
}

// TestURIs holds that a file's name of any kind is a reference to it.
func TestURIs(t *testing.T) {
	for _, name := range []string{"a b%20#?.yaml", "c:d.yaml", "\u00e4.yaml", "plain.yaml"} {
		t.Chdir(t.TempDir())
		write(t, name, "a: [\n")
		got := run(t, "", "check", "-f", name, "-o", "sarif")
		var log sarifLog
		if err := json.Unmarshal([]byte(got.out), &log); err != nil || len(log.Runs[0].Results) != 1 {
			t.Fatalf("%s: %v: %s", name, err, got.out)
		}
		text := log.Runs[0].Results[0].Locations[0].Physical.Artifact.URI
		uri, err := url.Parse(text)
		if err != nil || uri.Scheme != "" || uri.Fragment != "" || uri.RawQuery != "" || filepath.Clean(uri.Path) != name || strings.ContainsAny(text, " \u00e4") {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}

// TestNodesAreBounded holds what a file of nodes may cost.
func TestNodesAreBounded(t *testing.T) {
	pool := poolText(t)
	node := `{"kind":"Node","metadata":{"name":"n"}}`
	for name, c := range map[string]struct{ text, want string }{
		"lists of lists": {strings.Repeat(`{"kind":"List","items":[`, 1000) + `{"kind":"Node","metadata":{"name":"` + strings.Repeat("n", 1<<20) + `"}}` + strings.Repeat("]}", 1000), "deep"},
		"documents":      {strings.Repeat("kind: Node\nmetadata: {name: a}\n---\n", 30_000), "more than 10,000 documents"},
		"of JSON":        {strings.Repeat(node, 30_000), "more than 10,000 documents"},
		"nodes":          {`{"kind":"NodeList","items":[` + strings.TrimSuffix(strings.Repeat("{},", maxNodes+1), ",") + `]}`, "more than 50,000 nodes"},
		"a list":         {`{"kind":"List","items":[{"kind":"NodeList","items":[{}]}]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "nodes")
			write(t, file, c.text)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := run(t, pool, "check", "-f", "-", "--nodes", file)
			runtime.ReadMemStats(&after)
			if (got.err == nil) != (c.want == "") || got.err != nil && !strings.Contains(got.err.Error(), c.want) {
				t.Errorf("%v, want %q", got.err, c.want)
			}
			if bytes := after.TotalAlloc - before.TotalAlloc; bytes > 500<<20 {
				t.Errorf("%d bytes are allocated for %d", bytes, len(c.text))
			}
		})
	}
}

// TestClusterHasADeadline holds that each question to the cluster has an end, and one
// that all share.
func TestClusterHasADeadline(t *testing.T) {
	var ends []time.Time
	o := Options{Kubectl: func(ctx context.Context, args ...string) ([]byte, error) {
		end, ok := ctx.Deadline()
		if !ok {
			t.Errorf("%v has none", args)
		}
		ends = append(ends, end)
		return []byte(`{"kind":"NodeList","items":[]}`), nil
	}}
	_ = runWith(t, o, poolText(t), "check", "-f", "-", "--cluster")
	if len(ends) != 3 || !ends[0].Equal(ends[2]) || time.Until(ends[0]) > clusterTime {
		t.Errorf("%v", ends)
	}
}
