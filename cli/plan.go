package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/cli/manifest"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/pdpool"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// Plan is what a pool becomes.
type Plan struct {
	Verdict
	Model   string `json:"model"`
	Caches  string `json:"caches,omitempty"` // what the model's layers keep, in words
	Engine  string `json:"engine"`
	Version string `json:"engineVersion,omitempty"`
	Mode    string `json:"mode"`
	Mover   string `json:"mover"`
	Why     string `json:"moverReason"`
	Backend string `json:"backend"`

	Prefill  RolePlan     `json:"prefill"`
	Decode   RolePlan     `json:"decode"`
	Transfer TransferPlan `json:"transfer"`

	// geometry is set where one shape describes all layers that keep tokens; alike says
	// that there are no other layers.
	geometry *kvlayout.Geometry
	alike    bool
	state    string // of recurrent layers, such as KDA; "" without any
}

// RolePlan is one role of a plan.
type RolePlan struct {
	Layout         kvlayout.Layout `json:"layout"`
	Replicas       int             `json:"replicas"`
	PodsPerReplica int             `json:"podsPerReplica"`
	GPUsPerPod     int             `json:"gpusPerPod"`
	GPUs           int             `json:"gpus"` // of all replicas
	BlockSize      int             `json:"blockSize"`
	KVType         kvlayout.KVType `json:"kvCacheType"`
	MaxLength      int             `json:"maxLength,omitempty"`
	Image          string          `json:"image,omitempty"`
	// Capacity is of one replica; nil where CapacityUnknown says why.
	Capacity        *CapacityPlan `json:"capacity,omitempty"`
	CapacityUnknown string        `json:"capacityUnknown,omitempty"`
	// Pods are those of the first replica. There are none for a pool that is refused.
	Pods []PodPlan `json:"pods,omitempty"`
}

// CapacityPlan is what a replica holds.
type CapacityPlan struct {
	BytesPerToken int64 `json:"bytesPerTokenPerRank"`
	Tokens        int64 `json:"tokensPerReplica"`
	Blocks        int64 `json:"blocksPerRank"`
	BlockTokens   int   `json:"blockTokens"`
	BlockBytes    int64 `json:"blockBytes"`
	// Requests is how many sequences of the plan's tokens fit at a time.
	Requests int64 `json:"requests"`
}

// PodPlan is a pod and what its engine runs.
type PodPlan struct {
	Name    string            `json:"name"`
	Ports   agentconfig.Ports `json:"ports"`
	Command []string          `json:"command"`
	Env     []corev1.EnvVar   `json:"env,omitempty"`
}

// planFlags are the flags of plan.
type planFlags struct {
	target
	output string
	tokens int
}

func planCommand(o Options) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan (-f FILE | --prefill-cmd TEXT --decode-cmd TEXT) [--tokens N]",
		Short: "Show what a pool becomes: pods, ports, command lines, who writes what to whom, capacity",
		Example: "  kubectl pdpool plan -f pool.yaml --tokens 8192\n" +
			"  kubectl pdpool plan -f pool.yaml -o svg > pool.svg\n" +
			"  kubectl pdpool plan --prefill-cmd @prefill.sh --decode-cmd @decode.sh --kv-memory 90Gi",
		Args: filesByFlag,
		RunE: func(*cobra.Command, []string) error { return o.plan(f) },
	}
	flags := cmd.Flags()
	f.add(cmd)
	flags.StringVarP(&f.output, "output", "o", "text", "text, json or svg")
	flags.IntVar(&f.tokens, "tokens", 1000, "length of the prompt whose transfer is shown")
	oneOf(cmd, "output", "text", "json", "svg")
	return cmd
}

func (f *memoryFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.memory, "kv-memory", "", "memory for KV cache per GPU, such as 90Gi; unset, engine.kvCacheMemory")
	cmd.Flags().Int64Var(&f.blocks, "blocks", 0, "KV cache blocks per GPU, as the engine logs them, instead of --kv-memory")
}

func parseBytes(text string) (int64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return 0, fmt.Errorf("%q is no size such as 90Gi or 101713379328", text)
	}
	return q.Value(), nil
}

func (o Options) plan(f planFlags) error {
	output, err := choose("output", f.output, "text", "json", "svg")
	switch {
	case err != nil:
		return err
	case f.tokens < 1 || f.tokens > maxTokens:
		return fmt.Errorf("a prompt of %d tokens: give --tokens 1 to %d", f.tokens, maxTokens)
	}
	s, beyond, err := o.setup(f.target, "")
	switch {
	case err != nil:
		return err
	case beyond:
		return o.onlyVerdict(s, output)
	}
	p := s.plan(f.tokens)
	switch output {
	case "json":
		err = o.json(p)
	case "svg":
		err = o.planSVG(p)
	default:
		err = o.planText(p)
	}
	return cmp.Or(err, p.end())
}

// onlyVerdict prints what is wrong where nothing more can be said. It leaves the output
// to what is asked for: where a picture is, people read it beside.
func (o Options) onlyVerdict(s setup, output string) error {
	v := s.verdict()
	if output == "json" {
		return cmp.Or(o.json(v), v.end())
	}
	if output == "svg" {
		o.Out, o.Colour = o.Err, false
	}
	p := o.page()
	p.verdict(v)
	return cmp.Or(p.err, v.end())
}

// maxTokens bounds the prompts that are planned.
const maxTokens = 1 << 24

func (s setup) plan(tokens int) Plan {
	p := Plan{
		Verdict: s.verdict(), Model: s.loads, Engine: string(s.engine), Version: s.version, Mode: s.cost.Mode,
		Mover: s.cost.Mover, Why: s.cost.Reason, Backend: s.cost.Backend,
		Prefill: s.prefill.plan(s, tokens), Decode: s.decode.plan(s, tokens), Transfer: s.transfer(tokens),
	}
	p.Verdict.Transfer = nil // all of it is told at length
	if s.known {
		p.Caches = geometryText(s.model)
		p.geometry, p.alike = shapeOf(s.model)
		for _, g := range s.model.States() {
			p.state = string(g.State.Kind)
		}
	}
	if p.Admitted && s.pods != nil {
		pods := s.pods()
		p.Prefill.Pods, p.Decode.Pods = pods[kvlayout.Prefill], pods[kvlayout.Decode]
	}
	return p
}

func (c caching) plan(s setup, tokens int) RolePlan {
	p := RolePlan{
		Layout: c.layout, Replicas: c.replicas, PodsPerReplica: c.pods, GPUsPerPod: c.gpus,
		GPUs: c.replicas * c.pods * c.gpus, BlockSize: c.blockSize, KVType: c.kvType,
		MaxLength: cmp.Or(c.maxLength, s.model.MaxLength), Image: c.image,
	}
	if !s.known {
		p.CapacityUnknown = "the KV geometry of " + s.loads + " is not known"
		return p
	}
	capacity, err := c.capacity(s.model)
	if err != nil {
		p.CapacityUnknown = err.Error()
		return p
	}
	p.Capacity = &CapacityPlan{
		BytesPerToken: capacity.BytesPerToken, Tokens: capacity.Tokens, Blocks: capacity.Blocks,
		BlockTokens: capacity.Pool.BlockTokens, BlockBytes: capacity.Pool.BlockBytes, Requests: capacity.Requests(tokens),
	}
	return p
}

// podsOf are the pods of the first replica of each role, as the operator would
// create them in a cluster without others.
func podsOf(pool manifest.Pool) map[kvlayout.Role][]PodPlan {
	alone := pool.DeepCopy()
	alone.Status = v1alpha1.PDPoolStatus{}
	alone.Namespace, alone.UID = cmp.Or(alone.Namespace, "default"), "00000000-0000-0000-0000-000000000000"
	alone.Spec.Prefill.Replicas, alone.Spec.Decode.Replicas = new(int32(1)), new(int32(1))
	var seen pdpool.Observed
	stand := pdpool.Defaults{RouterImage: "pdpool/router", AgentImage: "pdpool/transfer-agent", SimulatorImage: "pdpool/enginesim"}
	// Pods are made from recorded revisions only, so the second look has them.
	for _, object := range pdpool.Compute(alone, seen, stand).Create {
		if rev, ok := object.(*appsv1.ControllerRevision); ok {
			seen.ControllerRevisions = append(seen.ControllerRevisions, *rev)
		}
	}
	out := map[kvlayout.Role][]PodPlan{}
	for _, object := range pdpool.Compute(alone, seen, stand).Create {
		pod, ok := object.(*corev1.Pod)
		if !ok {
			continue
		}
		role := kvlayout.Role(pod.Labels[v1alpha1.LabelRole])
		out[role] = append(out[role], podPlan(pod))
	}
	return out
}

func podPlan(pod *corev1.Pod) PodPlan {
	plan := PodPlan{Name: pod.Name}
	if ports, err := agentconfig.ParsePorts(pod.Annotations[v1alpha1.AnnotationPorts]); err == nil {
		plan.Ports = ports
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == v1alpha1.ContainerEngine {
			plan.Command, plan.Env = slices.Concat(c.Command, c.Args), c.Env
		}
	}
	return plan
}

// shellWord quotes an argument for a POSIX shell where it has to be, and for bash where
// it holds what a terminal obeys.
func shellWord(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	if legible(s) != s {
		return "$'" + legible(strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s)) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
