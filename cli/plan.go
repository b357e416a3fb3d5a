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
	files  []string
	name   string
	output string
	tokens int
	memory memoryFlags
}

func planCommand(o Options) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan -f FILE [--tokens N]",
		Short: "Show what a pool becomes: pods, ports, command lines, who writes what to whom, capacity",
		Example: "  kubectl pdpool plan -f pool.yaml --tokens 8192\n" +
			"  kubectl pdpool plan -f pool.yaml -o svg > pool.svg",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return o.plan(f) },
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "a file, a folder, or - for standard input (repeatable)")
	flags.StringVar(&f.name, "name", "", "the pool, where there are several")
	flags.StringVarP(&f.output, "output", "o", "text", "text, json or svg")
	flags.IntVar(&f.tokens, "tokens", 1000, "length of the prompt whose transfer is shown")
	f.memory.add(cmd)
	oneOf(cmd, "output", "text", "json", "svg")
	_ = cmd.MarkFlagRequired("filename")
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
	write, ok := map[string]func(Plan) error{
		"text": o.planText, "json": func(p Plan) error { return o.json(p) }, "svg": o.planSVG,
	}[f.output]
	switch {
	case !ok:
		return fmt.Errorf("output %q is none of text, json and svg", f.output)
	case f.tokens < 1 || f.tokens > maxTokens:
		return fmt.Errorf("a prompt of %d tokens: give --tokens 1 to %d", f.tokens, maxTokens)
	}
	pool, err := o.onePool(f.files, f.name)
	if err != nil {
		return err
	}
	if v, beyond := beyondSchema(pool); beyond {
		p := o.page()
		p.verdict(v)
		return cmp.Or(p.err, ErrRefused)
	}
	s, err := o.setup(pool, f.memory)
	if err != nil {
		return err
	}
	p := s.plan(f.tokens)
	if err := write(p); err != nil {
		return err
	}
	if !p.Admitted {
		return ErrRefused
	}
	return nil
}

// maxTokens bounds the prompts that are planned.
const maxTokens = 1 << 24

func (s setup) plan(tokens int) Plan {
	r := &s.resolved
	p := Plan{
		Verdict: judge(s.pool), Model: r.Model, Engine: string(r.Engine), Version: r.Version, Mode: string(r.Mode),
		Mover: string(r.Mover), Why: r.MoverReason, Backend: string(r.Backend),
		Prefill: s.prefill.plan(s, tokens), Decode: s.decode.plan(s, tokens), Transfer: s.transfer(tokens),
	}
	if s.known {
		p.Caches = geometryText(s.model)
		p.geometry, p.alike = shapeOf(s.model)
	}
	if p.Admitted {
		pods := podsOf(s.pool)
		p.Prefill.Pods, p.Decode.Pods = pods[kvlayout.Prefill], pods[kvlayout.Decode]
	}
	return p
}

func (c caching) plan(s setup, tokens int) RolePlan {
	side := c.side
	p := RolePlan{
		Layout: side.Layout, Replicas: side.Replicas, PodsPerReplica: side.Pods, GPUsPerPod: side.GPUs,
		GPUs: side.Replicas * side.Pods * side.GPUs, BlockSize: side.BlockSize, KVType: side.KVType,
		MaxLength: cmp.Or(side.MaxLength, s.model.MaxLength), Image: side.Image,
	}
	if !s.known {
		p.CapacityUnknown = "the KV geometry of " + s.resolved.Model + " is not known"
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

// shellWord quotes an argument for a POSIX shell where it has to be.
func shellWord(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@%+"
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
