package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// hierarchy is a mounted cgroup file system.
type hierarchy struct {
	dir     string
	unified bool // cgroup v2
}

// hierarchies lists the cgroup file systems of /proc/self/mountinfo.
func hierarchies() ([]hierarchy, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(b)), nil
}

func parseHierarchies(mountinfo string) []hierarchy {
	const mountPoint = 4
	var all []hierarchy
	for line := range strings.Lines(mountinfo) {
		mount, fsType, _ := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		if len(f) <= mountPoint {
			continue
		}
		switch {
		case strings.HasPrefix(fsType, "cgroup "):
			all = append(all, hierarchy{dir: f[mountPoint]})
		case strings.HasPrefix(fsType, "cgroup2 "):
			all = append(all, hierarchy{dir: f[mountPoint], unified: true})
		}
	}
	return all
}

// MakeCgroups makes the cgroup, such as /a/b, in every hierarchy.
func MakeCgroups(cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("no cgroup file system is mounted: mount one at /sys/fs/cgroup")
	}
	for _, h := range all {
		if err := h.mkdir(cgroup); err != nil {
			return fmt.Errorf("cannot make the cgroup %s in %s: %w", cgroup, h.dir, err)
		}
	}
	return nil
}

// mkdir makes each level of cgroup. In v2 each parent hands its controllers down, in
// v1 a cpuset is of no use before it has its parent's CPUs and memory nodes.
func (h hierarchy) mkdir(cgroup string) error {
	parent := h.dir
	for part := range strings.SplitSeq(strings.Trim(cgroup, "/"), "/") {
		dir := filepath.Join(parent, part)
		if h.unified {
			if err := handDown(parent); err != nil {
				return err
			}
		}
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if h.unified {
				break
			}
			b, err := os.ReadFile(filepath.Join(parent, name))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), b, 0)); err != nil {
				return err
			}
		}
		parent = dir
	}
	return nil
}

// handDown enables all controllers of a v2 cgroup for its children.
func handDown(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("cannot enable the controller %s: %w", c, err)
		}
	}
	return nil
}

// RemoveCgroups removes the cgroup and all below it from every hierarchy.
func RemoveCgroups(cgroup string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(h.dir, cgroup), func(path string, d fs.DirEntry, walkErr error) error {
			if walkErr == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // one that is gone meanwhile is no error
		})
		slices.Reverse(dirs) // children come after their parents
		for _, dir := range dirs {
			err = errors.Join(err, rmdir(dir))
		}
	}
	return err
}

// rmdir removes a cgroup; one whose processes have just been killed is busy for a while.
func rmdir(dir string) error {
	for try := 0; ; try++ {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if !errors.Is(err, syscall.EBUSY) || try == 100 {
			return fmt.Errorf("cannot remove the cgroup %s: %w", dir, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
