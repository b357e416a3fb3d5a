package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process names a process for as long as the machine runs: a later one with the
// same pid has another start time.
type Process struct {
	PID   int
	Start string
}

// NewProcess is the running process pid; ok is false when there is none.
func NewProcess(pid int) (p Process, ok bool) {
	start := startTime(pid)
	return Process{PID: pid, Start: start}, start != ""
}

// ParseProcess reads what String wrote.
func ParseProcess(text string) (Process, error) {
	f := strings.Fields(text)
	if len(f) != 2 {
		return Process{}, fmt.Errorf("%q is no pid and start time", text)
	}
	pid, err := strconv.Atoi(f[0])
	return Process{PID: pid, Start: f[1]}, err
}

func (p Process) String() string { return strconv.Itoa(p.PID) + " " + p.Start }

// Running says whether the process still runs.
func (p Process) Running() bool { return p.Start != "" && startTime(p.PID) == p.Start }

// Kill ends the process by SIGKILL and waits until it is gone. For the first process
// of a PID namespace, so is then every process in it.
func (p Process) Kill(timeout time.Duration) error {
	if !p.Running() {
		return nil
	}
	if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot kill process %d: %w", p.PID, err)
	}
	for deadline := time.Now().Add(timeout); p.Running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end within %s of a SIGKILL", p.PID, timeout)
		}
	}
	p.awaitReaped(2 * time.Second)
	return nil
}

// awaitReaped waits until the process is no zombie either, as far as the machine's
// first process, whose child it is then, looks after those at all.
func (p Process) awaitReaped(timeout time.Duration) {
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.PID)); err != nil {
			return
		}
	}
}

// startTime is the start time of a process from /proc, and empty when it has ended.
// A zombie has, but only with one thread left: the others still hold its files.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	const state, start = 0, 19 // among the fields after the command's name
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) <= start {
		return ""
	}
	if threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); f[state] == "Z" && len(threads) < 2 {
		return ""
	}
	return f[start]
}

// Children returns the pids of the running children of a process.
func Children(pid int) ([]int, error) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var children []int
	for _, d := range all {
		child, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
		if err == nil && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", pid)) {
			children = append(children, child)
		}
	}
	return children, nil
}

// Args returns the command line of a process.
func Args(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
}
