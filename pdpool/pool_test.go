package pdpool

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

var update = flag.Bool("update", false, "write golden files")

var testDefaults = Defaults{
	RouterImage:    "pdpool/router:v1",
	AgentImage:     "pdpool/transfer-agent:v1",
	SimulatorImage: "pdpool/enginesim:v1",
}

// readPool reads a manifest, and gives it what an API server would.
func readPool(t testing.TB, data []byte) *v1alpha1.PDPool {
	t.Helper()
	pool := &v1alpha1.PDPool{}
	if err := yaml.UnmarshalStrict(data, pool); err != nil {
		t.Fatal(err)
	}
	pool.Namespace, pool.UID, pool.Generation = "serving", types.UID("5f0e8f3a-0000-4000-8000-000000000001"), 1
	return pool
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// samplePool is the pool of the demo.
func samplePool(t testing.TB) *v1alpha1.PDPool {
	t.Helper()
	return readPool(t, readFile(t, filepath.Join("..", "config", "samples", "simulator.yaml")))
}

// simulatorPool is the pool of the demo for longer sequences, with changes.
func simulatorPool(t testing.TB, changes ...func(*v1alpha1.PDPool)) *v1alpha1.PDPool {
	t.Helper()
	pool := samplePool(t)
	pool.Spec.Model.MaxLength = 8192
	for _, change := range changes {
		change(pool)
	}
	return pool
}

// golden compares text with a file, or writes it with -update.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(readFile(t, path)), got); diff != "" {
		t.Errorf("%s differs (-want +got), run with -update to take over:\n%s", path, diff)
	}
}
