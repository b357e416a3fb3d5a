// Package cluster runs a Kubernetes cluster of several nodes on one machine.
//
// A cluster is one process, the supervisor, that is the first of its own mount,
// network, PID, UTS and IPC namespaces. It runs the control plane and, for each
// node, a child with such namespaces of its own that runs containerd, the kubelet
// and kube-proxy. So the end of the supervisor ends every process, mount and
// network interface of the cluster, and only cgroups and files are left to remove.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
)

// The limits of what a cluster can be.
const (
	MaxNodes = 16
	MaxGPUs  = 64
	maxName  = 20
)

// Config is what a cluster was started with.
type Config struct {
	Nodes  int      `json:"nodes"`
	GPUs   int      `json:"gpus"` // on each node
	Port   int      `json:"port"` // of 127.0.0.1 for the API server
	Bin    string   `json:"bin"`
	Images []string `json:"images"` // archives for each node, the sandbox's first
}

// Cluster is a cluster by its name, running or not.
type Cluster struct {
	Config
	name string
	root string // the cache folder: binaries and all clusters' states
	dir  string // the state of this one
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

// CheckName says what is wrong with a cluster's name.
func CheckName(name string) error {
	if len(name) > maxName || !validName.MatchString(name) {
		return fmt.Errorf("%q is no name for a cluster: use up to %d of a-z, 0-9 and -", name, maxName)
	}
	return nil
}

// Named is the cluster of that name, whose state is in the cache folder root.
func Named(root, name string) *Cluster {
	return &Cluster{name: name, root: root, dir: filepath.Join(root, "state", name)}
}

// at is the cluster whose state is in dir, with its record read.
func at(dir string) (*Cluster, error) {
	c := Named(filepath.Dir(filepath.Dir(dir)), filepath.Base(dir))
	return c, c.load()
}

// Running returns the cluster with its record read, or an error that says what to do
// when it does not run.
func Running(root, name string) (*Cluster, error) {
	c := Named(root, name)
	if !c.running() {
		return nil, fmt.Errorf("the cluster %s is not running: start it by up --name %s", name, name)
	}
	return c, c.load()
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

// Kubeconfig is the administrator's kubeconfig for use on this machine.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

func (c *Cluster) cgroup() string { return "/pdpool-devcluster-" + c.name }

func (c *Cluster) load() error {
	b, err := os.ReadFile(c.path("config.json"))
	if err == nil {
		err = json.Unmarshal(b, &c.Config)
	}
	if err != nil {
		return fmt.Errorf("cannot read the record of the cluster %s: %w: run down --name %s", c.name, err, c.name)
	}
	return nil
}

func (c *Cluster) save() error {
	b, err := json.MarshalIndent(c.Config, "", "  ")
	if err != nil {
		return err
	}
	return host.WriteFile(c.path("config.json"), b)
}

// supervisor is the recorded process of the cluster, which may have ended.
func (c *Cluster) supervisor() (host.Process, error) {
	b, err := os.ReadFile(c.path("process"))
	if err != nil {
		return host.Process{}, err
	}
	return host.ParseProcess(string(b))
}

func (c *Cluster) running() bool {
	p, err := c.supervisor()
	return err == nil && p.Running()
}

func nodeName(n int) string { return "n" + strconv.Itoa(n) }

// NodeNumber reads a node given as 1 or n1.
func (c *Cluster) NodeNumber(arg string) (int, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(arg, "n"))
	if err != nil || n < 1 || n > c.Nodes {
		if c.Nodes == 0 {
			return 0, fmt.Errorf("there is no node %s: the cluster has none", arg)
		}
		return 0, fmt.Errorf("there is no node %s: the cluster has n1 to n%d", arg, c.Nodes)
	}
	return n, nil
}

// nodePID is the first process of a node; ok is false when the node is stopped.
func (c *Cluster) nodePID(n int) (pid int, ok bool, err error) {
	super, err := c.supervisor()
	if err != nil {
		return 0, false, err
	}
	children, err := host.Children(super.PID)
	if err != nil {
		return 0, false, err
	}
	for _, child := range children {
		args := host.Args(child)
		if len(args) == 4 && args[1] == "node" && args[3] == strconv.Itoa(n) {
			return child, true, nil
		}
	}
	return 0, false, nil
}

// lock waits until no other process starts or stops a cluster, or ctx ends.
func lock(ctx context.Context, root string, printf func(string, ...any)) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Join(root, "state"), 0o755); err != nil {
		return nil, fmt.Errorf("cannot make the state folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(root, "state", "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if !waited {
			printf("waiting for another up or down to end")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(errors.New("interrupted while another up or down runs"), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// others lists the other clusters of which there is a state.
func (c *Cluster) others() ([]string, error) {
	all, err := filepath.Glob(filepath.Join(c.root, "state", "*", "config.json"))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(file string) bool { return filepath.Dir(file) == c.dir }), nil
}

// Down ends the cluster and removes all that is left of it; found says whether there
// was something. It needs no record, so it also works after a crash.
func (c *Cluster) Down(ctx context.Context, printf func(string, ...any)) (found bool, err error) {
	unlock, err := lock(ctx, c.root, printf)
	if err != nil {
		return false, err
	}
	defer unlock()
	return c.down()
}

func (c *Cluster) down() (found bool, err error) {
	if _, err := os.Stat(c.dir); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if p, err := c.supervisor(); err == nil {
		if err := p.Kill(time.Minute); err != nil {
			return true, err
		}
	}
	if err := host.RemoveCgroups(c.cgroup()); err != nil {
		return true, err
	}
	if others, err := c.others(); err != nil {
		return true, err
	} else if len(others) == 0 {
		if err := host.RestoreSysctls(c.savedSysctls()); err != nil {
			return true, err
		}
	}
	return true, os.RemoveAll(c.dir)
}

// savedSysctls holds the kernel settings from before the first of all clusters.
func (c *Cluster) savedSysctls() string { return filepath.Join(c.root, "state", "sysctls.json") }
