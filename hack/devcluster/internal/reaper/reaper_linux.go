// Package reaper starts processes from the first process of a PID namespace,
// which also has to reap every orphan of that namespace. A single wait loop hands
// out the results, as os/exec's own waiting would race with it.
package reaper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// restartDelay is the pause before a kept process starts anew.
const restartDelay = time.Second

// Reaper starts and reaps the processes of a PID namespace.
type Reaper struct {
	logs    string
	mu      sync.Mutex // held while a process starts, so that its end finds its waiter
	waiters map[int]chan syscall.WaitStatus
}

// New starts to reap. The processes' output goes to NAME.log in the folder logs.
func New(logs string) *Reaper {
	r := &Reaper{logs: logs, waiters: map[int]chan syscall.WaitStatus{}}
	go r.loop()
	return r
}

func (r *Reaper) loop() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil { // no child at the moment
			time.Sleep(20 * time.Millisecond)
			continue
		}
		r.mu.Lock()
		waiter := r.waiters[pid]
		delete(r.waiters, pid)
		r.mu.Unlock()
		if waiter != nil {
			waiter <- status
		}
	}
}

// Start runs argv with its output appended to NAME.log. It returns the pid and a
// channel that gets the status when the process ends.
func (r *Reaper) Start(name string, argv []string, attr *syscall.SysProcAttr) (int, <-chan syscall.WaitStatus, error) {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return 0, nil, err
	}
	log, err := os.OpenFile(filepath.Join(r.logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = log.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = null.Close() }()

	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := os.StartProcess(path, argv, &os.ProcAttr{Env: os.Environ(), Files: []*os.File{null, log, log}, Sys: attr})
	if err != nil {
		return 0, nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	waiter := make(chan syscall.WaitStatus, 1)
	pid := p.Pid
	r.waiters[pid] = waiter
	return pid, waiter, p.Release()
}

// Run runs argv to its end and fails when it does not exit with 0.
func (r *Reaper) Run(name string, argv ...string) error {
	_, ended, err := r.Start(name, argv, nil)
	if err != nil {
		return err
	}
	if status := <-ended; status.ExitStatus() != 0 {
		return fmt.Errorf("%v failed with status %d", argv, status.ExitStatus())
	}
	return nil
}

// Keep runs argv for ever: it starts anew a second after it ended.
func (r *Reaper) Keep(name string, argv ...string) {
	go func() {
		for {
			_, ended, err := r.Start(name, argv, nil)
			if err != nil {
				Logf("%s: %v", name, err)
			} else {
				Logf("%s ended: %s", name, Describe(<-ended))
			}
			time.Sleep(restartDelay)
		}
	}()
}

// Describe says how a process ended.
func Describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}

// Logf writes a line with the time to standard error.
func Logf(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}
