package pdpool

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

func TestContains(t *testing.T) {
	for _, c := range []struct {
		live, wanted string
		want         bool
	}{
		{`{"a":1,"b":2}`, `{"a":1}`, true},
		{`{"a":2}`, `{"a":1}`, false},
		{`{}`, `{"a":1}`, false},
		{`{}`, `{"a":{}}`, true},
		{`{"l":[{"name":"x","v":1,"w":2},{"name":"added"}]}`, `{"l":[{"name":"x","v":1}]}`, true},
		{`{"l":[{"name":"added"},{"name":"x","v":2}]}`, `{"l":[{"name":"x","v":1}]}`, false},
		{`{"l":[{"name":"y"}]}`, `{"l":[{"name":"x"}]}`, false},
		{`{"l":["a","b"]}`, `{"l":["a"]}`, false},
		{`{"l":["a"]}`, `{"l":["a"]}`, true},
		{`{}`, `{"l":[]}`, true},
		{`{"a":"1"}`, `{"a":1}`, false},
	} {
		var live, wanted any
		if json.Unmarshal([]byte(c.live), &live) != nil || json.Unmarshal([]byte(c.wanted), &wanted) != nil {
			t.Fatal("not JSON")
		}
		if got := contains(live, wanted); got != c.want {
			t.Errorf("contains(%s, %s) = %v", c.live, c.wanted, got)
		}
	}
}

func TestPortBlocks(t *testing.T) {
	b := newBlocks(PortRange{First: 20000, Last: 20000 + 3*BlockPorts - 1}, []int{20064, 20064})
	for i, want := range []int{20000, 20128, 20000, 20128, 20000, 20064} {
		if got := b.take(); got != want {
			t.Errorf("block %d begins at %d, want %d", i, got, want)
		}
	}
	if _, ok := PortBlock(&corev1.Pod{}); ok {
		t.Error("a pod without an annotation has a block")
	}
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{v1alpha1.AnnotationPorts: portsAt(20064).Encode()}
	if base, ok := PortBlock(pod); !ok || base != 20064 {
		t.Errorf("block %d, %v", base, ok)
	}
	// All ports of a block are in it, and the ranges of ranks don't meet.
	p := portsAt(0)
	if p.EngineHandshake < p.VLLM+ranksPerPod || p.EngineNotify < p.EngineHandshake+ranksPerPod || p.EngineNotify+ranksPerPod > BlockPorts {
		t.Errorf("ports %+v", p)
	}
}

func TestDefaultPortsAreNoOnesElse(t *testing.T) {
	if DefaultPorts.Last >= 30000 || DefaultPorts.First < 1024 {
		t.Errorf("ports %+v", DefaultPorts)
	}
}

func TestForeignPodsAreLeftAlone(t *testing.T) {
	c := newCluster(t, simulatorPool(t), 64)
	c.run(30)
	stranger := &corev1.Pod{}
	stranger.Name, stranger.Labels = "stranger", map[string]string{v1alpha1.LabelPool: "r1", v1alpha1.LabelRole: "decode"}
	seen := c.observed()
	seen.Pods = append(seen.Pods, *stranger)
	if plan := Compute(c.pool, seen, c.defaults); plan.Outcome != Converged || len(plan.Delete) != 0 {
		t.Errorf("plan %+v", plan)
	}
}
