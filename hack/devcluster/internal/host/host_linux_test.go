package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestParseHierarchies(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
31 22 0:26 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw
`
	want := []hierarchy{{dir: "/sys/fs/cgroup/memory"}, {dir: "/sys/fs/cgroup/unified", unified: true}}
	if got := parseHierarchies(mountinfo); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCpusetsComeFromTheParent(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"cpuset.cpus": "0-1", "cpuset.mems": "0"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// A cgroup file system makes these files by itself.
	for _, dir := range []string{"a", "a/b"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			if err := os.WriteFile(filepath.Join(root, dir, name), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := (hierarchy{dir: root}).mkdir("/a/b"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(root, "a/b/cpuset.cpus")); err != nil || string(b) != "0-1" {
		t.Errorf("got %q and error %v", b, err)
	}
}

func TestProcessIsKilledOnce(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	p, ok := NewProcess(cmd.Process.Pid)
	if !ok || !p.Running() {
		t.Fatalf("process %v does not run", p)
	}
	read, err := ParseProcess(p.String())
	if err != nil || read != p {
		t.Errorf("read %v and error %v, want %v", read, err, p)
	}
	if other := (Process{PID: p.PID, Start: "1"}); other.Running() {
		t.Error("a process with another start time counts as the same")
	}
	for range 2 {
		if err := p.Kill(10 * time.Second); err != nil {
			t.Error(err)
		}
	}
	if p.Running() {
		t.Error("the process runs after Kill")
	}
}

func TestParseProcessRejectsGarbage(t *testing.T) {
	for _, text := range []string{"", "1", "x 2", "1 2 3"} {
		if p, err := ParseProcess(text); err == nil {
			t.Errorf("%q gave %v", text, p)
		}
	}
}

func TestSaveSysctlsKeepsTheFirst(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sysctls.json")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SaveSysctls(file); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "{}" {
		t.Errorf("the saved settings are now %q, error %v", b, err)
	}
	if err := RestoreSysctls(file); err != nil {
		t.Error(err)
	}
	if err := RestoreSysctls(file); err != nil {
		t.Errorf("nothing to restore: %v", err)
	}
}

func TestTail(t *testing.T) {
	if got := Tail("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("got %q", got)
	}
	if got := Tail("a", 2); got != "a" {
		t.Errorf("got %q", got)
	}
}
