package imagetar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// source writes a file with the times and mode of the moment and returns its path.
func source(t *testing.T, name string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("content of "+name), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func archive(t *testing.T, image Image) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := Write(out, image); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type entry struct {
	header *tar.Header
	data   []byte
}

func entries(t *testing.T, b []byte) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = entry{h, data}
	}
}

func TestWriteIsReproducible(t *testing.T) {
	build := func(mode os.FileMode) []byte {
		file := source(t, "app", mode)
		old := time.Now().Add(-time.Duration(mode) * time.Hour)
		if err := os.Chtimes(file, old, old); err != nil {
			t.Fatal(err)
		}
		return archive(t, Image{Name: "localhost/app:dev", Files: []string{file + ":/bin/app"}})
	}
	if !bytes.Equal(build(0o755), build(0o700)) {
		t.Error("times, folder or umask of the source change the image")
	}
}

func TestWriteDescribesTheImage(t *testing.T) {
	app, text := source(t, "app", 0o755), source(t, "notes.txt", 0o600)
	all := entries(t, archive(t, Image{
		Name: "localhost/app:dev", Files: []string{app + ":/usr/bin/app", text}, User: "65532", Env: []string{"A=b"},
	}))
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(all["manifest.json"].data, &manifest); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(manifest[0].RepoTags, []string{"localhost/app:dev"}) || len(manifest[0].Layers) != 1 {
		t.Errorf("unexpected manifest %+v", manifest)
	}
	var config struct {
		Config struct {
			Entrypoint, Env []string
			User            string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(all[manifest[0].Config].data, &config); err != nil {
		t.Fatal(err)
	}
	if c := config.Config; !slices.Equal(c.Entrypoint, []string{"/usr/bin/app"}) || c.User != "65532" || !slices.Contains(c.Env, "A=b") {
		t.Errorf("unexpected configuration %+v", c)
	}
	layer := all[manifest[0].Layers[0]].data
	sum := sha256.Sum256(layer)
	if want := []string{"sha256:" + hex.EncodeToString(sum[:])}; !slices.Equal(config.Rootfs.DiffIDs, want) {
		t.Errorf("diff_ids are %v, want %v", config.Rootfs.DiffIDs, want)
	}
	files := entries(t, layer)
	for name, mode := range map[string]int64{"tmp/": 0o1777, "usr/": 0o755, "usr/bin/": 0o755, "usr/bin/app": 0o755, "notes.txt": 0o644} {
		if f, ok := files[name]; !ok || f.header.Mode != mode {
			t.Errorf("the layer has %s with mode %v, want %o", name, f.header, mode)
		}
	}
}

func TestWriteOnTopOfABase(t *testing.T) {
	base := source(t, "base.tar", 0o644)
	all := entries(t, archive(t, Image{Name: "localhost/app:dev", Base: base, Entrypoint: "/bin/sh"}))
	if got := string(all["layer0.tar"].data); got != "content of base.tar" {
		t.Errorf("the first layer is %q", got)
	}
	if _, ok := all["layer1.tar"]; !ok {
		t.Error("there is no layer of files")
	}
}

func TestWriteFailsWithoutATrace(t *testing.T) {
	dir := t.TempDir()
	for name, image := range map[string]Image{
		"no tag":       {Name: "localhost/app", Files: []string{"x"}},
		"no registry":  {Name: "app:dev", Files: []string{"x"}},
		"no files":     {Name: "localhost/app:dev"},
		"missing file": {Name: "localhost/app:dev", Files: []string{filepath.Join(dir, "missing")}},
		"folder":       {Name: "localhost/app:dev", Files: []string{dir}},
		"missing base": {Name: "localhost/app:dev", Base: filepath.Join(dir, "missing")},
	} {
		if err := Write(filepath.Join(dir, "out.tar"), image); err == nil {
			t.Errorf("%s: no error", name)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error %q is no sentence", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, error %v", left, err)
	}
}

func TestSplitFile(t *testing.T) {
	for arg, want := range map[string][2]string{
		"bin/app":            {"bin/app", "/app"},
		"bin/app:/usr/b/app": {"bin/app", "/usr/b/app"},
		"a:b":                {"a:b", "/a:b"},
		"app:/x/../y":        {"app", "/y"},
	} {
		if s, d := splitFile(arg); s != want[0] || d != want[1] {
			t.Errorf("%s: got %s and %s, want %v", arg, s, d, want)
		}
	}
}
