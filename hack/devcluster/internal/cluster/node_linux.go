package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
	"github.com/pdpool/pdpool/hack/devcluster/internal/reaper"
)

const containerdSocket = "/run/containerd/containerd.sock"

// RunNode is the first process of node n of the cluster with the state folder dir.
// It returns on SIGTERM, which ends everything on the node.
func RunNode(dir string, n int) error {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	c, err := at(dir)
	if err != nil {
		return err
	}
	name := nodeName(n)
	if err := errors.Join(privateMounts(), syscall.Sethostname([]byte(name)), c.mountNode(n)); err != nil {
		return err
	}
	if err := os.Setenv("PATH", c.Bin+":"+host.Path); err != nil {
		return err
	}
	r := reaper.New(c.path("logs"))
	if err := configureInterface(r, name, nodeIP(n)); err != nil {
		return err
	}
	// The cgroups of pods that died with the node would keep the kubelet busy for seconds.
	if err := host.RemoveCgroups(c.nodeCgroup(n)); err != nil {
		return err
	}
	if err := host.MakeCgroups(c.nodeCgroup(n)); err != nil {
		return err
	}
	if err := c.writeNodeFiles(n); err != nil {
		return err
	}
	r.Keep(name+"-containerd", filepath.Join(c.Bin, "containerd"), "--config", nodeFile("containerd.toml"))
	if err := await("containerd", 30*time.Second, func() bool { return answers(containerdSocket) }); err != nil {
		return err
	}
	for _, image := range c.Images {
		if err := r.Run(name, filepath.Join(c.Bin, "ctr"), "-n", "k8s.io", "images", "import", image); err != nil {
			return err
		}
	}
	kube := filepath.Join(c.Bin, "kube")
	r.Keep(name+"-kubelet", kube, "kubelet", "--v=1",
		"--config="+nodeFile("kubelet.yaml"), "--kubeconfig="+c.insideKubeconfig(name),
		"--hostname-override="+name, "--node-ip="+nodeIP(n), "--node-labels="+gpuLabels(c.GPUs))
	r.Keep(name+"-kube-proxy", kube, "kube-proxy", "--config="+nodeFile("kube-proxy.yaml"), "--hostname-override="+name)
	<-terminated
	return nil
}

func (c *Cluster) nodeCgroup(n int) string { return c.cgroup() + "/" + nodeName(n) }

// await tries ok until it holds.
func await(what string, timeout time.Duration, ok func() bool) error {
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("no %s after %s", what, timeout)
		}
	}
	return nil
}

func answers(socket string) bool {
	conn, err := net.Dial("unix", socket)
	return err == nil && conn.Close() == nil
}

// configureInterface waits for eth0, which the supervisor gives, and sets it up.
func configureInterface(r *reaper.Reaper, name, ip string) error {
	err := await("network interface", 10*time.Second, func() bool {
		_, err := net.InterfaceByName("eth0")
		return err == nil
	})
	if err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "addr", "add", ip + "/24", "dev", "eth0"},
		{"ip", "link", "set", "eth0", "up"},
		{"ip", "route", "add", "default", "via", controlPlane},
	} {
		if err := r.Run(name, argv...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// nodeFolders maps the folders that a node has on disk to where it sees them. The
// first is emptied when the node starts, as that of a machine is.
var nodeFolders = [][2]string{
	{"run", "/run"},
	{"kubelet", "/var/lib/kubelet"},
	{"containerd", "/var/lib/containerd"},
	{"pods", "/var/log/pods"},
}

// mountNode gives node n its own file system, so that every daemon can keep its
// default paths, nodes do not meet and nothing gets onto the host: the folders of
// nodeFolders are on disk, what is written to others in /etc, /var, /opt and
// /usr/libexec stays in memory. The cache folder stays what it is on the host,
// wherever it is.
func (c *Cluster) mountNode(n int) error {
	dir := c.path(nodeName(n))
	if err := os.RemoveAll(filepath.Join(dir, nodeFolders[0][0])); err != nil {
		return err
	}
	// What a mount hides can still be bound by an open folder.
	var binds []bind
	defer func() {
		for _, b := range binds {
			_ = b.source.Close()
		}
	}()
	for _, f := range nodeFolders {
		b, err := newBind(filepath.Join(dir, f[0]), f[1])
		if err != nil {
			return err
		}
		binds = append(binds, b)
	}
	b, err := newBind(c.root, c.root)
	if err != nil {
		return err
	}
	binds = append(binds, b)
	if err := coverFolders(filepath.Join(dir, "memory"), "/etc", "/var", "/opt", "/usr/libexec"); err != nil {
		return err
	}
	for _, b := range binds {
		if err := b.mount(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/run/lock", 0o755); err != nil {
		return err
	}
	// The kubelet's mounts only reach containers where they are shared.
	return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

// bind is a bind mount of an open folder.
type bind struct {
	source *os.File
	target string
}

func newBind(source, target string) (bind, error) {
	if err := os.MkdirAll(source, 0o755); err != nil {
		return bind{}, err
	}
	f, err := os.Open(source)
	return bind{f, target}, err
}

func (b bind) mount() error {
	if err := os.MkdirAll(b.target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(fmt.Sprintf("/proc/self/fd/%d", b.source.Fd()), b.target, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot bind %s: %w", b.target, err)
	}
	return nil
}

// coverFolders puts an overlay over each folder that keeps changes in memory.
func coverFolders(memory string, folders ...string) error {
	if err := os.MkdirAll(memory, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", memory, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("cannot mount a tmpfs: %w", err)
	}
	open, err := os.Open(memory) // an overlay may hide the path itself
	if err != nil {
		return err
	}
	defer func() { _ = open.Close() }()
	memory = fmt.Sprintf("/proc/self/fd/%d", open.Fd())
	for _, f := range folders {
		if _, err := os.Stat(f); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		upper, work := memory+f+"/upper", memory+f+"/work"
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		options := strings.Join([]string{"lowerdir=" + f, "upperdir=" + upper, "workdir=" + work}, ",")
		if err := syscall.Mount("overlay", f, "overlay", 0, options); err != nil {
			return fmt.Errorf("cannot put an overlay over %s: %w", f, err)
		}
	}
	return nil
}
