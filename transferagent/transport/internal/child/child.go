// Package child runs a test binary as a second process: a peer that can be
// killed and stopped.
package child

import (
	"bufio"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pdpool/pdpool/transferagent/transport"
)

const variable = "PDPOOL_TRANSPORT_CHILD"

// Size is the size of the child's memory, registered with id 1.
const Size = 16 << 20

// Main is TestMain. In a child it calls play with the argument of Start, prints
// the address of the mover that it gives and stays until standard input ends; in
// the parent it runs the tests.
func Main(m *testing.M, play func(arg string) (transport.Mover, error)) {
	arg, is := os.LookupEnv(variable)
	if !is {
		m.Run()
		return
	}
	mover, err := play(arg)
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n") //nolint:errcheck // there is nobody else to tell
		return
	}
	os.Stdout.WriteString(hex.EncodeToString(mover.Address()) + "\n") //nolint:errcheck // the parent would see nothing
	io.Copy(io.Discard, os.Stdin)                                     //nolint:errcheck // it ends with the parent
}

// Process is a running child.
type Process struct {
	t       *testing.T
	command *exec.Cmd
	Address []byte
}

// inherited is the first descriptor that Start hands to a child.
const inherited = 3

// Inherited is the file that Start was given, in the child. It is there once.
func Inherited() *os.File { return os.NewFile(inherited, "inherited") }

// Start runs a child until the test ends. files are handed to it.
func Start(t *testing.T, arg string, files ...*os.File) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), exe)
	c.Env = append(os.Environ(), variable+"="+arg)
	c.Stderr = os.Stderr
	c.ExtraFiles = files
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill() //nolint:errcheck // it may have ended
		stdin.Close()    //nolint:errcheck // likewise
		c.Wait()         //nolint:errcheck // it was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("child ended: %v", err)
	}
	p := &Process{t: t, command: c}
	if p.Address, err = hex.DecodeString(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return p
}

// Signal sends the child a signal: SIGKILL, SIGSTOP, SIGCONT. It returns from
// SIGSTOP when no thread of the child runs any more.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.command.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	if s != syscall.SIGSTOP {
		return
	}
	stopped := make(chan error, 1)
	go func() { // ends with the child at the latest
		err := error(unix.EINTR)
		for errors.Is(err, unix.EINTR) {
			err = unix.Waitid(unix.P_PID, p.command.Process.Pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil)
		}
		stopped <- err
	}()
	select {
	case err := <-stopped:
		if err != nil {
			p.t.Fatal(err)
		}
	case <-time.After(time.Minute):
		p.t.Fatal("the child goes on")
	}
}
