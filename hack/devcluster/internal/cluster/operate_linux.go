package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
)

// StopNode ends node n at once with all that runs on it, as a power cut does.
func (c *Cluster) StopNode(n int) error {
	pid, running, err := c.nodePID(n)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.stoppedMark(n), nil, 0o644); err != nil {
		return err
	}
	if !running {
		return nil
	}
	p, ok := host.NewProcess(pid)
	if !ok {
		return nil
	}
	return p.Kill(30 * time.Second)
}

// StartNode starts a stopped node again and waits until it is ready with its GPUs.
func (c *Cluster) StartNode(ctx context.Context, n int) error {
	start := time.Now().Truncate(time.Second) // heartbeats have no fractions
	if err := os.Remove(c.stoppedMark(n)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("node %s is not stopped", nodeName(n))
	} else if err != nil {
		return err
	}
	a, err := c.newAPI()
	if err != nil {
		return err
	}
	unhealthy, err := c.unhealthy(n)
	if err != nil {
		return err
	}
	gpus := strconv.Itoa(c.GPUs - len(unhealthy))
	for deadline := time.Now().Add(stepTimeout); ; {
		node, err := a.node(ctx, nodeName(n))
		if err == nil && node.readySince(start) && node.allocatableGPUs() == gpus {
			return nil
		}
		if time.Now().After(deadline) {
			logs := []string{"supervisor", nodeName(n), nodeName(n) + "-kubelet"}
			return fmt.Errorf("node %s is not ready after %s%s", nodeName(n), stepTimeout, c.logTails(logs))
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// unhealthyFile names the unhealthy GPUs of a node to its device plugin.
func (c *Cluster) unhealthyFile(n int) string {
	return c.path(nodeName(n), "kubelet", "device-plugins", "simulated-amd-gpu", "unhealthy")
}

// unhealthy returns the unhealthy GPUs of node n.
func (c *Cluster) unhealthy(n int) ([]string, error) {
	b, err := os.ReadFile(c.unhealthyFile(n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(b)), err
}

// SetHealth makes GPUs of node n unhealthy or healthy, for no args all of them
// healthy, and returns those that are unhealthy then. The kubelet hears of it within
// a second.
func (c *Cluster) SetHealth(n int, args []string, healthy bool) ([]string, error) {
	ids, err := parseGPUs(args, c.GPUs)
	if err != nil {
		return nil, err
	}
	file := c.unhealthyFile(n)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	old, err := c.unhealthy(n)
	if err != nil {
		return nil, err
	}
	unhealthy := changeHealth(old, ids, healthy)
	return unhealthy, host.WriteFile(file, []byte(strings.Join(unhealthy, " ")))
}

// Load imports image archives into every node, on all nodes at once.
func (c *Cluster) Load(ctx context.Context, archives []string) error {
	for _, archive := range archives {
		f, err := os.Open(archive)
		if err != nil {
			return fmt.Errorf("cannot read the image: %w", err)
		}
		_ = f.Close()
	}
	results := make(chan error)
	for n := 1; n <= c.Nodes; n++ {
		go func() { results <- c.loadNode(ctx, n, archives) }()
	}
	var err error
	for range c.Nodes {
		err = errors.Join(err, <-results)
	}
	return err
}

func (c *Cluster) loadNode(ctx context.Context, n int, archives []string) error {
	pid, running, err := c.nodePID(n)
	if err != nil {
		return err
	}
	if !running {
		return fmt.Errorf("node %s is stopped: run start-node %d and load again", nodeName(n), n)
	}
	for _, archive := range archives {
		f, err := os.Open(archive)
		if err != nil {
			return err
		}
		ctr := []string{filepath.Join(c.Bin, "ctr"), "-n", "k8s.io", "images", "import", "-"}
		cmd := exec.CommandContext(ctx, "nsenter", append(nsenterArgs(pid), ctr...)...)
		cmd.Stdin = f
		out, err := cmd.CombinedOutput()
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("cannot load %s into %s: %w: %s", archive, nodeName(n), err, host.Tail(string(out), 3))
		}
	}
	return nil
}

func nsenterArgs(pid int) []string {
	return []string{"-t", strconv.Itoa(pid), "-m", "-n", "-p", "-u", "-i", "--"}
}

// Enter replaces this process by a command in the namespaces of a node, given as n1
// or 1, or of the control plane, given as "cluster". It only returns on failure.
func (c *Cluster) Enter(where string, argv []string) error {
	super, err := c.supervisor()
	if err != nil {
		return err
	}
	pid := super.PID
	if where != "cluster" {
		n, err := c.NodeNumber(where)
		if err != nil {
			return err
		}
		running := false
		if pid, running, err = c.nodePID(n); err != nil {
			return err
		}
		if !running {
			return fmt.Errorf("node %s is stopped: run start-node %d first", nodeName(n), n)
		}
	}
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	env := append(os.Environ(), "PATH="+c.Bin+":"+host.Path, "KUBECONFIG="+c.insideKubeconfig("admin"))
	return syscall.Exec(path, append(append([]string{"nsenter"}, nsenterArgs(pid)...), argv...), dedupe(env))
}

// Kubectl replaces this process by kubectl with the cluster's kubeconfig. It only
// returns on failure.
func (c *Cluster) Kubectl(args []string) error {
	env := dedupe(append(os.Environ(), "KUBECONFIG="+c.Kubeconfig()))
	return syscall.Exec(filepath.Join(c.Bin, "kubectl"), append([]string{"kubectl"}, args...), env)
}

// dedupe keeps the last value of each variable.
func dedupe(env []string) []string {
	last := map[string]int{}
	for i, kv := range env {
		k, _, _ := strings.Cut(kv, "=")
		last[k] = i
	}
	var out []string
	for i, kv := range env {
		if k, _, _ := strings.Cut(kv, "="); last[k] == i {
			out = append(out, kv)
		}
	}
	return out
}

// Status writes what the cluster is and how its nodes are.
func (c *Cluster) Status(ctx context.Context, out io.Writer) error {
	a, err := c.newAPI()
	if err != nil {
		return err
	}
	nodes, err := a.nodes(ctx)
	if err != nil {
		return fmt.Errorf("the cluster %s runs, but its API server does not answer: %w%s", c.name, err, c.logTails([]string{"kube-apiserver"}))
	}
	_, _ = fmt.Fprintf(out, "cluster %s is running, API server https://127.0.0.1:%d\nkubeconfig %s\naudit log  %s\nlogs       %s\n",
		c.name, c.Port, c.Kubeconfig(), c.path("audit.log"), c.path("logs"))
	for _, n := range nodes {
		state := "not ready"
		if n.ready() {
			state = "ready"
		}
		number, err := c.NodeNumber(n.Metadata.Name)
		if err == nil {
			if _, running, err := c.nodePID(number); err == nil && !running {
				state = "stopped"
			}
		}
		_, _ = fmt.Fprintf(out, "node %-4s %-9s %s of %d GPUs allocatable\n", n.Metadata.Name, state, n.allocatableGPUs(), c.GPUs)
	}
	return nil
}
