package cli

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// call runs devcluster with an empty cache and returns its exit code and error text.
func call(t *testing.T, args ...string) (int, string) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = w
	code := Main(args)
	os.Stderr = old
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, _ := r.Read(b)
	return code, string(b[:n])
}

func TestWrongCallsExitWith2AndASentence(t *testing.T) {
	for _, args := range []string{
		"", "nope", "--nope", "up --nope", "up x", "up --nodes", "up --nodes x", "up --nodes -1", "up --nodes 17",
		"up --gpus -1", "up --gpus 65", "up --port 0", "up --port 65536", "up --name A", "down --name a_b", "down x",
		"load", "stop-node", "stop-node 1 2", "start-node", "gpu-unhealthy n1", "gpu-healthy", "enter n1", "kubectl --name",
		"image", "image --out x.tar", "image --out x.tar --name localhost/x:dev", "image --out x.tar --name x file",
	} {
		code, text := call(t, strings.Fields(args)...)
		if code != exitUsage {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, exitUsage, text)
		}
		if !strings.HasPrefix(text, "devcluster: ") || strings.Count(text, "\n") != 1 {
			t.Errorf("%q: not one sentence: %q", args, text)
		}
	}
}

func TestFailuresExitWith1AndASentence(t *testing.T) {
	for _, args := range []string{
		"kubeconfig", "kubectl get pods", "kubectl --name=x get pods",
		"image --out /nonexistent/x.tar --name localhost/x:dev go.mod",
	} {
		code, text := call(t, strings.Fields(args)...)
		if code != exitFailure || !strings.HasPrefix(text, "devcluster: ") || strings.Count(text, "\n") != 1 {
			t.Errorf("%q: exit code %d, text %q", args, code, text)
		}
	}
}

func TestPortInUse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("up needs root")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	code, text := call(t, "up", "--port", port)
	if code != exitFailure || !strings.Contains(text, "port "+port+" of 127.0.0.1 is in use") {
		t.Errorf("exit code %d, text %q", code, text)
	}
}

func TestImageIsWritten(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x.tar")
	if code, text := call(t, "image", "--out", out, "--name", "localhost/x:dev", "--user", "1000", "cli.go:/etc/cli.go"); code != exitOK {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if _, err := os.Stat(out); err != nil {
		t.Error(err)
	}
}

func TestTakeName(t *testing.T) {
	for args, want := range map[string][2]string{
		"get pods":            {"dev", "get pods"},
		"--name x get pods":   {"x", "get pods"},
		"--name=x -n y get":   {"x", "-n y get"},
		"get --name x":        {"dev", "get --name x"},
		"-n kube-system pods": {"dev", "-n kube-system pods"},
	} {
		a := &app{name: "dev"}
		rest, err := a.takeName(strings.Fields(args))
		if err != nil || a.name != want[0] || strings.Join(rest, " ") != want[1] {
			t.Errorf("%q: got %s %v and error %v", args, a.name, rest, err)
		}
	}
}
