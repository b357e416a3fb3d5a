package builder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

const (
	gib = 1 << 30
	// coldSpace is what Go's module and build caches grow to, minSpace what a build
	// needs whatever they hold already.
	coldSpace = 12 * gib
	minSpace  = 2 * gib
	// keepEntries is the number of entries that stay in the cache.
	keepEntries = 2
)

var entryName = regexp.MustCompile(`^[0-9a-f]{16}$`)

// checkSpace fails when the build may not fit on the disk of Go's caches.
func (b *Builder) checkSpace(ctx context.Context) error {
	dirs, err := goEnv(ctx, b.source, "GOCACHE", "GOMODCACHE")
	if err != nil {
		return err
	}
	free, err := FreeSpace(dirs[0])
	if err != nil || free >= coldSpace {
		return err
	}
	need := int64(coldSpace)
	for _, dir := range dirs {
		need -= size(dir)
	}
	if need = max(need, minSpace); free < need {
		return fmt.Errorf("the build needs about %d GiB for Go's caches and %s has %.1f GiB free: free some, or set GOCACHE and GOMODCACHE to folders on a larger disk",
			(need+gib-1)/gib, dirs[0], float64(free)/gib)
	}
	return nil
}

// FreeSpace is the space that is left on the disk of dir, which need not exist.
func FreeSpace(dir string) (int64, error) {
	for {
		var s syscall.Statfs_t
		err := syscall.Statfs(dir, &s)
		if err == nil {
			return int64(s.Bavail) * s.Bsize, nil
		}
		if parent := filepath.Dir(dir); errors.Is(err, syscall.ENOENT) && parent != dir {
			dir = parent
			continue
		}
		return 0, fmt.Errorf("cannot get the free space of %s: %w", dir, err)
	}
}

// size is the sum of all files below dir.
func size(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // what cannot be read does not count
		}
		if info, err := d.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// touch marks the entry as used now.
func (b *Builder) touch() error {
	now := time.Now()
	return os.Chtimes(b.entry, now, now)
}

// prune removes the entries that were used longest ago, but none that a cluster of
// the folder state still names in its record, and none that this process uses.
func (b *Builder) prune() error {
	old, err := staleEntries(b.cache, keepEntries)
	if err != nil {
		return err
	}
	used, err := usedEntries(b.cache)
	if err != nil {
		return err
	}
	for _, name := range old {
		if name == filepath.Base(b.entry) || slices.Contains(used, name) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(b.cache, name)); err != nil {
			return err
		}
		b.printf("removed the old binaries %s", name)
	}
	return nil
}

// staleEntries returns the names of all entries of cache but the keep newest.
func staleEntries(cache string, keep int) ([]string, error) {
	all, err := os.ReadDir(cache)
	if err != nil {
		return nil, err
	}
	type entry struct {
		name string
		used time.Time
	}
	var entries []entry
	for _, d := range all {
		info, err := d.Info()
		if err != nil || !d.IsDir() || !entryName.MatchString(d.Name()) {
			continue
		}
		entries = append(entries, entry{d.Name(), info.ModTime()})
	}
	slices.SortFunc(entries, func(a, b entry) int { return b.used.Compare(a.used) })
	var stale []string
	for n, e := range entries {
		if n >= keep {
			stale = append(stale, e.name)
		}
	}
	return stale, nil
}

// usedEntries returns the entries that the clusters' records name: each cluster has
// a link to its entry, state/NAME/build.
func usedEntries(cache string) ([]string, error) {
	links, err := filepath.Glob(filepath.Join(cache, "state", "*", "build"))
	if err != nil {
		return nil, err
	}
	var used []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			used = append(used, filepath.Base(target))
		}
	}
	return used, nil
}
