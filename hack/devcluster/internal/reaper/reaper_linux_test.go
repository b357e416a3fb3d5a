package reaper

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The reaper takes the results of all children of a process: one for all tests.
func TestReaper(t *testing.T) {
	logs := t.TempDir()
	r := New(logs)

	t.Run("Run reports the status and logs the output", func(t *testing.T) {
		if err := r.Run("good", "sh", "-c", "echo hello"); err != nil {
			t.Error(err)
		}
		if err := r.Run("bad", "sh", "-c", "exit 3"); err == nil || !strings.Contains(err.Error(), "status 3") {
			t.Errorf("error %v", err)
		}
		if err := r.Run("none", "/nonexistent"); err == nil {
			t.Error("a missing program runs")
		}
		if b, err := os.ReadFile(filepath.Join(logs, "good.log")); err != nil || string(b) != "hello\n" {
			t.Errorf("the log is %q, error %v", b, err)
		}
	})

	t.Run("Start reports a signal", func(t *testing.T) {
		pid, ended, err := r.Start("sleep", []string{"sleep", "60"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case status := <-ended:
			if status.Signal() != syscall.SIGKILL {
				t.Errorf("status %v", status)
			}
		case <-time.After(time.Minute):
			t.Error("the end was not reported")
		}
	})

	t.Run("Keep starts anew", func(t *testing.T) {
		r.Keep("kept", "sh", "-c", "echo again")
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			b, _ := os.ReadFile(filepath.Join(logs, "kept.log"))
			if strings.Count(string(b), "again") > 1 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("started only once: %q", b)
			}
		}
	})
}
