package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestNodes holds what a list of nodes says of a pool.
func TestNodes(t *testing.T) {
	for name, args := range map[string][]string{
		"check-nodes.txt":  {"check", "-f", "testdata/manifests/r1.yaml", "--nodes", "testdata/nodes.yaml"},
		"check-nodes.json": {"check", "-f", "testdata/manifests/r1.yaml", "--nodes", "testdata/nodes.yaml", "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, "", args...)
			if got.code != 0 {
				t.Errorf("exit status %d: %v", got.code, got.err)
			}
			golden(t, name, got.out)
		})
	}
	strict := run(t, "", "check", "--strict", "-f", "testdata/manifests/r1.yaml", "--nodes", "testdata/nodes.yaml")
	if strict.code != 1 {
		t.Errorf("exit status %d though GPUs lack, under --strict", strict.code)
	}
	for _, c := range []struct{ nodes, want string }{
		{"testdata/r1.sh", "read the nodes of testdata/r1.sh"},
		{"testdata/manifests/r1.yaml", "holds no nodes"},
	} {
		got := run(t, "", "check", "-f", "testdata/manifests/r1.yaml", "--nodes", c.nodes)
		if got.code != 2 || got.err == nil || !strings.Contains(got.err.Error(), c.want) {
			t.Errorf("%s: exit status %d, %v", c.nodes, got.code, got.err)
		}
	}
}

// TestCluster holds what kubectl is asked, and that pods of others take devices.
func TestCluster(t *testing.T) {
	text, err := os.ReadFile("testdata/nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := yaml.YAMLToJSON([]byte(strings.Replace(string(text), `amd.com/gpu: "6"`, `amd.com/gpu: "8"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	busy := `{"kind":"PodList","items":[{"metadata":{"name":"x","namespace":"y","labels":{"pdpool.dev/pool":"POOL"}},"spec":{"nodeName":"mi300x-0","containers":[
		{"name":"c","resources":{"requests":{"amd.com/gpu":"1"},"limits":{"amd.com/gpu":"1"}}}]},"status":{"phase":"Running"}}]}`
	for _, c := range []struct {
		name, pods, namespace string
		available             bool
	}{
		{"all free", `{"kind":"PodList","items":[]}`, "", true},
		{"one device taken by another pool", strings.Replace(busy, "POOL", "other", 1), "y", false},
		{"one device taken by no pool", strings.Replace(busy, "pdpool.dev/pool", "app", 1), "y", false},
		{"one device taken by a pool of this name elsewhere", strings.Replace(busy, "POOL", "r1", 1), "", false},
		{"one device taken by itself", strings.Replace(busy, "POOL", "r1", 1), "y", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked [][]string
			kubectl := func(_ context.Context, args ...string) ([]byte, error) {
				asked = append(asked, args)
				switch {
				case args[0] == "config":
					return []byte(c.namespace), nil
				case slices.Contains(args, "nodes"):
					return nodes, nil
				}
				return []byte(c.pods), nil
			}
			gpus := devicesSaid(t, kubectl, "--context", "there")
			if gpus.Available != c.available {
				t.Errorf("%+v", gpus)
			}
			if len(asked) != 3 || !slices.Contains(asked[0], "there") || !slices.Contains(asked[1], "there") || !slices.Contains(asked[2], "--all-namespaces") {
				t.Errorf("asked %v", asked)
			}
		})
	}
	fails := func(context.Context, ...string) ([]byte, error) { return nil, errors.New("the server is gone") }
	if got := runWith(t, Options{Kubectl: fails}, "", "check", "-f", "testdata/manifests/r1.yaml", "--cluster"); got.code != 2 || got.err == nil {
		t.Errorf("exit status %d: %v", got.code, got.err)
	}
}

// devicesSaid is what check says of the devices of the cluster.
func devicesSaid(t *testing.T, kubectl func(context.Context, ...string) ([]byte, error), more ...string) *Devices {
	t.Helper()
	got := runWith(t, Options{Kubectl: kubectl}, "", append([]string{"check", "-f", "testdata/manifests/r1.yaml", "--cluster", "-o", "json"}, more...)...)
	var r Report
	if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Pools) != 1 || r.Pools[0].GPUs == nil {
		t.Fatalf("%v: %s", got.err, got.out)
	}
	return r.Pools[0].GPUs
}

// TestNodesWithPods holds that pods in the file take devices, but for the pool's own.
func TestNodesWithPods(t *testing.T) {
	text, err := os.ReadFile("testdata/nodes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	whole := strings.Replace(string(text), `amd.com/gpu: "6"`, `amd.com/gpu: "8"`, 1)
	for pool, available := range map[string]bool{"r1": true, "other": false} {
		file := filepath.Join(t.TempDir(), "nodes.yaml")
		pod := `
- apiVersion: v1
  kind: Pod
  metadata: {name: x, namespace: default, labels: {pdpool.dev/pool: ` + pool + `}}
  spec:
    nodeName: mi300x-0
    containers: [{name: engine, resources: {limits: {amd.com/gpu: "4"}}}]
`
		if err := os.WriteFile(file, []byte(strings.TrimRight(whole, "\n")+pod), 0o600); err != nil {
			t.Fatal(err)
		}
		got := run(t, "", "check", "-f", "testdata/manifests/r1.yaml", "--nodes", file, "-o", "json")
		var r Report
		if err := json.Unmarshal([]byte(got.out), &r); err != nil || len(r.Pools) != 1 || r.Pools[0].GPUs == nil {
			t.Fatalf("%v: %s", got.err, got.out)
		}
		if gpus := r.Pools[0].GPUs; gpus.Available != available {
			t.Errorf("with a pod of %s: %+v", pool, gpus)
		}
	}
}
