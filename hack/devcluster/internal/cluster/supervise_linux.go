package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/pdpool/pdpool/hack/devcluster/internal/host"
	"github.com/pdpool/pdpool/hack/devcluster/internal/reaper"
)

// The files that a supervisor is started with.
const (
	listenerFD = 3 // listens on the host for the API server's clients
	startFD    = 4 // gives a byte when the supervisor's pid has been recorded
)

// namespaces are those that the supervisor and each node have of their own.
const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

// Supervise is the first process of the cluster with the state folder dir. It
// returns on SIGTERM, which ends everything in the cluster.
func Supervise(dir string) error {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM, syscall.SIGINT)
	syscall.CloseOnExec(listenerFD)
	if err := awaitStart(); err != nil {
		return err
	}
	c, err := at(dir)
	if err != nil {
		return err
	}
	if err := privateMounts(); err != nil {
		return err
	}
	if err := os.Setenv("PATH", host.Path); err != nil {
		return err
	}
	r := reaper.New(c.path("logs"))
	if err := c.makeNetwork(r); err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(listenerFD, "listener"))
	if err != nil {
		return err
	}
	go forward(listener, controlPlane+":6443")
	if err := c.startControlPlane(r); err != nil {
		return err
	}
	for n := 1; n <= c.Nodes; n++ {
		go c.keepNode(r, n)
	}
	<-terminated
	return nil
}

// awaitStart waits for the byte from Up, so that no supervisor runs unrecorded.
func awaitStart() error {
	f := os.NewFile(startFD, "start")
	defer func() { _ = f.Close() }()
	if _, err := f.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("the process that started the supervisor ended too early: %w", err)
	}
	return nil
}

// privateMounts detaches this mount namespace from the host's and gives it the
// processes of its own PID namespace.
func privateMounts() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot make the mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	return nil
}

// makeNetwork makes the bridge and the routes to the nodes' pods.
func (c *Cluster) makeNetwork(r *reaper.Reaper) error {
	commands := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", bridge, "type", "bridge"},
		{"ip", "addr", "add", controlPlane + "/24", "dev", bridge},
		{"ip", "link", "set", bridge, "up"},
	}
	for n := 1; n <= c.Nodes; n++ {
		commands = append(commands, []string{"ip", "route", "add", nodePodCIDR(n), "via", nodeIP(n)})
	}
	for _, argv := range commands {
		if err := r.Run("network", argv...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// forward passes the connections of a listener of the host's network namespace on
// to an address of this one.
func forward(l net.Listener, to string) {
	for {
		in, err := l.Accept()
		if err != nil {
			reaper.Logf("cannot accept a connection: %v", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go func() {
			defer func() { _ = in.Close() }()
			out, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = out.Close() }()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(in, out)
			_ = in.(*net.TCPConn).CloseWrite()
			<-done
		}()
	}
}

// keepNode runs node n whenever there is no mark that it is stopped.
func (c *Cluster) keepNode(r *reaper.Reaper, n int) {
	for {
		if _, err := os.Stat(c.stoppedMark(n)); err == nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err := c.runNode(r, n); err != nil {
			reaper.Logf("node %s: %v", nodeName(n), err)
			time.Sleep(time.Second)
		}
	}
}

func (c *Cluster) stoppedMark(n int) string { return c.path(nodeName(n), "stopped") }

// runNode starts node n, connects it to the bridge and waits for its end.
func (c *Cluster) runNode(r *reaper.Reaper, n int) error {
	pid, ended, err := r.Start(nodeName(n), []string{c.path("devcluster"), "node", c.dir, strconv.Itoa(n)},
		&syscall.SysProcAttr{Cloneflags: namespaces})
	if err != nil {
		return err
	}
	veth := "veth-" + nodeName(n)
	for try := 0; ; try++ { // the interface of a node that has just died goes a little later
		err = r.Run("network", "ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid))
		if err == nil || try == 50 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err == nil {
		err = r.Run("network", "ip", "link", "set", veth, "master", bridge, "up")
	}
	if err != nil {
		return errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
	}
	return fmt.Errorf("it ended: %s", reaper.Describe(<-ended))
}
