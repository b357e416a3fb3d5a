package cli

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/pdpool"
)

// TestPoolsAndCommandLinesAgree holds that a pool and the command lines that it is
// rendered to break the same rules with the same words: for random pools of vLLM, all
// that a user may say of layouts, caches, arguments, environment and images included.
func TestPoolsAndCommandLinesAgree(t *testing.T) {
	const pools = 1500
	compared, broken := 0, map[string]bool{}
	for seed := range uint64(pools) {
		pool := randomPool(rand.New(rand.NewPCG(seed, 1)))
		r := pdpool.Resolve(pool, pdpool.Defaults{})
		prefill, err1 := commandOf(&r, kvlayout.Prefill)
		decode, err2 := commandOf(&r, kvlayout.Decode)
		if err1 != nil || err2 != nil {
			t.Fatalf("pool %d: %v, %v", seed, err1, err2)
		}
		flags := commandFlags{prefill: prefill, decode: decode, engine: string(r.Engine), version: pool.Spec.Engine.Version}
		pair, err := Options{}.readPair(flags)
		if err != nil {
			t.Fatalf("pool %d: %v\n%s\n%s", seed, err, prefill, decode)
		}
		if len(pair.apart) > 0 {
			t.Errorf("pool %d: %v", seed, pair.apart)
		}
		// Command lines don't say what a node has, on which fixes depend.
		pair.pair.Prefill.DevicesPerNode, pair.pair.Decode.DevicesPerNode = r.DevicesPerNode, r.DevicesPerNode
		want, got := sayings(kvlayout.Compatible(r.Pair())), sayings(kvlayout.Compatible(pair.pair))
		if slices.ContainsFunc(want, func(s string) bool { return strings.HasPrefix(s, "gpus-per-pod") }) {
			continue // what only a pool can break: command lines don't say what a node has
		}
		if !slices.Equal(want, got) {
			t.Fatalf("pool %d: the pool\n  %s\nits command lines\n  %s\n%s\n%s", seed, strings.Join(want, "\n  "), strings.Join(got, "\n  "), prefill, decode)
		}
		compared++
		for _, s := range got {
			rule, _, _ := strings.Cut(s, " ")
			broken[rule] = true
		}
	}
	// What is compared has to be worth it.
	if compared < pools/2 || len(broken) < 25 {
		t.Errorf("%d pools compared, of which %d rules were broken", compared, len(broken))
	}
}

// sayings are problems but for the fields, which differ.
func sayings(problems []kvlayout.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%s %s: %s; %s; %s", p.Rule, p.Severity, p.Message, p.Reason, p.Fix))
	}
	return out
}

// commandOf is what a person would paste of a role's first pod: docker run with the
// image, the environment and the arguments that the operator renders.
func commandOf(r *pdpool.Resolved, role kvlayout.Role) (string, error) {
	s := r.Side(role)
	backend := engine.RDMA
	if r.Backend == "XGMI" {
		backend = engine.XGMI
	}
	c, err := engine.Render(engine.Input{
		Kind: r.Engine, Role: role, Model: r.Model, Served: r.Served, Geometry: r.Geometry, Layout: s.Layout,
		BlockSize: s.BlockSize, KVType: s.KVType, KVMemory: r.KVMemory, MaxLength: s.MaxLength,
		Mover: kvlayout.MoverEngine, Mode: kvlayout.Write, Backend: backend, Timeouts: engine.Timeouts{Transfer: 30, Defer: 60, ReceiveAbort: 120},
		Ports: engine.Ports{HTTP: 8000, Ping: 8001, RPC: 8002, VLLM: 8003, Handshake: 8100, Notify: 8200},
		Pods:  s.Pods, Leader: "leader", Args: s.Args,
	})
	if err != nil {
		return "", err
	}
	words := []string{"docker", "run", "--rm"}
	for _, e := range c.Env {
		if e.Field == "" {
			words = append(words, "-e", shellWord(e.Name+"="+e.Value))
		}
	}
	for _, e := range s.Env {
		words = append(words, "-e", shellWord(e.Name+"="+e.Value))
	}
	words = append(words, s.Image)
	for _, a := range slices.Concat(c.Command, c.Args) {
		words = append(words, shellWord(a))
	}
	return strings.Join(words, " "), nil
}

// randomPool is a pool of vLLM with its own connector.
func randomPool(rng *rand.Rand) *v1alpha1.PDPool {
	models := []string{
		"deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3.2", "Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B", "meta-llama/Llama-3.3-70B-Instruct",
		"openai/gpt-oss-120b", "moonshotai/Kimi-Linear-48B-A3B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen/Qwen3.5-397B-A17B",
		"meta-llama/Llama-4-Scout-17B-16E-Instruct", "google/gemma-3-27b-it", "/models/something",
	}
	p := &v1alpha1.PDPool{}
	p.Name = "pool"
	s := &p.Spec
	s.Model.Name = pick(rng, models...)
	if rng.IntN(6) == 0 {
		s.Model.Name, s.Model.ServedName = "/models/x", s.Model.Name
	}
	s.Model.MaxLength = pick[int32](rng, 0, 0, 4096, 131072)
	s.Engine = v1alpha1.EngineSpec{
		Type: v1alpha1.EngineVLLM, Image: image(rng), Version: pick(rng, "", "", "", "0.33.0", "0.32.0", "0.34.0"),
		BlockSize: pick[int32](rng, 0, 16, 64, 128, 2048), KVCacheType: pick(rng, v1alpha1.KVCacheType(""), "", "FP8", "BF16"),
		Args: args(rng), Env: env(rng),
	}
	if rng.IntN(3) == 0 {
		s.Engine.KVCacheMemory = new(resource.MustParse(pick(rng, "1Gi", "40Gi", "90Gi")))
	}
	s.Transfer = v1alpha1.TransferSpec{Mover: v1alpha1.MoverEngine, Backend: pick(rng, v1alpha1.Backend("RDMA"), "RDMA", "XGMI")}
	for _, role := range []*v1alpha1.RoleSpec{&s.Prefill, &s.Decode} {
		role.Layout = layout(rng)
		role.Args, role.Env = args(rng), env(rng)
		if rng.IntN(6) == 0 {
			role.BlockSize = pick[int32](rng, 16, 32, 64)
		}
		if rng.IntN(6) == 0 {
			role.KVCacheType = "FP8"
		}
		if rng.IntN(6) == 0 {
			role.MaxLength = 8192
		}
		if rng.IntN(6) == 0 {
			role.Image = image(rng)
		}
	}
	if rng.IntN(2) == 0 { // as equal pairs are what people run
		s.Decode.Layout = s.Prefill.Layout
	}
	return p
}

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func image(rng *rand.Rand) string {
	return "vllm/vllm-openai-rocm:" + pick(rng, "v0.33.0", "v0.33.0", "v0.32.0", "v0.32.1", "v0.26.0", "nightly", "rocm7.0_vllm_0.33.0")
}

func layout(rng *rand.Rand) v1alpha1.LayoutSpec {
	l := v1alpha1.LayoutSpec{TP: pick[int32](rng, 1, 2, 3, 4, 8), DP: pick[int32](rng, 0, 0, 0, 2, 4), DCP: pick[int32](rng, 0, 0, 2, 4)}
	if l.DP > 0 && rng.IntN(2) == 0 {
		l.DPLocal = pick[int32](rng, 1, 2)
	}
	if l.DCP > 0 && rng.IntN(2) == 0 {
		l.Interleave = pick[int32](rng, 1, 16, 48, 64)
	}
	return l
}

func args(rng *rand.Rand) []string {
	var out []string
	for _, a := range [][]string{
		{"--enable-expert-parallel"},
		{"--all2all-backend", "mori"},
		{"--all2all_backend=mori_low_latency"},
		{"--attention-backend", "ROCM_ATTN"},
		{"--attention-backend=ROCM_AITER_FA"},
		{"--attention-backend", "TRITON_MLA"},
		{"--speculative-config", `{"method":"mtp","num_speculative_tokens":2}`},
		{"--speculative-config", `{"model":"org/draft","num_speculative_tokens":3}`},
		{"--speculative-config.method", "dspark"},
		{"--disable-hybrid-kv-cache-manager"},
		{"--no-enable-prefix-caching"},
		{"--mamba-cache-mode", "align"},
		{"--max-num-batched-tokens", "512"},
		{"--num-gpu-blocks-override", "500"},
		{"--revision", pick(rng, "a", "b")},
	} {
		if rng.IntN(20) == 0 {
			out = append(out, a...)
		}
	}
	return out
}

func env(rng *rand.Rand) []corev1.EnvVar {
	if rng.IntN(12) > 0 {
		return nil
	}
	return []corev1.EnvVar{{Name: engine.ConvLayout, Value: pick(rng, "DS", "SD", "")}}
}

// TestEqualPairsAgree holds for pairs that people asked about that a pool and command
// lines which are not rendered from it get the same verdict.
func TestEqualPairsAgree(t *testing.T) {
	const nemotron = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
	for _, c := range []struct {
		name, model             string
		prefill, decode         string // arguments beside the layout
		prefillTP, decodeTP     int32
		prefillEnv, decodeEnv   string
		rule                    string // that is broken on both, "" none at all
		onlyLines               bool   // the operator sets it for a pool, which then breaks none
		blockSize, decodeBlocks int32
	}{
		{name: "experts on decode only", model: "deepseek-ai/DeepSeek-R1", decode: "--enable-expert-parallel", prefillTP: 8, decodeTP: 8},
		{name: "the old name of mori", model: "deepseek-ai/DeepSeek-R1", decode: "--enable-expert-parallel --all2all-backend mori", prefillTP: 8, decodeTP: 8, rule: "all-to-all"},
		{name: "DS on both", model: nemotron, prefillTP: 1, decodeTP: 2, prefillEnv: "DS", decodeEnv: "DS", blockSize: 4096},
		{name: "SD on decode", model: nemotron, prefillTP: 1, decodeTP: 2, prefillEnv: "DS", decodeEnv: "SD", blockSize: 4096, rule: "conv-layout"},
		{name: "unset on both", model: nemotron, prefillTP: 1, decodeTP: 2, blockSize: 4096, rule: "conv-layout", onlyLines: true},
		{name: "a draft model by its name alone", model: nemotron, prefillTP: 2, decodeTP: 2, prefillEnv: "DS", decodeEnv: "DS", blockSize: 4096, decode: "--spec-model org/draft", rule: "hybrid-shape"},
		{name: "two revisions", model: "deepseek-ai/DeepSeek-R1", prefillTP: 8, decodeTP: 8, prefill: "--revision a", decode: "--revision b", rule: "model-same"},
		{name: "unequal blocks", model: "Qwen/Qwen3-32B", prefillTP: 4, decodeTP: 4, blockSize: 16, decodeBlocks: 32, rule: "block-size"},
	} {
		const release = "vllm/vllm-openai-rocm:v0.33.0"
		pool := &v1alpha1.PDPool{}
		pool.Name = "pool"
		blocks := max(c.blockSize, 64)
		pool.Spec = v1alpha1.PDPoolSpec{
			Model:   v1alpha1.ModelSpec{Name: c.model},
			Engine:  v1alpha1.EngineSpec{Type: v1alpha1.EngineVLLM, Image: release, BlockSize: blocks},
			Prefill: v1alpha1.RoleSpec{Layout: v1alpha1.LayoutSpec{TP: c.prefillTP}, Args: strings.Fields(c.prefill), Env: convEnv(c.prefillEnv)},
			Decode:  v1alpha1.RoleSpec{Layout: v1alpha1.LayoutSpec{TP: c.decodeTP}, Args: strings.Fields(c.decode), Env: convEnv(c.decodeEnv), BlockSize: c.decodeBlocks},
		}
		line := func(kvRole, args, conv string, tp, blocks int32) string {
			text := vllm(kvRole, fmt.Sprintf("%s --block-size %d -tp %d %s", c.model, blocks, tp, args))
			text = strings.TrimPrefix(text, "VLLM_SSM_CONV_STATE_LAYOUT=DS ")
			if conv != "" {
				text = "VLLM_SSM_CONV_STATE_LAYOUT=" + conv + " " + text
			}
			return text
		}
		if c.decodeBlocks == 0 {
			c.decodeBlocks = blocks
		}
		lines := checkPair(t, line("kv_producer", c.prefill, c.prefillEnv, c.prefillTP, blocks),
			line("kv_consumer", c.decode, c.decodeEnv, c.decodeTP, c.decodeBlocks), "--engine-version", "0.33.0")
		pool.Spec.Transfer.Mover = v1alpha1.MoverEngine
		var ofLines, ofPool []string
		for _, p := range lines.Problems {
			ofLines = append(ofLines, p.Rule)
		}
		for _, p := range pdpool.Check(pool) {
			ofPool = append(ofPool, p.Rule)
		}
		slices.Sort(ofLines)
		slices.Sort(ofPool)
		if alike := slices.Equal(ofLines, ofPool); alike == c.onlyLines {
			t.Errorf("%s: command lines break %v, the pool %v", c.name, ofLines, ofPool)
		}
		if c.rule == "" && len(ofLines) > 0 || c.rule != "" && !slices.Contains(ofLines, c.rule) || c.onlyLines && len(ofPool) > 0 {
			t.Errorf("%s: command lines break %v, the pool %v; %q is meant", c.name, ofLines, ofPool, c.rule)
		}
	}
}

func convEnv(value string) []corev1.EnvVar {
	if value == "" {
		return nil
	}
	return []corev1.EnvVar{{Name: engine.ConvLayout, Value: value}}
}
