package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNoMachine is the answer of a cluster whose nodes can't be reached but by its API.
var ErrNoMachine = errors.New("the nodes of this cluster can't be entered: it is not one of hack/devcluster")

// Machine is where the nodes of a development cluster run: what no API does, such as
// killing one process of a pod or cutting a node's power, is done there.
type Machine struct {
	command []string // of devcluster, with the cluster's name
	inside  *exec.Cmd
	leave   context.CancelFunc
	network *os.File // the network namespace of a node
	client  *http.Client
}

// OpenMachine enters a node's network: Dial and HTTP reach the addresses of pods and
// Services from there until Close. devcluster is the command with its --name.
func OpenMachine(devcluster, node string) (*Machine, error) {
	m := &Machine{command: strings.Fields(devcluster)}
	if len(m.command) == 0 {
		return nil, ErrNoMachine
	}
	// The process holds the namespace. It ends with its standard input too, should
	// this one be killed.
	ctx, leave := context.WithCancel(context.Background())
	m.leave = leave
	m.inside = exec.CommandContext(ctx, m.command[0], append(m.command[1:], "enter", node, "sh", "-c", "echo inside; exec cat")...)
	if _, err := m.inside.StdinPipe(); err != nil {
		leave()
		return nil, err
	}
	stdout, err := m.inside.StdoutPipe()
	if err != nil {
		leave()
		return nil, err
	}
	if err := m.inside.Start(); err != nil {
		leave()
		return nil, fmt.Errorf("enter node %s: %w", node, err)
	}
	first := make([]byte, len("inside\n"))
	if _, err := io.ReadFull(stdout, first); err != nil {
		m.Close()
		return nil, fmt.Errorf("enter node %s: %w", node, err)
	}
	m.network, err = os.Open("/proc/" + strconv.Itoa(m.inside.Process.Pid) + "/ns/net")
	if err != nil {
		m.Close()
		return nil, err
	}
	m.client = &http.Client{Transport: &http.Transport{DialContext: m.Dial, MaxIdleConnsPerHost: 64, IdleConnTimeout: 10 * time.Second}}
	return m, nil
}

// Close leaves the node.
func (m *Machine) Close() {
	if m.network != nil {
		_ = m.network.Close()
	}
	m.leave()
	_ = m.inside.Wait() // it was killed
}

// HTTP is a client in the node's network.
func (m *Machine) HTTP() *http.Client { return m.client }

// Run runs a command of devcluster and returns what it printed.
func (m *Machine) Run(ctx context.Context, arguments ...string) (string, error) {
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, m.command[0], append(m.command[1:], arguments...)...)
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("devcluster %.200q: %w: %s", arguments, err, bytes.TrimSpace(problems.Bytes()))
	}
	return out.String(), nil
}

// Shell runs a script of sh on a node, or beside the control plane for "cluster".
func (m *Machine) Shell(ctx context.Context, where, script string) (string, error) {
	return m.Run(ctx, "enter", where, "sh", "-c", script)
}

// KillControlPlane kills a process of the control plane, which starts anew.
func (m *Machine) KillControlPlane(ctx context.Context, name string) error {
	_, err := m.Shell(ctx, "cluster", fmt.Sprintf(`found=
for p in /proc/[0-9]*; do
  [ "$(tr '\0' ' ' <$p/cmdline 2>/dev/null | cut -d' ' -f2)" = %s ] && kill -9 ${p#/proc/} && found=1
done
[ -n "$found" ]`, name))
	return err
}

// StopNode ends a node as a power cut does; StartNode starts it and waits until it is ready.
func (m *Machine) StopNode(ctx context.Context, node string) error {
	_, err := m.Run(ctx, "stop-node", node)
	return err
}

// StartNode starts a node that was stopped.
func (m *Machine) StartNode(ctx context.Context, node string) error {
	_, err := m.Run(ctx, "start-node", node)
	return err
}

// literal refuses names: only an address is dialled by the goroutine that asks.
func literal(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if net.ParseIP(host) == nil {
		return fmt.Errorf("%q is no address of a pod or Service", host)
	}
	return nil
}
