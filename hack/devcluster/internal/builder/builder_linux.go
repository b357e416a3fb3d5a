// Package builder compiles what a cluster runs into a cache of the user that is
// keyed by the sources: etcd and Kubernetes, containerd, CoreDNS, the simulated
// device plugin, and the images of those that run in pods.
package builder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pdpool/pdpool/hack/devcluster/internal/imagetar"
)

// The images that every node holds from its start.
const (
	PauseImage     = "localhost/devcluster/pause:1"
	CoreDNSImage   = "localhost/devcluster/coredns:1"
	GPUPluginImage = "localhost/devcluster/gpuplugin:1"
)

// Builder builds into one entry of the cache.
type Builder struct {
	source   string // hack/devcluster of the clone
	cache    string // pdpool-devcluster in the user's cache folder
	entry    string // the folder of these sources in it
	progress io.Writer
}

// CacheDir is the folder in which devcluster keeps all that it writes.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder: set HOME or XDG_CACHE_HOME: %w", err)
	}
	return filepath.Join(dir, "pdpool-devcluster"), nil
}

// New finds the sources and the entry of the cache for them. It writes what a
// build does to progress.
func New(ctx context.Context, progress io.Writer) (*Builder, error) {
	source, err := sourceDir()
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	version, err := goEnv(ctx, source, "GOVERSION")
	if err != nil {
		return nil, err
	}
	key, err := cacheKey(source, version[0], runtime.GOARCH)
	if err != nil {
		return nil, fmt.Errorf("cannot read the sources: %w", err)
	}
	return &Builder{source: source, cache: cache, entry: filepath.Join(cache, key), progress: progress}, nil
}

// sourceDir is hack/devcluster: what DEVCLUSTER_SOURCE says, or where this file was
// when it was compiled.
func sourceDir() (string, error) {
	dir := os.Getenv("DEVCLUSTER_SOURCE")
	if dir == "" {
		_, file, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(file), "..", "..")
	}
	if _, err := os.Stat(filepath.Join(dir, "kube", "go.mod")); err != nil {
		return "", fmt.Errorf("%s does not hold the sources: set DEVCLUSTER_SOURCE to hack/devcluster of the clone", dir)
	}
	return filepath.Abs(dir)
}

// Dir is the entry's folder: bin, images and assets are in it.
func (b *Builder) Dir() string { return b.entry }

// Bin is the folder of the binaries.
func (b *Builder) Bin() string { return filepath.Join(b.entry, "bin") }

// Images returns the archives of the images for a node, the sandbox's first.
func (b *Builder) Images() []string {
	var all []string
	for _, i := range images {
		all = append(all, filepath.Join(b.entry, "images", i.binary+".tar"))
	}
	return all
}

var images = []struct{ binary, name string }{
	{"pause", PauseImage},
	{"coredns", CoreDNSImage},
	{"gpuplugin", GPUPluginImage},
}

// assets are the names by which envtest runs the kube binary.
var assets = []string{"etcd", "kube-apiserver", "kubectl"}

// Assets builds what envtest needs and returns its folder. It needs no root.
func (b *Builder) Assets(ctx context.Context) (string, error) {
	if err := b.build(ctx, targets[:1]); err != nil {
		return "", err
	}
	dir := filepath.Join(b.entry, "assets")
	return dir, links(dir, filepath.Join("..", "bin", "kube"), assets...)
}

// Build builds all that a cluster needs.
func (b *Builder) Build(ctx context.Context) error {
	if err := b.build(ctx, targets); err != nil {
		return err
	}
	if err := links(b.Bin(), "kube", "kubectl"); err != nil {
		return err
	}
	for n, out := range b.Images() {
		if exists(out) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		image := imagetar.Image{Name: images[n].name, Files: []string{filepath.Join(b.Bin(), images[n].binary)}}
		if err := imagetar.Write(out, image); err != nil {
			return err
		}
	}
	return nil
}

// build makes the binaries of want that are missing, one build at a time on a machine.
func (b *Builder) build(ctx context.Context, want []target) error {
	if err := os.MkdirAll(b.Bin(), 0o755); err != nil {
		return fmt.Errorf("cannot make the cache folder: %w", err)
	}
	if b.complete(want) {
		return b.touch()
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	checked := false
	for _, t := range want {
		if b.complete([]target{t}) { // another process built it meanwhile
			continue
		}
		if !checked {
			if err := b.checkSpace(ctx); err != nil {
				return err
			}
			checked = true
		}
		if err := b.compile(ctx, t); err != nil {
			return err
		}
	}
	return errors.Join(b.touch(), b.prune())
}

// complete says whether every binary of want is there.
func (b *Builder) complete(want []target) bool {
	for _, t := range want {
		for _, name := range t.binaries {
			if !exists(filepath.Join(b.Bin(), name)) {
				return false
			}
		}
	}
	return true
}

// links makes symbolic links to target in dir.
func links(dir, target string, names ...string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// goEnv asks the go command for its settings.
func goEnv(ctx context.Context, dir string, names ...string) ([]string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, errors.New("the go command is not in PATH: install Go 1.26 or a later version")
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"env"}, names...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go env failed: %w", err)
	}
	values := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(values) != len(names) {
		return nil, fmt.Errorf("go env printed %d lines for %d names", len(values), len(names))
	}
	return values, nil
}
