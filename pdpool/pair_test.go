package pdpool

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
)

// TestPairKnowsTheLaunch holds that what the arguments, the environment, the images and
// the catalog say reaches the rules.
func TestPairKnowsTheLaunch(t *testing.T) {
	plain := func(changes ...func(*v1alpha1.PDPool)) *v1alpha1.PDPool {
		return vllmPool(t, append([]func(*v1alpha1.PDPool){layouts(v1alpha1.LayoutSpec{TP: 4}, v1alpha1.LayoutSpec{TP: 4})}, changes...)...)
	}
	decode := func(args ...string) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Decode.Args = args })
	}
	for name, c := range map[string]struct {
		pool *v1alpha1.PDPool
		rule string
	}{
		"an attention backend without connectors": {plain(decode("--attention-backend=ROCM_ATTN")), "attention-connector"},
		"an interconnect within a node":           {plain(spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Mover, s.Transfer.Backend = "Engine", "XGMI" })), "xgmi-wait"},
		"a length that does not fit": {plain(spec(func(s *v1alpha1.PDPoolSpec) {
			s.Model.MaxLength, s.Engine.KVCacheMemory = 1<<20, new(resource.MustParse("1Gi"))
		})), "capacity-length"},
		"images of two releases": {plain(spec(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Image = "vllm/vllm-openai-rocm:v0.32.0" })), "mixed-versions"},
	} {
		if got := ruleIDs(Check(c.pool)); !slices.Contains(got, c.rule) {
			t.Errorf("%s: told by %v, want %s", name, got, c.rule)
		}
	}
	if got := ruleIDs(Check(plain())); len(got) > 0 {
		t.Errorf("a plain pool: told by %v", got)
	}
}

// TestSimulatorTakesItsOwnArguments holds that flags of an engine that is not there
// mean nothing.
func TestSimulatorTakesItsOwnArguments(t *testing.T) {
	pool := simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
		s.Decode.Args = []string{"--attention-backend=ROCM_ATTN"}
		s.Decode.Env = []corev1.EnvVar{{Name: engine.ConvLayout, Value: "SD"}}
	}))
	r := Resolve(pool, testDefaults)
	if p := r.Pair(); p.Decode.Attention != "" || p.Decode.ConvLayout != "" || p.Decode.Version != "" {
		t.Errorf("the Simulator is taken for an engine: %+v", p.Decode)
	}
}

// TestInstancesPairByTheWire holds that what only a launch says does not part
// instances: the agents and the router, which decide, do not know of it.
func TestInstancesPairByTheWire(t *testing.T) {
	pool := vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Decode.Args = []string{"--attention-backend=ROCM_ATTN"} }))
	r := Resolve(pool, testDefaults)
	var made [2]revision
	for i, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		var err error
		if made[i].record, err = r.newRecord(pool, role, testDefaults); err != nil {
			t.Fatal(err)
		}
	}
	if problems := kvlayout.Compatible(r.Pair()); !kvlayout.Refused(problems) || !mayPair(&made[0], &made[1]) {
		t.Errorf("the launch is refused for %v, and instances may pair: %v", problems, mayPair(&made[0], &made[1]))
	}
	if p := r.Pair(); p.Decode.Attention != "ROCM_ATTN" || p.Model == nil || p.Model.AttentionHeads != r.Geometry.AttentionHeads || p.Engine != kvlayout.VLLM {
		t.Errorf("the pair has %+v", p)
	}
}

// TestVariablesFromElsewhere holds that a variable whose value the manifest does not
// have decides nothing.
func TestVariablesFromElsewhere(t *testing.T) {
	from := &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "layout"}}
	for _, c := range []struct {
		env  []corev1.EnvVar
		want string
	}{
		{nil, engine.ConvByDimension}, // the operator's
		{[]corev1.EnvVar{{Name: engine.ConvLayout, Value: "SD"}}, "SD"},
		{[]corev1.EnvVar{{Name: engine.ConvLayout, ValueFrom: from}}, ""},
	} {
		r := Resolve(vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
			s.Model.Name, s.Decode.Env = "moonshotai/Kimi-Linear-48B-A3B-Instruct", c.env
		})), testDefaults)
		if p := r.Pair(); p.Decode.ConvLayout != c.want {
			t.Errorf("%v: %q, want %q", c.env, p.Decode.ConvLayout, c.want)
		}
	}
}

// TestVersionsOfSGLang holds that releases of one engine are not taken for those of
// another.
func TestVersionsOfSGLang(t *testing.T) {
	pool := vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
		s.Engine.Type, s.Engine.Image = v1alpha1.EngineSGLang, "example/sglang:rocm7_sglang-v0.5.23"
	}))
	if r := Resolve(pool, testDefaults); r.Version != "0.5.23" {
		t.Errorf("version %q", r.Version)
	}
	if got := ruleIDs(Check(pool)); slices.Contains(got, "engine-version") {
		t.Errorf("told by %v", got)
	}
}
