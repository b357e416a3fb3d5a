package builder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// writeSources makes a small copy of what the key is made of.
func writeSources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"kube/go.mod", "kube/go.sum", "kube/cmd/kube/main.go", "node/go.mod", "node/go.sum",
		"cmd/pause/main.go", "internal/builder/targets_linux.go", "internal/imagetar/imagetar.go",
	} {
		write(t, filepath.Join(dir, name), name)
	}
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func key(t *testing.T, dir, version, arch string) string {
	t.Helper()
	k, err := cacheKey(dir, version, arch)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCacheKeyFollowsWhatGoesIntoTheBinaries(t *testing.T) {
	dir := writeSources(t)
	before := key(t, dir, "go1.26.0", "amd64")
	if !entryName.MatchString(before) {
		t.Errorf("the key %q is no name of an entry", before)
	}
	if got := key(t, writeSources(t), "go1.26.0", "amd64"); got != before {
		t.Errorf("another clone has the key %s, want %s", got, before)
	}
	for name, change := range map[string]func() string{
		"Go's version": func() string { return key(t, dir, "go1.26.1", "amd64") },
		"architecture": func() string { return key(t, dir, "go1.26.0", "arm64") },
		"go.sum": func() string {
			write(t, filepath.Join(dir, "node/go.sum"), "other")
			return key(t, dir, "go1.26.0", "amd64")
		},
		"a new file": func() string {
			write(t, filepath.Join(dir, "kube/cmd/kube/more.go"), "")
			return key(t, dir, "go1.26.0", "amd64")
		},
	} {
		if change() == before {
			t.Errorf("%s does not change the key", name)
		}
	}
}

func TestCacheKeyIgnoresTestsAndNotes(t *testing.T) {
	dir := writeSources(t)
	before := key(t, dir, "go1.26.0", "amd64")
	write(t, filepath.Join(dir, "kube/cmd/kube/main_test.go"), "package main")
	write(t, filepath.Join(dir, "kube/README.md"), "words")
	if key(t, dir, "go1.26.0", "amd64") != before {
		t.Error("a test or a text changes the key")
	}
}

func TestCacheKeyOfThisClone(t *testing.T) {
	dir, err := sourceDir()
	if err != nil {
		t.Fatal(err)
	}
	key(t, dir, "go1.26.0", "amd64")
}

func TestStaleEntriesKeepsTheNewest(t *testing.T) {
	cache := t.TempDir()
	now := time.Now()
	for i, name := range []string{"0000000000000000", "1111111111111111", "2222222222222222", "3333333333333333", "state"} {
		dir := filepath.Join(cache, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		used := now.Add(-time.Duration(i) * time.Hour)
		if err := os.Chtimes(dir, used, used); err != nil {
			t.Fatal(err)
		}
	}
	got, err := staleEntries(cache, 2)
	if want := []string{"2222222222222222", "3333333333333333"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v and error %v, want %v", got, err, want)
	}
}

func TestUsedEntriesFollowsClusters(t *testing.T) {
	cache := t.TempDir()
	if err := os.MkdirAll(filepath.Join(cache, "state", "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(cache, "1111111111111111"), filepath.Join(cache, "state", "dev", "build")); err != nil {
		t.Fatal(err)
	}
	got, err := usedEntries(cache)
	if want := []string{"1111111111111111"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v and error %v, want %v", got, err, want)
	}
}

func TestFollowCountsAndKeepsTheEndOfTheOutput(t *testing.T) {
	var progress strings.Builder
	b := &Builder{progress: &progress}
	output := "go: downloading example.com/a v1.0.0\nexample.com/a/b\n# example.com/a/b\na.go:1:2: undefined: x\n"
	got := b.follow(strings.NewReader(output), "x", "1")
	if want := []string{"# example.com/a/b", "a.go:1:2: undefined: x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFreeSpaceOfAFolderThatIsMissing(t *testing.T) {
	free, err := FreeSpace(filepath.Join(t.TempDir(), "a", "b"))
	if err != nil || free <= 0 {
		t.Errorf("got %d and error %v", free, err)
	}
}

func TestAssetsComeFromTheFirstTarget(t *testing.T) {
	if !slices.Equal(targets[0].binaries, []string{"kube"}) {
		t.Errorf("the first target makes %v: envtest would wait for it", targets[0].binaries)
	}
}
