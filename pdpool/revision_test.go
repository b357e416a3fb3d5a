package pdpool

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// hashes are those of a pool's two roles and its pairing key.
func hashes(pool *v1alpha1.PDPool, d Defaults) [3]string {
	r := Resolve(pool, d)
	return [3]string{r.roleRevision(&pool.Spec, kvlayout.Prefill), r.roleRevision(&pool.Spec, kvlayout.Decode), r.pairing}
}

// TestHashesStay holds the hashes of pools that exist: another value replaces
// their pods when the operator is upgraded.
func TestHashesStay(t *testing.T) {
	for name, c := range map[string]struct {
		pool *v1alpha1.PDPool
		want [3]string
	}{
		"simulator": {simulatorPool(t), [3]string{"hfhpcnlk", "9dwnpvhv", "f6ml2bbbvk76bmrf"}},
		"vllm":      {vllmPool(t), [3]string{"tjn7jprw", "2p8zlwgs", "wf6t2qqqhzzrn2nn"}},
	} {
		if got := hashes(c.pool, testDefaults); got != c.want {
			t.Errorf("%s: hashes %v, want %v", name, got, c.want)
		}
	}
}

func TestWhatChangesAHash(t *testing.T) {
	env := []corev1.EnvVar{{Name: "A", Value: "1"}}
	cpu := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	template := func(json string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(json)} }
	for name, c := range map[string]struct {
		edit                     func(s *v1alpha1.PDPoolSpec)
		prefill, decode, pairing bool
	}{
		"nothing":              {func(*v1alpha1.PDPoolSpec) {}, false, false, false},
		"defaults spelled out": {spellOut, false, false, false},
		"replicas":             {func(s *v1alpha1.PDPoolSpec) { s.Prefill.Replicas = new(int32(9)) }, false, false, false},
		"router":               {func(s *v1alpha1.PDPoolSpec) { s.Router.Replicas, s.Router.Image = 3, "x" }, false, false, false},
		"devices of a node":    {func(s *v1alpha1.PDPoolSpec) { s.GPU.DevicesPerNode = 4 }, false, false, false},
		"model":                {func(s *v1alpha1.PDPoolSpec) { s.Model.Name = "deepseek-ai/DeepSeek-V3" }, true, true, true},
		"served name":          {func(s *v1alpha1.PDPoolSpec) { s.Model.ServedName = "r1" }, true, true, false},
		"length":               {func(s *v1alpha1.PDPoolSpec) { s.Model.MaxLength = 1 }, true, true, false},
		"decode's length":      {func(s *v1alpha1.PDPoolSpec) { s.Decode.MaxLength = 1 }, false, true, false},
		"geometry": {func(s *v1alpha1.PDPoolSpec) {
			s.Model.Geometry = v1alpha1.GeometrySpec{Kind: "MLA", Layers: 1, AttentionHeads: 4, HeadValues: 576}
		}, true, true, true},
		"engine":                {func(s *v1alpha1.PDPoolSpec) { s.Engine.Type, s.Engine.Image = v1alpha1.EngineVLLM, "x" }, true, true, true},
		"image":                 {func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = "x" }, true, true, false},
		"prefill's image":       {func(s *v1alpha1.PDPoolSpec) { s.Prefill.Image = "x" }, true, false, false},
		"block size":            {func(s *v1alpha1.PDPoolSpec) { s.Engine.BlockSize = 128 }, true, true, true},
		"type":                  {func(s *v1alpha1.PDPoolSpec) { s.Engine.KVCacheType = "FP8" }, true, true, true},
		"memory":                {func(s *v1alpha1.PDPoolSpec) { s.Engine.KVCacheMemory = new(resource.MustParse("1Gi")) }, true, true, false},
		"memory in other words": {func(s *v1alpha1.PDPoolSpec) { s.Engine.KVCacheMemory = new(resource.MustParse("268435456")) }, false, false, false},
		"arguments":             {func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"a"} }, true, true, false},
		"prefill's arguments":   {func(s *v1alpha1.PDPoolSpec) { s.Prefill.Args = []string{"a"} }, true, false, false},
		"environment":           {func(s *v1alpha1.PDPoolSpec) { s.Engine.Env = env }, true, true, false},
		"decode's environment":  {func(s *v1alpha1.PDPoolSpec) { s.Decode.Env = env }, false, true, false},
		"decode's resources":    {func(s *v1alpha1.PDPoolSpec) { s.Decode.Resources = cpu }, false, true, false},
		"backend":               {func(s *v1alpha1.PDPoolSpec) { s.Transfer.Backend = v1alpha1.BackendSharedMemory }, true, true, true},
		"timeout":               {func(s *v1alpha1.PDPoolSpec) { s.Transfer.TransferTimeoutSeconds = 31 }, true, true, false},
		"drain":                 {func(s *v1alpha1.PDPoolSpec) { s.Transfer.DrainTimeoutSeconds = 31 }, true, true, false},
		"kind of GPU":           {func(s *v1alpha1.PDPoolSpec) { s.GPU.ResourceName = "amd.com/cpx_nps4" }, true, true, false},
		"decode's layout":       {func(s *v1alpha1.PDPoolSpec) { s.Decode.Layout.Interleave = 32 }, false, true, false},
		"agents' resources":     {func(s *v1alpha1.PDPoolSpec) { s.Transfer.Resources = &cpu }, true, true, false},
		"template":              {func(s *v1alpha1.PDPoolSpec) { s.Decode.Template = template(`{"spec":{"nodeSelector":{"a":"b"}}}`) }, false, true, false},
		"template with a zero":  {func(s *v1alpha1.PDPoolSpec) { s.Decode.Template = template(`{"spec":{"priority":0}}`) }, false, true, false},
		"template that adds an env": {func(s *v1alpha1.PDPoolSpec) {
			s.Decode.Template = template(`{"spec":{"containers":[{"name":"engine","env":[{"name":"A"}]}]}}`)
		}, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := hashes(simulatorPool(t), testDefaults), hashes(simulatorPool(t, spec(c.edit)), testDefaults)
			for i, want := range []bool{c.prefill, c.decode, c.pairing} {
				if got := before[i] != after[i]; got != want {
					t.Errorf("%s changed: %v, want %v", []string{"prefill", "decode", "pairing"}[i], got, want)
				}
			}
		})
	}
	other := Defaults{RouterImage: "r", AgentImage: "a", SimulatorImage: "s", Ports: PortRange{1024, 2048}}
	if hashes(simulatorPool(t), testDefaults) != hashes(simulatorPool(t), other) {
		t.Error("settings of the operator change a hash")
	}
	a := simulatorPool(t, decodeTemplate(`{"spec":{"priority":1,"nodeSelector":{"a":"b","c":"d"}}}`))
	b := simulatorPool(t, decodeTemplate(` {"spec": {"nodeSelector": {"c":"d", "a":"b"}, "priority": 1}}`))
	if hashes(a, testDefaults) != hashes(b, testDefaults) {
		t.Error("the spelling of a template changes a hash")
	}
}

// spellOut writes what the CRD's defaults write.
func spellOut(s *v1alpha1.PDPoolSpec) {
	s.Engine.KVCacheType = v1alpha1.KVCacheAuto
	s.Transfer = v1alpha1.TransferSpec{
		Mode: v1alpha1.TransferWrite, Mover: v1alpha1.MoverAuto, Backend: v1alpha1.BackendAuto,
		TransferTimeoutSeconds: 30, DeferTimeoutSeconds: 60, ReceiveAbortTimeoutSeconds: 120, DrainTimeoutSeconds: 120,
	}
	s.GPU = v1alpha1.GPUSpec{ResourceName: v1alpha1.DefaultGPUResource, DevicesPerNode: 8}
	s.Prefill.Layout.DP, s.Prefill.Layout.DCP, s.Decode.Layout.DP = 1, 1, 1
	s.Router.Mode = v1alpha1.RouterBuiltin
}

// TestHashIgnoresZeroValues holds that a field which is added and not used changes
// no hash, while places in lists count.
func TestHashIgnoresZeroValues(t *testing.T) {
	same := []string{`{"a":1}`, `{"a":1,"b":0}`, `{"a":1,"b":null,"c":"","d":false,"e":[],"f":{"g":{}}}`}
	for _, s := range same[1:] {
		if hash(8, json.RawMessage(same[0])) != hash(8, json.RawMessage(s)) {
			t.Errorf("%s and %s differ", same[0], s)
		}
	}
	different := []string{`{"a":["",1]}`, `{"a":[1]}`, `{"a":[1,""]}`, `{"a":["1"]}`}
	seen := map[string]string{}
	for _, s := range different {
		h := hash(8, json.RawMessage(s))
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s are equal", s, other)
		}
		seen[h] = s
	}
}

func TestDecisionsAreKeptForTheSameSpec(t *testing.T) {
	pool := vllmPool(t)
	pool.Status = v1alpha1.PDPoolStatus{
		ObservedGeneration: pool.Generation,
		Transfer:           v1alpha1.TransferStatus{Mover: v1alpha1.MoverAgent, MoverReason: "an older operator said so", Backend: v1alpha1.BackendTCP},
		Prefill:            v1alpha1.RoleStatus{BlockSize: 32}, Decode: v1alpha1.RoleStatus{BlockSize: 32},
	}
	r := Resolve(pool, testDefaults)
	if r.Mover != kvlayout.MoverAgent || r.MoverReason != "an older operator said so" || r.Prefill.BlockSize != 32 || r.Decode.BlockSize != 32 {
		t.Errorf("mover %s (%s), blocks %d and %d", r.Mover, r.MoverReason, r.Prefill.BlockSize, r.Decode.BlockSize)
	}
	pool.Generation++
	r = Resolve(pool, testDefaults)
	if r.Mover != kvlayout.MoverEngine || r.Prefill.BlockSize != 64 {
		t.Errorf("after a change: mover %s, block %d", r.Mover, r.Prefill.BlockSize)
	}
	pool.Generation--
	pool.Spec.Transfer.Mover, pool.Spec.Engine.BlockSize = v1alpha1.MoverEngine, 16
	r = Resolve(pool, testDefaults)
	if r.Mover != kvlayout.MoverEngine || r.Prefill.BlockSize != 16 {
		t.Errorf("what the spec says: mover %s, block %d", r.Mover, r.Prefill.BlockSize)
	}
}

func TestVersionOfBothRoles(t *testing.T) {
	for _, c := range []struct{ explicit, prefill, decode, want string }{
		{"", "vllm:v0.33.0", "vllm:v0.33.0", "0.33.0"},
		{"", "vllm:v0.33.0", "vllm:v0.31.0", "0.31.0"},
		{"", "vllm:v0.9.0", "vllm:v0.31.0", "0.9.0"},
		{"", "vllm:v0.33.0", "vllm:latest", ""},
		{"0.33.0", "vllm:latest", "vllm:latest", "0.33.0"},
	} {
		pool := vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
			s.Engine.Version, s.Engine.Image, s.Prefill.Image, s.Decode.Image = c.explicit, "", c.prefill, c.decode
		}))
		if r := Resolve(pool, testDefaults); r.Version != c.want {
			t.Errorf("%+v: version %q", c, r.Version)
		}
	}
}

func TestLongestName(t *testing.T) {
	pool := strings.Repeat("p", MaxNameLength)
	longest := podName(pool, kvlayout.Prefill, strings.Repeat("r", 8), maxReplicas-1, maxAttempts-1, maxPods-1)
	for _, name := range []string{
		longest, revisionName(pool, v1alpha1.RolePrefill, strings.Repeat("r", 8)), membersName(pool), routerName(pool), routersName(pool),
	} {
		if len(name) > 63 {
			t.Errorf("%s has %d characters", name, len(name))
		}
	}
	// The bounds are those of the CRD; that of the name is rule pool-name.
	crd, err := os.ReadFile(filepath.Join("..", "config", "crd", "bases", "pdpool.dev_pdpools.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, bound := range []string{"maximum: 256\n", "maximum: 1024\n"} {
		if !strings.Contains(string(crd), bound) {
			t.Errorf("the CRD has no %q", bound)
		}
	}
}

func TestMarksAvoidWhatTheUserWrote(t *testing.T) {
	pool := simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
		s.Decode.Env = []corev1.EnvVar{{Name: "N", Value: "1870000000"}, {Name: "M", Value: "leader-1870000101"}, {Name: "O", Value: "x1870001y"}}
	}))
	c := newCluster(t, pool, 100)
	c.reconcile()
	c.reconcile()
	for _, p := range c.pods() {
		if p.Labels[v1alpha1.LabelRole] != "decode" {
			continue
		}
		got := map[string]string{}
		for _, e := range p.Spec.Containers[0].Env {
			got[e.Name] = e.Value
		}
		if got["N"] != "1870000000" || got["M"] != "leader-1870000101" || got["O"] != "x1870001y" {
			t.Errorf("the user's variables became %v", got)
		}
		if text := string(encode(p)); strings.Contains(text, "1870002") {
			t.Error("marks are left")
		}
	}
}
