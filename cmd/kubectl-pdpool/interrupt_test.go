package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asPlugin is set where the test binary stands for the plugin.
const asPlugin = "PDPOOL_TEST_AS_PLUGIN"

// patience is how long a test waits for what must come; what kubectl leaves behind lives
// for longer.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		main()
	}
	os.Exit(m.Run())
}

func fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Skip("no named pipes:", err)
	}
	return name
}

// plugin starts the test binary as the plugin.
func plugin(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asPlugin+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, patience
	return cmd, &out
}

// TestSignalsEndAtOnce holds that a command which waits for its input ends with a
// signal, prints nothing, and says by its exit status which it was.
func TestSignalsEndAtOnce(t *testing.T) {
	for _, c := range []struct {
		args   []string
		signal syscall.Signal
		code   int
	}{
		{[]string{"check", "-f", "FIFO"}, syscall.SIGINT, 130},
		{[]string{"check", "-f", "FIFO"}, syscall.SIGTERM, 143},
		{[]string{"geometry", "--config", "FIFO"}, syscall.SIGTERM, 143},
		{[]string{"check", "--prefill-cmd", "@FIFO", "--decode-cmd", "vllm serve m"}, syscall.SIGINT, 130},
	} {
		t.Run(strings.Join(c.args, " ")+" "+c.signal.String(), func(t *testing.T) {
			name := fifo(t)
			for i := range c.args {
				c.args[i] = strings.Replace(c.args[i], "FIFO", name, 1)
			}
			cmd, out := plugin(t, c.args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// It opens when the plugin has it open too, which then waits for its text.
			w, err := os.OpenFile(name, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code || out.Len() > 0 {
				t.Errorf("exit status %d, want %d: %s", code, c.code, out)
			}
		})
	}
}

// fakeKubectl puts a shell script of that name into the path.
func fakeKubectl(t *testing.T, script string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "kubectl"), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}

// TestASignalEndsKubectl holds that kubectl ends with the plugin, though what it has
// started holds its pipes.
func TestASignalEndsKubectl(t *testing.T) {
	name := fifo(t)
	fakeKubectl(t, "sleep 600 &\necho $$ $! > "+name+"\nwait\n")
	cmd, out := plugin(t, "check", "-f", "../../config/samples/smallest.yaml", "--cluster")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Fields(string(text))
	if len(ids) != 2 {
		t.Fatalf("%q", text)
	}
	child, _ := strconv.Atoi(ids[1])
	defer func() { _ = syscall.Kill(child, syscall.SIGKILL) }()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("exit status %d: %s", code, out)
	}
	if !running(child) {
		t.Error("it has waited for what kubectl has started")
	}
	if id, _ := strconv.Atoi(ids[0]); running(id) {
		t.Errorf("kubectl runs on")
	}
}

// running says that a process is there, and no zombie.
func running(id int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(id) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestKubectlIsBounded holds what kubectl can cost.
func TestKubectlIsBounded(t *testing.T) {
	t.Run("what it says", func(t *testing.T) {
		fakeKubectl(t, "exec cat /dev/zero\n")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if out, err := ask(ctx, 1<<20, nil); err == nil || !strings.Contains(err.Error(), "more than 1024 KiB") {
			t.Errorf("%d bytes, %v", len(out), err)
		}
	})
	t.Run("what it says is wrong", func(t *testing.T) {
		fakeKubectl(t, "head -c 1000000 /dev/zero | tr '\\0' x >&2\nexit 1\n")
		if _, err := kubectl(t.Context(), "get"); err == nil || len(err.Error()) > maxCause+100 {
			t.Errorf("%d bytes", len(err.Error()))
		}
	})
	t.Run("its time", func(t *testing.T) {
		name := fifo(t)
		fakeKubectl(t, "sleep 600 &\necho $! > "+name+"\nwait\n")
		ctx, end := context.WithCancelCause(t.Context())
		child := make(chan int, 1)
		go func() {
			text, _ := os.ReadFile(name)
			id, _ := strconv.Atoi(strings.TrimSpace(string(text)))
			child <- id
			end(errors.New("too late"))
		}()
		if _, err := kubectl(ctx, "get"); err == nil || !strings.Contains(err.Error(), "too late") {
			t.Fatalf("%v", err)
		}
		id := <-child
		if id == 0 || !running(id) {
			t.Fatalf("it has waited for what kubectl has started, process %d", id)
		}
		_ = syscall.Kill(id, syscall.SIGKILL)
	})
	t.Run("what it leaves behind", func(t *testing.T) {
		fakeKubectl(t, "sleep 60 &\necho answer\n")
		if out, err := kubectl(t.Context(), "get"); err != nil || string(out) != "answer\n" {
			t.Errorf("%q, %v", out, err)
		}
	})
}
