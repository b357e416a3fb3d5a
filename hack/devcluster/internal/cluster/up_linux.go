package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/pdpool/pdpool/hack/devcluster/internal/builder"
	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
)

const (
	baseSpace = 1 << 30   // bytes of disk that a cluster takes
	nodeSpace = 300 << 20 // and each of its nodes
)

// ErrRunning is returned by Up when the cluster runs already as it is wanted.
var ErrRunning = errors.New("the cluster is running already")

// CheckPort fails when something listens on the port already. A start of this cluster
// that was cut off may: Up ends that first.
func (c *Cluster) CheckPort(port int) error {
	if c.running() {
		return nil
	}
	l, err := listen(port)
	if err != nil {
		return err
	}
	return l.Close()
}

func listen(port int) (*net.TCPListener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of 127.0.0.1 is in use: choose another by --port", port)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on port %d of 127.0.0.1: %w", port, err)
	}
	return l.(*net.TCPListener), nil
}

// AnyNumber stands for a number of nodes or GPUs that the caller does not care for.
const AnyNumber = -1

// CheckRunning returns ErrRunning when the cluster runs as it is wanted, and another
// error when it runs with another number of nodes or GPUs.
func (c *Cluster) CheckRunning(want Config) error {
	if !c.running() {
		return nil
	}
	if _, err := os.Stat(c.path("ready")); err != nil {
		return nil // a start that was cut off
	}
	if err := c.load(); err != nil {
		return err
	}
	differs := func(has, want int) bool { return want != AnyNumber && want != has }
	if differs(c.Nodes, want.Nodes) || differs(c.GPUs, want.GPUs) {
		return fmt.Errorf("the cluster %s is running already with %s and %s on each: run down --name %s first to change that",
			c.name, Count(c.Nodes, "node"), Count(c.GPUs, "GPU"), c.name)
	}
	return ErrRunning
}

// Up starts the cluster and waits until its nodes are ready, DNS answers and the GPUs
// can be allocated. It removes what an earlier one of that name left behind, and all
// of this one when it fails or ctx ends.
func (c *Cluster) Up(ctx context.Context, config Config, entry string, printf func(string, ...any)) error {
	unlock, err := lock(ctx, c.root, printf)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.CheckRunning(config); err != nil { // another process may have started it
		return err
	}
	found, err := c.down()
	if err != nil {
		return fmt.Errorf("cannot remove what an earlier cluster left: %w", err)
	}
	if found {
		printf("removed what was left of an earlier cluster %s", c.name)
	}
	if free, err := builder.FreeSpace(c.root); err != nil {
		return err
	} else if need := int64(baseSpace + config.Nodes*nodeSpace); free < need {
		return fmt.Errorf("a cluster of %s needs %.1f GiB and %s has %.1f GiB free: free some", Count(config.Nodes, "node"), float64(need)/(1<<30), c.root, float64(free)/(1<<30))
	}
	c.Config = config
	err = c.start(ctx, entry, printf)
	if err == nil {
		return os.WriteFile(c.path("ready"), nil, 0o644)
	}
	logs := c.keepLogs()
	_, downErr := c.down()
	return errors.Join(fmt.Errorf("%w\nits logs are in %s", err, logs), downErr)
}

// keepLogs moves the logs of a failed start out of the state, which goes, and returns
// their folder.
func (c *Cluster) keepLogs() string {
	kept := filepath.Join(c.root, "failed", c.name)
	_ = os.RemoveAll(kept)
	_ = os.MkdirAll(filepath.Dir(kept), 0o755)
	_ = os.Rename(c.path("logs"), kept)
	return kept
}

func (c *Cluster) start(ctx context.Context, entry string, printf func(string, ...any)) error {
	listener, err := listen(c.Port)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if err := c.prepare(entry); err != nil {
		return err
	}
	ended, err := c.startSupervisor(listener)
	if err != nil {
		return err
	}
	return c.waitReady(ctx, ended, printf)
}

// prepare writes the state folder. The record comes first: down needs no more.
func (c *Cluster) prepare(entry string) error {
	if err := os.MkdirAll(c.path("logs"), 0o755); err != nil {
		return err
	}
	if err := c.save(); err != nil {
		return err
	}
	if err := os.Symlink(entry, c.path("build")); err != nil {
		return err
	}
	if err := host.SaveSysctls(c.savedSysctls()); err != nil {
		return err
	}
	if err := copySelf(c.path("devcluster")); err != nil {
		return fmt.Errorf("cannot copy devcluster into the state folder: %w", err)
	}
	return c.makePKI()
}

// copySelf copies this program, as "go run" removes it and a rebuild replaces it.
func copySelf(to string) error {
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// startSupervisor starts the cluster's first process and records it before it goes
// to work. The channel gets its end.
func (c *Cluster) startSupervisor(listener *net.TCPListener) (<-chan error, error) {
	listenerFile, err := listener.File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = listenerFile.Close() }()
	log, err := os.Create(c.path("logs", "supervisor.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	startRead, startWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _, _ = startRead.Close(), startWrite.Close() }()

	cmd := exec.Command(c.path("devcluster"), "supervise", c.dir)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{listenerFile, startRead}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start a process with its own namespaces: %w: in a container, run it privileged", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p, ok := host.NewProcess(cmd.Process.Pid)
	if !ok {
		return nil, fmt.Errorf("the supervisor ended at once: %w", <-ended)
	}
	if err := host.WriteFile(c.path("process"), []byte(p.String())); err != nil {
		return nil, err
	}
	_, err = startWrite.Write([]byte{1})
	return ended, err
}
