package pdpool

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// podCases are pools whose pods are golden files.
func podCases(t *testing.T) map[string]*v1alpha1.PDPool {
	type layout = v1alpha1.LayoutSpec
	return map[string]*v1alpha1.PDPool{
		"vllm-tp4": vllmPool(t, layouts(layout{TP: 4}, layout{TP: 4}), spec(func(s *v1alpha1.PDPoolSpec) {
			s.Engine.Args = []string{"--gpu-memory-utilization=0.9"}
			s.Engine.Env = []corev1.EnvVar{{Name: "HF_HOME", Value: "/models"}}
			s.Model.MaxLength = 16384
		})),
		"simulator-tp4-dcp4": simulatorPool(t),
		"shared-memory":      simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Backend = v1alpha1.BackendSharedMemory })),
		"dp-two-pods": vllmPool(t, layouts(layout{TP: 1, DP: 8}, layout{TP: 1, DP: 16, DPLocal: 8}), spec(func(s *v1alpha1.PDPoolSpec) {
			s.Router.Mode = v1alpha1.RouterNone
		})),
		"template": simulatorPool(t, layouts(layout{TP: 1}, layout{TP: 1}), decodeTemplate(`{
			"metadata":{"labels":{"team":"a"},"annotations":{"example/a":"b"}},
			"spec":{"priorityClassName":"high","nodeSelector":{"zone":"a"},"tolerations":[{"key":"gpu","operator":"Exists"}],
				"containers":[{"name":"engine","args":["--sim-max-queue","7"],"env":[{"name":"A","value":"b"}],"resources":{"requests":{"cpu":"2"}},
					"startupProbe":{"failureThreshold":99}},{"name":"side","image":"example/side"}],
				"volumes":[{"name":"shm","emptyDir":{"sizeLimit":"1Gi"}}]}}`)),
	}
}

// dump is objects as YAML documents. The agent's configuration is set apart, so
// that it can be read.
func dump(t *testing.T, objects []Object) string {
	t.Helper()
	var b strings.Builder
	for _, o := range objects {
		tree, _ := decode(encode(o)).(map[string]any)
		delete(tree, "status")
		var config any
		if p, ok := o.(*corev1.Pod); ok {
			if err := json.Unmarshal([]byte(agentEnv(t, p)), &config); err != nil {
				t.Fatal(err)
			}
			tree["agent"] = config
			text := string(encode(tree))
			quoted := string(encode(agentEnv(t, p)))
			if err := json.Unmarshal([]byte(strings.ReplaceAll(text, quoted, `"(below)"`)), &tree); err != nil {
				t.Fatal(err)
			}
		}
		out, err := yaml.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n" + string(out))
	}
	return b.String()
}

func agentEnv(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	for _, e := range p.Spec.InitContainers[0].Env {
		if e.Name == agentconfig.Env {
			return e.Value
		}
	}
	t.Fatalf("pod %s has no agent configuration", p.Name)
	return ""
}

func TestPods(t *testing.T) {
	for name, pool := range podCases(t) {
		t.Run(name, func(t *testing.T) {
			if problems := Check(pool); kvlayout.Refused(problems) {
				t.Fatal(problems)
			}
			c := newCluster(t, pool, 1000)
			c.reconcile()
			plan := Compute(c.pool, c.observed(), c.defaults)
			golden(t, filepath.Join("testdata", "pods", name+".yaml"), dump(t, plan.Create))
		})
	}
}

func TestChildren(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 1000)
	objects := Compute(c.pool, c.observed(), c.defaults).Apply
	c.reconcile()
	objects = append(objects, Compute(c.pool, c.observed(), c.defaults).Apply...)
	golden(t, filepath.Join("testdata", "children.yaml"), dump(t, objects))
}

// TestPodsAreWhatOthersRead holds the contracts with the agent and the router.
func TestPodsAreWhatOthersRead(t *testing.T) {
	for name, pool := range podCases(t) {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, pool, 1000)
			c.reconcile()
			c.reconcile()
			blocks := map[int]string{}
			for _, p := range c.pods() {
				ports := readAsOthers(t, p)
				replica := p.Labels[v1alpha1.LabelRole] + p.Labels[v1alpha1.LabelReplica]
				if other, ok := blocks[ports.HTTP]; ok && other != replica {
					t.Errorf("%s and %s share ports", other, replica)
				}
				blocks[ports.HTTP] = replica
			}
		})
	}
}

// readAsOthers reads a pod as its agent and the router do, and returns its ports.
func readAsOthers(t *testing.T, p *corev1.Pod) agentconfig.Ports {
	t.Helper()
	cfg, err := agentconfig.Parse([]byte(agentEnv(t, p)))
	if err == nil {
		err = cfg.Validate()
	}
	if err != nil {
		t.Fatalf("%s: %v", p.Name, err)
	}
	instance, err := agentconfig.ParseInstance(p.Annotations[v1alpha1.AnnotationLayout])
	if err != nil || instance != cfg.Instance() {
		t.Errorf("%s: instance %+v, %v", p.Name, instance, err)
	}
	ports, err := agentconfig.ParsePorts(p.Annotations[v1alpha1.AnnotationPorts])
	if err != nil || ports != cfg.Ports {
		t.Errorf("%s: ports %+v, %v", p.Name, ports, err)
	}
	if text := string(encode(p)); strings.Contains(text, "18700") || strings.Contains(text, "leader-") {
		t.Errorf("%s has marks left", p.Name)
	}
	if p.Spec.Hostname != p.Name || p.Labels[v1alpha1.LabelPairing] != cfg.Pairing || p.Labels[v1alpha1.LabelRevision] != cfg.Revision {
		t.Errorf("%s differs from its configuration", p.Name)
	}
	return ports
}
