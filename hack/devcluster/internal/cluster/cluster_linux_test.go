package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{"dev", "a", "smoke-2", "1"} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "-a", "a-", "A", "a/b", "..", "a.b", strings.Repeat("a", maxName+1)} {
		if CheckName(name) == nil {
			t.Errorf("%q passes", name)
		}
	}
}

func newCluster(t *testing.T, record string) *Cluster {
	t.Helper()
	c := Named(t.TempDir(), "test")
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.path("config.json"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRecordIsReadAsWritten(t *testing.T) {
	c := newCluster(t, "")
	c.Config = Config{Nodes: 2, GPUs: 8, Port: 16443, Bin: "/bin", Images: []string{"a.tar"}}
	if err := c.save(); err != nil {
		t.Fatal(err)
	}
	read, err := at(c.dir)
	if err != nil || !reflect.DeepEqual(read.Config, c.Config) || read.root != c.root || read.name != "test" {
		t.Errorf("read %+v and error %v", read, err)
	}
}

func TestUnreadableRecordSaysWhatToDo(t *testing.T) {
	for _, record := range []string{"", "{", `{"nodes": "two"}`} {
		err := newCluster(t, record).load()
		if err == nil || !strings.Contains(err.Error(), "run down --name test") {
			t.Errorf("record %q: error %v", record, err)
		}
	}
}

func TestRunningNeedsAProcess(t *testing.T) {
	c := newCluster(t, "{}")
	for _, process := range []string{"", "x", "1 1"} {
		if err := os.WriteFile(c.path("process"), []byte(process), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Running(c.root, "test"); err == nil || !strings.Contains(err.Error(), "up --name test") {
			t.Errorf("process %q: error %v", process, err)
		}
	}
}

func TestNodeNumber(t *testing.T) {
	c := &Cluster{Config: Config{Nodes: 2}}
	for arg, want := range map[string]int{"1": 1, "n2": 2} {
		if n, err := c.NodeNumber(arg); err != nil || n != want {
			t.Errorf("%s: got %d and error %v", arg, n, err)
		}
	}
	for _, arg := range []string{"0", "3", "n3", "node1", ""} {
		if n, err := c.NodeNumber(arg); err == nil {
			t.Errorf("%s: got %d", arg, n)
		}
	}
}

func TestGPULabels(t *testing.T) {
	labels := strings.Split(gpuLabels(8), ",")
	for _, want := range []string{"amd.com/gpu.device-id=74a1", "beta.amd.com/gpu.device-id=74a1", "beta.amd.com/gpu.device-id.74a1=8", "amd.com/gpu.vram=192G"} {
		if !slices.Contains(labels, want) {
			t.Errorf("%s is missing in %v", want, labels)
		}
	}
	if got := gpuLabels(0); got != "" {
		t.Errorf("without GPUs got %s", got)
	}
}

func TestParseGPUs(t *testing.T) {
	if got, err := parseGPUs([]string{"0", "gpu7"}, 8); err != nil || !slices.Equal(got, []string{"gpu0", "gpu7"}) {
		t.Errorf("got %v and error %v", got, err)
	}
	for _, arg := range []string{"8", "gpu8", "-1", "gpux", ""} {
		if got, err := parseGPUs([]string{arg}, 8); err == nil {
			t.Errorf("%q: got %v", arg, got)
		}
	}
	if _, err := parseGPUs(nil, 0); err == nil {
		t.Error("a cluster without GPUs has some")
	}
}

func TestChangeHealth(t *testing.T) {
	for _, test := range []struct {
		old, ids []string
		healthy  bool
		want     []string
	}{
		{nil, []string{"gpu1"}, false, []string{"gpu1"}},
		{[]string{"gpu1"}, []string{"gpu0", "gpu1"}, false, []string{"gpu0", "gpu1"}},
		{[]string{"gpu0", "gpu1"}, []string{"gpu0"}, true, []string{"gpu1"}},
		{[]string{"gpu0", "gpu1"}, nil, true, nil},
	} {
		if got := changeHealth(test.old, test.ids, test.healthy); !slices.Equal(got, test.want) {
			t.Errorf("%+v: got %v", test, got)
		}
	}
}

func TestReadySince(t *testing.T) {
	var n node
	if n.ready() {
		t.Error("a node without conditions is ready")
	}
	now := time.Now()
	n.Status.Conditions = append(n.Status.Conditions, struct {
		Type, Status      string
		LastHeartbeatTime time.Time
	}{"Ready", "True", now})
	if !n.ready() || !n.readySince(now) || n.readySince(now.Add(time.Second)) {
		t.Error("the time of the report does not count")
	}
	if got := n.allocatableGPUs(); got != "0" {
		t.Errorf("a node without GPUs has %s", got)
	}
}

func TestDedupe(t *testing.T) {
	if got := dedupe([]string{"A=1", "B=2", "A=3"}); !slices.Equal(got, []string{"B=2", "A=3"}) {
		t.Errorf("got %v", got)
	}
}

func TestKubeconfigsAreWritten(t *testing.T) {
	c := newCluster(t, "{}")
	c.Config = Config{Nodes: 1, Port: 1234}
	if err := c.makePKI(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(c.Kubeconfig())
	if err != nil || !strings.Contains(string(b), "server: https://127.0.0.1:1234\n") {
		t.Errorf("got %s and error %v", b, err)
	}
	for _, name := range []string{"n1.kubeconfig", "scheduler.kubeconfig", "n1.crt", "ca.key"} {
		if _, err := os.Stat(c.pki(name)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Stat(c.Kubeconfig()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has mode %v, error %v", info.Mode(), err)
	}
}

func TestManifestsHaveNoOtherVariables(t *testing.T) {
	all, err := filepath.Glob("manifests/*.yaml")
	if err != nil || len(all) != 2 {
		t.Fatalf("found %v, error %v", all, err)
	}
	for _, name := range all {
		b, err := manifests.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, known := range []string{"${DNS_IP}", "${COREDNS_IMAGE}", "${GPUPLUGIN_IMAGE}", "${GPUS}"} {
			b = []byte(strings.ReplaceAll(string(b), known, ""))
		}
		if strings.Contains(string(b), "${") {
			t.Errorf("%s has a variable that nothing replaces", name)
		}
	}
}
