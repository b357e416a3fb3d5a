package pdpool

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// vllmPool is a pool that a stock engine serves.
func vllmPool(t testing.TB, changes ...func(*v1alpha1.PDPool)) *v1alpha1.PDPool {
	t.Helper()
	pool := readPool(t, readFile(t, filepath.Join("..", "config", "samples", "smallest.yaml")))
	for _, change := range changes {
		change(pool)
	}
	return pool
}

func spec(edit func(*v1alpha1.PDPoolSpec)) func(*v1alpha1.PDPool) {
	return func(p *v1alpha1.PDPool) { edit(&p.Spec) }
}

func layouts(prefill, decode v1alpha1.LayoutSpec) func(*v1alpha1.PDPool) {
	return spec(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Layout, s.Decode.Layout = prefill, decode })
}

func decodeTemplate(json string) func(*v1alpha1.PDPool) {
	return spec(func(s *v1alpha1.PDPoolSpec) { s.Decode.Template = &runtime.RawExtension{Raw: []byte(json)} })
}

// problemCases are manifests with something to say about.
func problemCases(t *testing.T) []struct {
	name string
	pool *v1alpha1.PDPool
} {
	type layout = v1alpha1.LayoutSpec
	gqa := spec(func(s *v1alpha1.PDPoolSpec) { s.Model.Name = "meta-llama/Llama-3.3-70B-Instruct" })
	unknown := spec(func(s *v1alpha1.PDPoolSpec) { s.Model.Name = "example/unknown" })
	backend := func(b v1alpha1.Backend) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Backend = b })
	}
	image := func(i string) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Image = i })
	}
	memory := func(q string) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.KVCacheMemory = new(resource.MustParse(q)) })
	}
	sglang := spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Type = v1alpha1.EngineSGLang })
	gpu := corev1.ResourceRequirements{Limits: corev1.ResourceList{"amd.com/gpu": resource.MustParse("4"), "cpu": resource.MustParse("8")}}
	refused := readPool(t, readFile(t, filepath.Join("..", "config", "samples", "refused.yaml")))
	return []struct {
		name string
		pool *v1alpha1.PDPool
	}{
		{"sample smallest", vllmPool(t)},
		{"sample simulator", samplePool(t)},
		{"sample refused", refused},
		{"name too long", simulatorPool(t, func(p *v1alpha1.PDPool) { p.Name = strings.Repeat("a", 31) })},
		{"name with capitals", simulatorPool(t, func(p *v1alpha1.PDPool) { p.Name = "R1" })},
		{"name generated", simulatorPool(t, func(p *v1alpha1.PDPool) { p.Name, p.GenerateName = "", "r1-" })},
		{"dpLocal does not divide dp", simulatorPool(t, layouts(layout{TP: 1, DP: 4, DPLocal: 3}, layout{TP: 1}))},
		{"heads not divisible", simulatorPool(t, gqa, layouts(layout{TP: 3}, layout{TP: 3}))},
		{"KV heads not divisible", simulatorPool(t, gqa, layouts(layout{TP: 8}, layout{TP: 8}), spec(func(s *v1alpha1.PDPoolSpec) {
			s.Model.Geometry = v1alpha1.GeometrySpec{Kind: "GQA", Layers: 4, AttentionHeads: 24, KVHeads: 6, HeadValues: 128}
		}))},
		{"dcp does not divide tp", simulatorPool(t, layouts(layout{TP: 4}, layout{TP: 4, DCP: 3, Interleave: 64}))},
		{"GQA dealt by dcp", simulatorPool(t, gqa, layouts(layout{TP: 4}, layout{TP: 4, DCP: 2, Interleave: 16}))},
		{"interleave does not divide the block", simulatorPool(t, layouts(layout{TP: 4}, layout{TP: 4, DCP: 4, Interleave: 48}))},
		{"tp that is no multiple", simulatorPool(t, gqa, layouts(layout{TP: 8}, layout{TP: 2}))},
		{"tp 6 and tp 4", simulatorPool(t, layouts(layout{TP: 6}, layout{TP: 4}), spec(func(s *v1alpha1.PDPoolSpec) {
			s.Model.Geometry = v1alpha1.GeometrySpec{Kind: "GQA", Layers: 4, AttentionHeads: 12, KVHeads: 12, HeadValues: 128}
		}))},
		{"prefill dcp 2, decode dcp 4", simulatorPool(t, layouts(layout{TP: 4, DCP: 2, Interleave: 16}, layout{TP: 4, DCP: 4, Interleave: 16}))},
		{"unequal interleave", simulatorPool(t, layouts(layout{TP: 4, DCP: 4, Interleave: 16}, layout{TP: 4, DCP: 4, Interleave: 64}))},
		{"unequal tp in an old vLLM", vllmPool(t, gqa, image("vllm/vllm-openai-rocm:v0.31.0"), layouts(layout{TP: 8}, layout{TP: 4}))},
		{"unequal tp in an unknown vLLM", vllmPool(t, gqa, image("example/vllm:latest"), layouts(layout{TP: 8}, layout{TP: 4}))},
		{"dcp with a stock vLLM", vllmPool(t, layouts(layout{TP: 4}, layout{TP: 4, DCP: 4, Interleave: 64}))},
		{"dcp with a stock vLLM's own connector", vllmPool(t, layouts(layout{TP: 4}, layout{TP: 4, DCP: 4, Interleave: 64}),
			spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Mover = v1alpha1.MoverEngine }))},
		{"unequal blocks and types", simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
			s.Decode.BlockSize, s.Decode.KVCacheType = 128, v1alpha1.KVCacheFP8
		}))},
		{"more GPUs than a node has", simulatorPool(t, layouts(layout{TP: 16}, layout{TP: 16}))},
		{"pods of whole nodes", simulatorPool(t, layouts(layout{TP: 2, DP: 8}, layout{TP: 2, DP: 8}))},
		{"more ranks than ports", vllmPool(t, layouts(layout{TP: 32}, layout{TP: 32}), spec(func(s *v1alpha1.PDPoolSpec) { s.GPU.DevicesPerNode = 64 }))},
		{"unknown model", vllmPool(t, unknown)},
		{"unknown model in the Simulator", simulatorPool(t, unknown)},
		{"SGLang", vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Type = v1alpha1.EngineSGLang }))},
		{"read", vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Mode = v1alpha1.TransferRead }))},
		{"vLLM with mover Agent", vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Mover = v1alpha1.MoverAgent }))},
		{"Simulator with mover Engine", simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Mover = v1alpha1.MoverEngine }))},
		{"Simulator over RDMA", simulatorPool(t, backend(v1alpha1.BackendRDMA))},
		{"vLLM over TCP", vllmPool(t, backend(v1alpha1.BackendTCP))},
		{"shared memory", simulatorPool(t, backend(v1alpha1.BackendSharedMemory))},
		{"shared memory with two replicas", simulatorPool(t, backend(v1alpha1.BackendSharedMemory), replicas(2, 2))},
		{"shared memory with unequal replicas", simulatorPool(t, backend(v1alpha1.BackendSharedMemory), replicas(2, 1))},
		{"shared memory on too small a node", simulatorPool(t, backend(v1alpha1.BackendSharedMemory), layouts(layout{TP: 8}, layout{TP: 8}))},
		{"owned arguments", simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
			s.Engine.Args = []string{"--enforce-eager", "-tp", "2"}
			s.Engine.Env = []corev1.EnvVar{{Name: "HF_TOKEN"}, {Name: "VLLM_PORT", Value: "1"}}
			s.Decode.Args = []string{"--decode_context_parallel_size=4"}
			s.Prefill.Env = []corev1.EnvVar{{Name: "PDPOOL_AGENT_CONFIG"}}
		}))},
		{"owned arguments in a template", simulatorPool(t, decodeTemplate(`{"spec":{"containers":[{"name":"side"},{"name":"engine","args":["--port=1"],"env":[{"name":"VLLM_HOST_IP"}]}]}}`))},
		{"template", simulatorPool(t, decodeTemplate(`{"metadata":{"labels":{"team":"a"}},"spec":{"nodeSelector":{"a":"b"},"priorityClassName":"high",
			"containers":[{"name":"engine","args":["--enforce-eager"],"startupProbe":{"failureThreshold":9}},{"name":"side","image":"x"}],
			"initContainers":[{"name":"transfer-agent","resources":{"limits":{"cpu":"2"}}}]}}`))},
		{"template with fields of the operator", simulatorPool(t, decodeTemplate(`{"metadata":{"name":"x","labels":{"pdpool.dev/role":"decode"},"annotations":{"pdpool.dev/ports":"{}"}},
			"spec":{"restartPolicy":"Always","hostname":"h","subdomain":"s","nodeName":"n","schedulingGroup":{},"hostNetwork":true}}`))},
		{"template with containers of the operator", simulatorPool(t, decodeTemplate(`{"spec":{
			"containers":[{"name":"engine","command":["sh"],"image":"x","lifecycle":{"preStop":{"sleep":{"seconds":1}}}},{"name":"transfer-agent"}],
			"initContainers":[{"name":"transfer-agent","command":["sh"],"ports":[{"containerPort":1}],"readinessProbe":{"periodSeconds":1},"env":[{"name":"PDPOOL_NODE"}]}],
			"volumes":[{"name":"kv-socket"}]}}`))},
		{"version of the Simulator", simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Version = "0.33.0" }))},
		{"version that is none", vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Version = "latest" }))},
		{"template with empty values", simulatorPool(t, decodeTemplate(`{"spec":{"containers":[{"name":"engine","command":[],"image":"","lifecycle":{}}],
			"initContainers":[{"name":"transfer-agent","image":"","args":[],"readinessProbe":{}}]}}`))},
		{"template that takes what engine and agent share", simulatorPool(t, decodeTemplate(`{"spec":{"hostnameOverride":"h",
			"containers":[{"name":"engine","ports":[{"name":"http","containerPort":1}],"volumeMounts":[{"name":"x","mountPath":"/run/pdpool/"}]}],
			"initContainers":[{"name":"transfer-agent","volumeMounts":[{"name":"x","mountPath":"/run/pdpool-shared"}]}],
			"volumes":[{"name":"shm","hostPath":{"path":"/"}},{"name":"x","emptyDir":{}}]}}`))},
		{"template with shared memory on a disk", simulatorPool(t, decodeTemplate(`{"spec":{"volumes":[{"name":"shm","emptyDir":{"medium":""}}]}}`))},
		{"template with a container twice", simulatorPool(t, decodeTemplate(`{"spec":{"containers":[{"name":"engine"},{"name":"engine","args":["--port=1"]}]}}`))},
		{"template with unknown fields", simulatorPool(t, decodeTemplate(`{"spec":{"nodeselector":{"a":"b"},"containers":[{"name":"engine","imagePullPolcy":"Always"}]}}`))},
		{"template of another type", simulatorPool(t, decodeTemplate(`{"spec":{"containers":{"name":"engine"}}}`))},
		{"template with directives", simulatorPool(t, decodeTemplate(`{"spec":{"tolerations":null,"containers":[{"name":"side","$patch":"delete"}]}}`))},
		{"template that is too large", simulatorPool(t, decodeTemplate(`{"metadata":{"annotations":{"a":"`+strings.Repeat("x", maxTemplate)+`"}}}`))},
		{"GPUs for agents, and the pool's secret elsewhere", simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Resources = &gpu }),
			decodeTemplate(`{"spec":{"containers":[{"name":"engine","volumeMounts":[{"name":"pool-key","mountPath":"/key"}]},
				{"name":"side","image":"x","volumeMounts":[{"name":"pool-key","mountPath":"/key"}]}]}}`))},
		{"the pool's secret replaced", simulatorPool(t, decodeTemplate(`{"spec":{"volumes":[{"name":"pool-key","secret":{"secretName":"mine"}}],
			"initContainers":[{"name":"transfer-agent","volumeMounts":[{"name":"mine","mountPath":"/etc/pdpool/key/"}]}]}}`))},
		{"a vLLM older than any that is known", vllmPool(t, image("vllm/vllm-openai-rocm:v0.28.0"))},
		{"memory for less than a block", simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.KVCacheMemory = new(resource.MustParse("4Mi")) }))},
		{"memory that is none", simulatorPool(t, memory("0"))},
		{"memory below none", simulatorPool(t, memory("-1Ei"))},
		{"memory of no GPU", simulatorPool(t, memory("1e30"))},
		{"memory of more than 64 bits", simulatorPool(t, memory("10000000000000Ei"))},
		{"memory of a hybrid model for less than a block", vllmPool(t, memory("1Mi"), spec(func(s *v1alpha1.PDPoolSpec) {
			s.Model.Name = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
		}))},
		{"an SGLang older than any that is known", vllmPool(t, sglang, image("lmsysorg/sglang:v0.5.9-rocm700"))},
		{"SGLang with arguments of the operator", vllmPool(t, sglang, image("lmsysorg/sglang:v0.5.23-rocm700"), spec(func(s *v1alpha1.PDPoolSpec) {
			s.Prefill.Args = []string{"--disaggregation-mode=decode", "--disaggregation-bootstrap-port", "8998", "--dcp-size", "2", "--pp-size=2"}
		}))},
		{"stages of vLLM", vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--pipeline-parallel-size", "2"} }))},
		{"arguments of several words", vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
			s.Engine.Args = []string{"--gpu-memory-utilization 0.9", "--chat-template={ a }", "--hf-overrides", `{"a": 1}`, "--port 8000"}
		}), decodeTemplate(`{"spec":{"containers":[{"name":"engine","args":["--max-num-seqs\t8"]}]}}`))},
		{"windows in Write mode", vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Model.Name = "openai/gpt-oss-120b" }))},
		{"GPU resources", simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Resources = gpu }),
			decodeTemplate(`{"spec":{"containers":[{"name":"engine","resources":{"requests":{"amd.com/cpx_nps4":"1","memory":"1Gi"}}}]}}`))},
		{"several mistakes at once", simulatorPool(t, gqa, backend(v1alpha1.BackendXGMI), layouts(layout{TP: 3}, layout{TP: 4, DCP: 2, Interleave: 5}))},
	}
}

// tell is what a user reads of a pool.
func tell(pool *v1alpha1.PDPool) string {
	refusals, warnings := Validate(nil, pool)
	var b strings.Builder
	if len(refusals)+len(warnings) == 0 {
		b.WriteString("admitted\n")
	}
	for _, e := range FieldErrors(pool, refusals) {
		fmt.Fprintf(&b, "refused: %s\n", e.Error())
	}
	for _, w := range Sentences(warnings) {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}

func TestProblems(t *testing.T) {
	var b strings.Builder
	for _, c := range problemCases(t) {
		fmt.Fprintf(&b, "## %s\n%s\n", c.name, tell(c.pool))
	}
	golden(t, filepath.Join("testdata", "problems.txt"), b.String())
}

// TestProblemsAreWhole holds that each problem says what, why and what to do.
func TestProblemsAreWhole(t *testing.T) {
	for _, c := range problemCases(t) {
		for _, p := range Check(c.pool) {
			if p.Field == "" || p.Message == "" || p.Reason == "" || p.Fix == "" {
				t.Errorf("%s: %+v", c.name, p)
			}
			if c.pool.Spec.Engine.Type == v1alpha1.EngineVLLM && strings.Contains(p.Fix, "mover to Agent") || strings.Contains(p.Fix, "mode to Read") {
				t.Errorf("%s: the fix is refused itself: %s", c.name, p.Fix)
			}
		}
	}
}

// TestRulesHaveCases holds that each rule has a case that breaks it, and that the
// catalog has each.
func TestRulesHaveCases(t *testing.T) {
	told := map[string]bool{}
	for _, c := range problemCases(t) {
		for _, p := range Check(c.pool) {
			told[p.Rule] = true
		}
	}
	for _, rule := range []string{
		"pool-name", "degrees", "heads-tp", "kv-heads-tp", "dcp-tp", "dcp-gqa", "interleave-block", "tp-multiple", "dcp-mix", "dcp-interleave",
		"dcp-mla", "block-size", "kv-type", "gpus-per-pod", "args-owned", "template-owned", "gpus-resources", "mover-unavailable", "backend-host",
		"ports-overlap", "model-geometry", "engine-version", "kv-memory", "args-words",
	} {
		if !told[rule] {
			t.Errorf("no case breaks rule %s", rule)
		}
		delete(told, rule)
	}
	known := map[string]bool{}
	for _, r := range Rules() {
		if known[r.ID] || r.Description == "" || r.Reason == "" {
			t.Errorf("rule %+v", r)
		}
		known[r.ID] = true
	}
	for rule := range told {
		if !known[rule] {
			t.Errorf("rule %s is not in the catalog", rule)
		}
	}
}

// TestAdmittedPoolsRender holds that what is admitted can be turned into pods.
func TestAdmittedPoolsRender(t *testing.T) {
	for _, c := range problemCases(t) {
		if kvlayout.Refused(Check(c.pool)) {
			continue
		}
		if c.pool.Name == "" {
			c.pool.Name = "r1-abcde"
		}
		plan := Compute(c.pool, Observed{}, testDefaults)
		if plan.Reason == v1alpha1.ReasonInvalidSpec {
			t.Errorf("%s: admitted, but %s", c.name, plan.Message)
		}
	}
}

func TestUpdates(t *testing.T) {
	wrong := simulatorPool(t, layouts(v1alpha1.LayoutSpec{TP: 4, DCP: 2, Interleave: 64}, v1alpha1.LayoutSpec{TP: 4, DCP: 4, Interleave: 64}))
	edit := func(pool *v1alpha1.PDPool, edits ...func(*v1alpha1.PDPool)) *v1alpha1.PDPool {
		pool = pool.DeepCopy()
		for _, e := range edits {
			e(pool)
		}
		return pool
	}
	label := func(p *v1alpha1.PDPool) { p.Labels = map[string]string{"a": "b"} }
	deleting := func(p *v1alpha1.PDPool) { p.DeletionTimestamp = new(metav1.Now()) }
	running := func(p *v1alpha1.PDPool) { p.Status.Decode.Replicas = new(int32(1)) }
	owned := func(args ...string) *v1alpha1.PDPool {
		return simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = args }))
	}
	chosen := func(p *v1alpha1.PDPool) {
		p.Status.ObservedGeneration, p.Status.Transfer.Mover, p.Status.Transfer.MoverReason = p.Generation, v1alpha1.MoverEngine, "an older operator took it"
	}
	otherModel := spec(func(s *v1alpha1.PDPoolSpec) { s.Model.Name = "deepseek-ai/DeepSeek-V3" })
	for name, c := range map[string]struct {
		old, pool         *v1alpha1.PDPool
		refused, warnings []string // rules
	}{
		"unchanged spec of an old mistake":    {wrong, edit(wrong, label), nil, []string{"dcp-mix"}},
		"deletion of an old mistake":          {wrong, edit(wrong, deleting, replicas(0, 0), spec(dcp)), nil, nil},
		"scale-down of an old mistake":        {wrong, edit(wrong, replicas(1, 0)), nil, []string{"dcp-mix"}},
		"another mistake on top":              {wrong, edit(wrong, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Args = []string{"--port", "1"} })), []string{"args-owned"}, []string{"dcp-mix"}},
		"the same mistake with other values":  {wrong, edit(wrong, spec(func(s *v1alpha1.PDPoolSpec) { s.Decode.Layout.TP = 8; s.Decode.Layout.DCP = 8 })), []string{"dcp-mix"}, nil},
		"a new mistake":                       {simulatorPool(t), wrong, []string{"dcp-mix"}, nil},
		"another model while idle":            {simulatorPool(t), simulatorPool(t, otherModel), nil, []string{"generation-change"}},
		"another model while running":         {simulatorPool(t, running), simulatorPool(t, running, otherModel), []string{"fixed-field"}, nil},
		"another block size":                  {simulatorPool(t), simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.BlockSize = 128 })), nil, []string{"generation-change"}},
		"another tp that can't mix":           {simulatorPool(t, layouts(v1alpha1.LayoutSpec{TP: 4}, v1alpha1.LayoutSpec{TP: 4})), simulatorPool(t, layouts(v1alpha1.LayoutSpec{TP: 8, DCP: 2, Interleave: 64}, v1alpha1.LayoutSpec{TP: 4, DCP: 2, Interleave: 64})), nil, []string{"generation-change"}},
		"a layout that mixes":                 {simulatorPool(t, layouts(v1alpha1.LayoutSpec{TP: 4}, v1alpha1.LayoutSpec{TP: 4})), simulatorPool(t, layouts(v1alpha1.LayoutSpec{TP: 4}, v1alpha1.LayoutSpec{TP: 8})), nil, nil},
		"an old mistake moved in its list":    {owned("--port=1"), owned("--seed=1", "--port=1"), nil, []string{"args-owned"}},
		"an old mistake made twice":           {owned("--port=1"), owned("--port=1", "--port=1"), []string{"args-owned"}, []string{"args-owned"}},
		"one old mistake of two mended":       {owned("--port=1", "--tensor-parallel-size=2"), owned("--port=1"), nil, []string{"args-owned"}},
		"one old mistake for another":         {owned("--port=1"), owned("--tensor-parallel-size=2"), []string{"args-owned"}, nil},
		"two new mistakes and an old one":     {owned("--port=1"), edit(owned("--port=1"), spec(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Layout.DCP = 2; s.Decode.Layout.Interleave = 48 })), []string{"interleave-block", "dcp-mix"}, []string{"args-owned"}},
		"another model and a mistake":         {simulatorPool(t, running), simulatorPool(t, running, otherModel, spec(func(s *v1alpha1.PDPoolSpec) { s.Prefill.Layout.DCP = 2 })), []string{"dcp-mix", "fixed-field"}, nil},
		"a status of an old mistake":          {wrong, edit(wrong, running), nil, []string{"dcp-mix"}},
		"more replicas":                       {simulatorPool(t), simulatorPool(t, replicas(3, 3)), nil, nil},
		"a mover that is not chosen any more": {simulatorPool(t, chosen), simulatorPool(t, chosen, replicas(3, 3)), nil, []string{"generation-change"}},
	} {
		t.Run(name, func(t *testing.T) {
			refusals, warnings := Validate(c.old, c.pool)
			if got := ruleIDs(refusals); !slices.Equal(got, c.refused) {
				t.Errorf("refused by %v, want %v", got, c.refused)
			}
			if got := ruleIDs(warnings); !slices.Equal(got, c.warnings) {
				t.Errorf("warned by %v, want %v", got, c.warnings)
			}
		})
	}
}

func ruleIDs(problems []kvlayout.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Rule)
	}
	return out
}

// TestDecoderVersion holds that the sentence names the version of the library.
func TestDecoderVersion(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	minor := strings.TrimPrefix(decoderVersion, "1.")
	if !strings.Contains(string(data), "k8s.io/api v0."+minor+".") {
		t.Errorf("go.mod does not have k8s.io/api v0.%s", minor)
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add(`{"spec":{"containers":[{"name":"engine","args":["--port=1"]}]}}`)
	f.Add(`{"metadata":{"labels":null},"spec":{"$patch":"replace"}}`)
	f.Add(`[]`)
	f.Add(`{"spec":{"containers":[null]}}`)
	f.Fuzz(func(t *testing.T, template string) {
		pool := simulatorPool(t, decodeTemplate(template))
		problems := Check(pool)
		FieldErrors(pool, problems)
		plan := Compute(pool, Observed{}, testDefaults)
		if kvlayout.Refused(problems) {
			return
		}
		// What is admitted can be rendered.
		if plan.Reason == v1alpha1.ReasonInvalidSpec {
			t.Errorf("admitted, but %s", plan.Message)
		}
	})
}

// TestDocsListRules holds that docs/api.md names every rule, and no other.
func TestDocsListRules(t *testing.T) {
	page := string(readFile(t, filepath.Join("..", "docs", "api.md")))
	_, table, _ := strings.Cut(page, "| rule | refuses |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	named := map[string]bool{}
	for row := range strings.SplitSeq(table, "\n") {
		first, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
		for rule := range strings.SplitSeq(first, ",") {
			named[strings.Trim(rule, " `")] = true
		}
	}
	for _, r := range Rules() {
		if !named[r.ID] {
			t.Errorf("docs/api.md lacks rule %s", r.ID)
		}
		delete(named, r.ID)
	}
	for rule := range named {
		t.Errorf("docs/api.md names rule %q, which there is not", rule)
	}
}

// TestRefusedUpdateWarnsOfNoGeneration holds that what does not come about is not
// announced.
func TestRefusedUpdateWarnsOfNoGeneration(t *testing.T) {
	old := simulatorPool(t)
	other := simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.BlockSize = 128 }))
	generation := func(warnings []kvlayout.Problem) bool {
		return slices.ContainsFunc(warnings, func(p kvlayout.Problem) bool { return p.Rule == "generation-change" })
	}
	if refusals, warnings := Validate(old, other); len(refusals) > 0 || !generation(warnings) {
		t.Errorf("refusals %v, warnings %v", refusals, warnings)
	}
	other.Spec.Decode.Layout.Interleave = 48
	if refusals, warnings := Validate(old, other); len(refusals) == 0 || generation(warnings) {
		t.Errorf("refusals %v, warnings %v", refusals, warnings)
	}
}

// TestDeadVariables holds that variables which an engine does not look at are told,
// and that nothing is told twice.
func TestDeadVariables(t *testing.T) {
	env := func(name, value string) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Env = []corev1.EnvVar{{Name: "A"}, {Name: name, Value: value}} })
	}
	version := func(v string) func(*v1alpha1.PDPool) {
		return spec(func(s *v1alpha1.PDPoolSpec) { s.Engine.Version = v })
	}
	for name, c := range map[string]struct {
		pool *v1alpha1.PDPool
		want string // the field, "" for none
	}{
		"dead":                   {vllmPool(t, env("VLLM_MORIIO_QP_PER_TRANSFER", "4")), "engine.env[1]"},
		"alive in that version":  {vllmPool(t, env("VLLM_MORIIO_QP_PER_TRANSFER", "4"), version("0.22.0")), ""},
		"a trap":                 {vllmPool(t, env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")), "engine.env[1]"},
		"no trap":                {vllmPool(t, env("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")), ""},
		"of the Simulator":       {simulatorPool(t, env("VLLM_USE_V1", "1")), ""},
		"of a role":              {vllmPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.Decode.Env = []corev1.EnvVar{{Name: "VLLM_USE_V1"}} })), "decode.env[0]"},
		"of a template":          {vllmPool(t, decodeTemplate(`{"spec":{"containers":[{"name":"engine","env":[{"name":"VLLM_USE_V1","value":"1"}]}]}}`)), "decode.template.spec.containers[0].env[0]"},
		"the operator's own too": {vllmPool(t, env("VLLM_PORT", "tcp://10.0.0.1:80")), ""},
	} {
		var fields []string
		for _, p := range Check(c.pool) {
			if p.Rule != "args-env-dead" {
				continue
			}
			if fields = append(fields, p.Field); p.Severity != kvlayout.Warn {
				t.Errorf("%s: refused", name)
			}
		}
		if got := strings.Join(fields, " "); got != c.want {
			t.Errorf("%s: told at %q, want %q", name, got, c.want)
		}
	}
}

func TestPartitionRule(t *testing.T) {
	for name, c := range map[string]struct {
		resource, partition string
		warns               bool
	}{
		"whole devices":   {"amd.com/gpu", "cpx_nps4", false},
		"equal":           {"amd.com/cpx_nps4", "cpx_nps4", false},
		"no label asked":  {"amd.com/cpx_nps4", "", false},
		"two kinds":       {"amd.com/cpx_nps4", "spx_nps1", true},
		"somebody else's": {"example.com/cpx_nps4", "spx_nps1", false},
	} {
		pool := simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.GPU.ResourceName, s.GPU.Partition = c.resource, c.partition }))
		if got := slices.Contains(ruleIDs(Check(pool)), "gpu-partition"); got != c.warns {
			t.Errorf("%s: warned %v", name, got)
		}
	}
}

// BenchmarkCheck is the webhook's work for one manifest.
func BenchmarkCheck(b *testing.B) {
	for name, pool := range map[string]*v1alpha1.PDPool{"vLLM": vllmPool(b), "Simulator": simulatorPool(b)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Check(pool)
			}
		})
	}
}

// TestSampleHoldsItsLength holds that the cache of the sample takes a sequence of the
// longest length that it admits, on the role that has the least room.
func TestSampleHoldsItsLength(t *testing.T) {
	r := Resolve(samplePool(t), testDefaults)
	for _, s := range []*Side{&r.Prefill, &r.Decode} {
		blocks := r.KVMemory / (kvlayout.TokenBytes(r.Geometry, s.KVType, s.Layout) * int64(s.BlockSize))
		if tokens := blocks * int64(s.BlockSize*s.Layout.DCP); tokens < int64(s.MaxLength) {
			t.Errorf("%s holds %d tokens in %d blocks, and admits sequences of %d", s.Role, tokens, blocks, s.MaxLength)
		}
	}
}
