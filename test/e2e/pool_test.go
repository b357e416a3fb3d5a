package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/test/cluster"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// model is a model of the trials: a name and the shape of its KV cache.
type model struct {
	name     string
	geometry kvlayout.Geometry
	memory   string // KV memory per GPU
	inline   bool   // the catalog does not know it
}

var (
	deepSeekR1 = model{
		name: "deepseek-ai/DeepSeek-R1", memory: "256Mi",
		geometry: kvlayout.Geometry{Kind: kvlayout.MLA, Layers: 61, AttentionHeads: 128, KVHeads: 1, HeadValues: 576, MoE: true},
	}
	smallMLA = model{
		name: "test/mla", memory: "16Mi", inline: true,
		geometry: kvlayout.Geometry{Kind: kvlayout.MLA, Layers: 4, AttentionHeads: 16, KVHeads: 1, HeadValues: 64},
	}
	smallGQA = model{
		name: "test/gqa", memory: "32Mi", inline: true,
		geometry: kvlayout.Geometry{Kind: kvlayout.GQA, Layers: 4, AttentionHeads: 16, KVHeads: 8, HeadValues: 16},
	}
)

// setup is one trial pool.
type setup struct {
	model           model
	prefill, decode kvlayout.Layout
	backend         string   // TCP puts the roles on two nodes, SharedMemory on one
	prefillArgs     []string // of the simulator
	decodeArgs      []string
	blockSize       int    // 0 is 64
	routers         int    // 0 is 1
	anywhere        bool   // no role is bound to a node
	prefer          string // the node that pods go to while it is there
	timeout         int    // of every step of a transfer, in seconds; 0 is 20
	replicas        int    // 0 is 1
	memory          string // limit of the agents; "" is the operator's
	routerMemory    string // limit of the routers; "" is the operator's
	partition       string // of the devices; "" is any
}

const trialBlock = 64

func (s setup) block() int {
	if s.blockSize == 0 {
		return trialBlock
	}
	return s.blockSize
}

// on is the node of the i-th role; a replica of several pods goes where there is room.
func (s setup) on(i int) string {
	if s.anywhere || s.prefill.DP > 1 || s.decode.DP > 1 {
		return ""
	}
	return nodes[i]
}

// manifest is the pool as a user would write it, as JSON, which YAML includes.
func (s setup) manifest(name string) string {
	role := func(l kvlayout.Layout, args []string, node string) map[string]any {
		layout := map[string]any{"tp": l.TP}
		if l.DCP > 1 {
			layout["dcp"], layout["interleave"] = l.DCP, l.Interleave
		}
		if l.DP > 1 {
			layout["dp"], layout["dpLocal"] = l.DP, l.DPLocal
		}
		out := map[string]any{"replicas": max(1, s.replicas), "layout": layout}
		if len(args) > 0 {
			out["args"] = args
		}
		if s.backend == "TCP" && node != "" {
			out["template"] = map[string]any{"spec": map[string]any{"nodeSelector": map[string]string{"kubernetes.io/hostname": node}}}
		}
		if s.prefer != "" {
			out["template"] = map[string]any{"spec": map[string]any{"affinity": prefers(s.prefer)}}
		}
		return out
	}
	models := map[string]any{"name": s.model.name}
	if s.model.inline {
		g := s.model.geometry
		geometry := map[string]any{"kind": g.Kind, "layers": g.Layers, "attentionHeads": g.AttentionHeads, "headValues": g.HeadValues}
		if g.Kind == kvlayout.GQA {
			geometry["kvHeads"] = g.KVHeads
		}
		models["geometry"] = geometry
	}
	timeout := s.timeout
	if timeout == 0 {
		timeout = 20
	}
	transfer := map[string]any{"backend": s.backend, "transferTimeoutSeconds": timeout, "deferTimeoutSeconds": timeout, "receiveAbortTimeoutSeconds": timeout, "drainTimeoutSeconds": 5}
	if s.memory != "" {
		transfer["resources"] = limited(s.memory)
	}
	router := map[string]any{"replicas": max(1, s.routers)}
	if s.routerMemory != "" {
		router["resources"] = limited(s.routerMemory)
	}
	gpu := map[string]any{}
	if s.partition != "" {
		gpu["partition"] = s.partition
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "pdpool.dev/v1alpha1", "kind": "PDPool", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"model":    models,
			"engine":   map[string]any{"type": "Simulator", "blockSize": s.block(), "kvCacheMemory": s.model.memory},
			"transfer": transfer,
			"prefill":  role(s.prefill, s.prefillArgs, s.on(0)),
			"decode":   role(s.decode, s.decodeArgs, s.on(1)),
			"router":   router,
			"gpu":      gpu,
		},
	})
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func limited(memory string) map[string]any {
	return map[string]any{"requests": map[string]string{"cpu": "10m", "memory": memory}, "limits": map[string]string{"memory": memory}}
}

func prefers(node string) map[string]any {
	term := map[string]any{"matchExpressions": []any{map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}}}}
	return map[string]any{"nodeAffinity": map[string]any{
		"preferredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{"weight": 100, "preference": term}},
	}}
}

// pool is a running trial pool.
type pool struct {
	setup
	namespace, name string
}

// start applies the pool and waits until it is Ready.
func (s setup) start(ctx context.Context, namespace, name string) pool {
	GinkgoHelper()
	Expect(k8s.Apply(ctx, namespace, s.manifest(name))).To(Succeed())
	Expect(k8s.WaitReady(ctx, namespace, name, readyWithin)).To(Succeed())
	return pool{setup: s, namespace: namespace, name: name}
}

// ask sends a prompt through the pool's router.
func (p pool) ask(ctx context.Context, prompt string, tokens int) cluster.Completion {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	answer, err := k8s.Complete(ctx, p.namespace, "services/"+p.name+"-router:http", p.model.name, prompt, tokens, nil)
	Expect(err).NotTo(HaveOccurred())
	return answer
}

// pod is the first pod of a role, and its ports.
func (p pool) pod(ctx context.Context, role string) (corev1.Pod, agentconfig.Ports) {
	GinkgoHelper()
	pods, err := k8s.Pods(ctx, p.namespace, p.name, role)
	Expect(err).NotTo(HaveOccurred())
	Expect(pods).NotTo(BeEmpty())
	ports, err := cluster.Ports(&pods[0])
	Expect(err).NotTo(HaveOccurred())
	return pods[0], ports
}

// transfer asks the agent of a role's pod.
func (p pool) transfer(ctx context.Context, role, id string) cluster.Transfer {
	GinkgoHelper()
	pod, _ := p.pod(ctx, role)
	t, err := k8s.Transfer(ctx, &pod, id)
	Expect(err).NotTo(HaveOccurred())
	return t
}

// predicted is what kvlayout says that a prompt's transfer moves.
func (p pool) predicted(tokens int) map[[2]int]int64 {
	out := map[[2]int]int64{}
	for _, f := range kvlayout.Written(p.model.geometry, kvlayout.BF16, p.prefill.Defaulted(), p.decode.Defaulted(), p.block(), tokens) {
		out[[2]int{f.Writer, f.Reader}] += f.Bytes
	}
	return out
}

// quiet checks that no engine of the pool holds a block or saw a row touched that must not be.
func (p pool) quiet(ctx context.Context) {
	GinkgoHelper()
	for _, role := range []string{v1alpha1.RolePrefill, v1alpha1.RoleDecode} {
		pod, ports := p.pod(ctx, role)
		Eventually(func(g Gomega, ctx context.Context) {
			var state struct {
				Groups []struct{ Blocks, FreeBlocks, Violations int }
			}
			g.Expect(k8s.GetJSON(ctx, p.namespace, pod.Name, ports.HTTP, "/sim/state", &state)).To(Succeed())
			g.Expect(state.Groups).NotTo(BeEmpty())
			for _, rank := range state.Groups {
				g.Expect(rank.Violations).To(BeZero())
				g.Expect(rank.FreeBlocks).To(Equal(rank.Blocks), "blocks held by "+pod.Name)
			}
		}).WithContext(ctx).WithTimeout(soon).Should(Succeed())
	}
}

// words makes a prompt of n words, which are n tokens, different for each seed.
func words(seed, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("w%d-%d", seed, i*7919%1009)
	}
	return strings.Join(out, " ")
}

// unsplit starts one instance that prefills and decodes by itself, and returns what asks it.
func unsplit(ctx context.Context, namespace string, m model) func(prompt string, tokens int) string {
	GinkgoHelper()
	g := m.geometry
	shape, err := json.Marshal(map[string]any{
		"model": m.name, "kind": g.Kind, "layers": g.Layers,
		"attentionHeads": g.AttentionHeads, "kvHeads": g.KVHeads, "headValues": g.HeadValues,
	})
	Expect(err).NotTo(HaveOccurred())
	name := "unsplit-" + strings.ToLower(m.name[strings.LastIndex(m.name, "/")+1:])
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "engine", Image: os.Getenv("E2E_IMAGES") + "/enginesim:" + os.Getenv("E2E_TAG"),
				Args: []string{
					"serve", m.name, "--port=8000", "--block-size=64", "--kv-cache-memory-bytes=268435456",
					"--sim-geometry=" + string(shape),
				},
				ReadinessProbe: &corev1.Probe{
					PeriodSeconds: 1,
					ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/health", Port: intOrString(8000)}},
				},
			}},
		},
	}
	Expect(k8s.Create(ctx, pod)).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		g.Expect(k8s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses).NotTo(BeEmpty())
		g.Expect(pod.Status.ContainerStatuses[0].Ready).To(BeTrue())
	}).WithContext(ctx).Should(Succeed())
	return func(prompt string, tokens int) string {
		GinkgoHelper()
		answer, err := k8s.Complete(ctx, namespace, "pods/"+name+":8000", m.name, prompt, tokens, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Status).To(Equal(200), answer.Error)
		Expect(answer.Text).NotTo(BeEmpty())
		return answer.Text
	}
}
