package pdpool

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// Values of fields that are not set. The CRD has the same ones.
const (
	defaultDevicesPerNode = 8
	defaultTransfer       = 30
	defaultDefer          = 60
	defaultReceiveAbort   = 120
	defaultDrain          = 120
	defaultRouters        = 2
)

// Resolved is a pool with everything computed that its spec leaves open.
type Resolved struct {
	Engine kvlayout.Engine
	// Version is the engine's, of the older role where they differ; "" is unknown.
	Version string
	// versionGiven says that the spec has it, so that it is that of both roles.
	versionGiven bool
	Model        string
	Served       string
	// KnownModel is the catalog's model, nil where it has none or the spec has a geometry.
	KnownModel *kvlayout.Model
	// Geometry is from the spec, else from the catalog; HasGeometry says that one
	// of them had it.
	Geometry    kvlayout.Geometry
	HasGeometry bool
	// KVMemory is bytes of KV cache per GPU; 0 is the engine's choice.
	KVMemory int64
	Mode     kvlayout.Mode
	// Mover is Engine or Agent; MoverReason says why, in one sentence.
	Mover       kvlayout.Mover
	MoverReason string
	Backend     agentconfig.Backend
	Timeouts    agentconfig.Timeouts
	// AgentResources are those of the transfer agent's container.
	AgentResources corev1.ResourceRequirements
	GPUResource    string
	DevicesPerNode int
	Prefill        Side
	Decode         Side
	Router         Router
	// NetworkPolicy says that the operator keeps policies for the pool's pods.
	NetworkPolicy bool
	// pairing is the pairing key: a hash of all that two instances must agree on. Resolve
	// sets it, and verdicts do without.
	pairing string
}

// Side is one role of a resolved pool.
type Side struct {
	Role     kvlayout.Role
	Replicas int
	// Layout has all degrees set; DPLocal is what one pod really gets.
	Layout    kvlayout.Layout
	BlockSize int
	KVType    kvlayout.KVType
	MaxLength int
	Image     string
	// Args and Env are the user's, the pool's before the role's; those of the
	// engine's container in the template are among them.
	Args      []string
	Env       []corev1.EnvVar
	Resources corev1.ResourceRequirements
	// Template is the user's partial pod template as JSON; empty if there is none
	// or it is no JSON or beyond the bounds of one.
	Template   []byte
	inTemplate templateEngine
	// said is what Args and Env say.
	said engine.Instance
	// Pods is pods per replica, GPUs devices per pod.
	Pods, GPUs int
}

// Router is the router of a resolved pool.
type Router struct {
	Builtin   bool
	Replicas  int
	Image     string
	Resources corev1.ResourceRequirements
	// Registrations says that engines register with it: those that move their own bytes.
	Registrations bool
}

// Side returns one role.
func (r *Resolved) Side(role kvlayout.Role) *Side {
	if role == kvlayout.Prefill {
		return &r.Prefill
	}
	return &r.Decode
}

// Resolve computes what a pool's spec leaves open. It never fails: what can't
// work is told by Check. What an earlier look decided for the same generation is
// taken from the status, so that another version of the operator keeps it.
func Resolve(pool *v1alpha1.PDPool, d Defaults) Resolved {
	r := resolve(pool, d)
	r.pairing = hash(16, r.agreement(&pool.Spec))
	return r
}

// resolveBare resolves what a spec says by itself: verdicts count no decision of an
// earlier look, and no setting of an operator.
func resolveBare(pool *v1alpha1.PDPool) Resolved { return resolve(bareSpec(pool), Defaults{}) }

func resolve(pool *v1alpha1.PDPool, d Defaults) Resolved {
	spec := &pool.Spec
	r := Resolved{
		Engine:         kvlayout.Engine(spec.Engine.Type),
		Model:          spec.Model.Name,
		Served:         cmp.Or(spec.Model.ServedName, spec.Model.Name),
		Mode:           kvlayout.Mode(cmp.Or(spec.Transfer.Mode, v1alpha1.TransferWrite)),
		GPUResource:    cmp.Or(spec.GPU.ResourceName, v1alpha1.DefaultGPUResource),
		DevicesPerNode: int(cmp.Or(spec.GPU.DevicesPerNode, defaultDevicesPerNode)),
		AgentResources: given(spec.Transfer.Resources, agentResources),
		Timeouts: agentconfig.Timeouts{
			Transfer:     int(cmp.Or(spec.Transfer.TransferTimeoutSeconds, defaultTransfer)),
			Defer:        int(cmp.Or(spec.Transfer.DeferTimeoutSeconds, defaultDefer)),
			ReceiveAbort: int(cmp.Or(spec.Transfer.ReceiveAbortTimeoutSeconds, defaultReceiveAbort)),
			Drain:        int(cmp.Or(spec.Transfer.DrainTimeoutSeconds, defaultDrain)),
		},
	}
	r.KVMemory = kvMemory(spec.Engine.KVCacheMemory)
	r.Geometry, r.HasGeometry = geometryOf(spec.Model)
	if m, ok := engine.KnownModel(r.Model, r.Served); ok && spec.Model.Geometry.Kind == "" {
		r.KnownModel = &m
	}
	r.Prefill = r.side(spec, kvlayout.Prefill, d)
	r.Decode = r.side(spec, kvlayout.Decode, d)
	r.Version = versionOf(spec, r.Prefill.Image, r.Decode.Image)
	r.versionGiven = spec.Engine.Version != ""
	r.Prefill.said, r.Decode.said = r.read(&r.Prefill), r.read(&r.Decode)
	r.keepRecorded(pool)
	r.resolveTransfer(spec.Transfer)
	r.Router = router(spec.Router, d)
	r.Router.Registrations = r.Mover == kvlayout.MoverEngine
	r.NetworkPolicy = cmp.Or(spec.Network.Policy, v1alpha1.NetworkPolicyManaged) == v1alpha1.NetworkPolicyManaged
	return r
}

func geometryOf(m v1alpha1.ModelSpec) (kvlayout.Geometry, bool) {
	g := m.Geometry
	if g.Kind == "" {
		return kvlayout.Lookup(m.Name)
	}
	return kvlayout.Geometry{
		Model:          m.Name,
		Kind:           kvlayout.Kind(g.Kind),
		Layers:         int(g.Layers),
		AttentionHeads: int(g.AttentionHeads),
		KVHeads:        int(max(g.KVHeads, 1)),
		HeadValues:     int(g.HeadValues),
		MoE:            g.Experts > 0,
	}, true
}

func roleSpec(spec *v1alpha1.PDPoolSpec, role kvlayout.Role) *v1alpha1.RoleSpec {
	if role == kvlayout.Prefill {
		return &spec.Prefill
	}
	return &spec.Decode
}

func (r *Resolved) side(spec *v1alpha1.PDPoolSpec, role kvlayout.Role, d Defaults) Side {
	rs := roleSpec(spec, role)
	s := Side{
		Role:      role,
		Replicas:  1,
		BlockSize: int(cmp.Or(rs.BlockSize, spec.Engine.BlockSize)),
		KVType:    kvlayout.KVType(cmp.Or(rs.KVCacheType, spec.Engine.KVCacheType, v1alpha1.KVCacheAuto)),
		MaxLength: int(cmp.Or(rs.MaxLength, spec.Model.MaxLength)),
		Image:     cmp.Or(rs.Image, spec.Engine.Image),
		Resources: rs.Resources,
	}
	if rs.Replicas != nil {
		s.Replicas = int(*rs.Replicas)
	}
	if s.Image == "" && spec.Engine.Type == v1alpha1.EngineSimulator {
		s.Image = d.SimulatorImage
	}
	if s.BlockSize == 0 {
		s.BlockSize = engine.DefaultBlockSize(r.Geometry)
	}
	if rs.Template != nil && fits(rs.Template.Raw) {
		s.Template = rs.Template.Raw
	}
	s.inTemplate = engineIn(s.Template)
	s.Args = slices.Concat(spec.Engine.Args, rs.Args, s.inTemplate.args)
	s.Env = mergeEnv(spec.Engine.Env, rs.Env, s.inTemplate.env)
	s.Layout = r.layout(rs.Layout)
	s.Pods = (s.Layout.DP + s.Layout.DPLocal - 1) / s.Layout.DPLocal
	s.GPUs = s.Layout.TP * s.Layout.DPLocal
	return s
}

// layout sets all degrees. Data parallel ranks that fill several nodes are dealt to
// as many pods, each with the ranks of one node.
func (r *Resolved) layout(l v1alpha1.LayoutSpec) kvlayout.Layout {
	out := kvlayout.Layout{
		TP: int(l.TP), DP: int(l.DP), DPLocal: int(l.DPLocal), DCP: int(l.DCP), Interleave: int(l.Interleave),
	}.Defaulted()
	node := r.DevicesPerNode
	if gpus := out.TP * out.DPLocal; gpus > node && gpus%node == 0 && node%out.TP == 0 {
		out.DPLocal = node / out.TP
	}
	return out
}

// versionOf is the engine's version: what the spec says, else what both images
// say; of two, the older, since a pair can do what its older side can.
func versionOf(spec *v1alpha1.PDPoolSpec, prefill, decode string) string {
	if spec.Engine.Type == v1alpha1.EngineSimulator {
		return ""
	}
	if spec.Engine.Version != "" {
		return spec.Engine.Version
	}
	kind := kvlayout.Engine(spec.Engine.Type)
	return kvlayout.Older(engine.VersionOf(kind, prefill), engine.VersionOf(kind, decode))
}

// keepRecorded takes over what an earlier look chose for the same spec.
func (r *Resolved) keepRecorded(pool *v1alpha1.PDPool) {
	if !recorded(pool) {
		return
	}
	keep := func(spec v1alpha1.RoleSpec, status v1alpha1.RoleStatus, s *Side) {
		if pool.Spec.Engine.BlockSize == 0 && spec.BlockSize == 0 && status.BlockSize != 0 {
			s.BlockSize = int(status.BlockSize)
		}
	}
	keep(pool.Spec.Prefill, pool.Status.Prefill, &r.Prefill)
	keep(pool.Spec.Decode, pool.Status.Decode, &r.Decode)
	if m := pool.Status.Transfer; m.Mover == v1alpha1.MoverEngine || m.Mover == v1alpha1.MoverAgent {
		r.Mover, r.MoverReason = kvlayout.Mover(m.Mover), m.MoverReason
	}
}

// recorded says that the status is of the spec as it is.
func recorded(pool *v1alpha1.PDPool) bool {
	return pool.Generation > 0 && pool.Status.ObservedGeneration == pool.Generation
}

func (r *Resolved) resolveTransfer(t v1alpha1.TransferSpec) {
	asked := kvlayout.Mover(cmp.Or(t.Mover, v1alpha1.MoverAuto))
	if t.Backend == v1alpha1.BackendXGMI || t.Backend == v1alpha1.BackendRDMA {
		r.Backend = agentconfig.Backend(t.Backend) // rules on the engine's connector ask for it
	}
	if asked != kvlayout.MoverAuto || r.Mover == "" {
		r.Mover = asked
		r.Mover, r.MoverReason = r.resolveMover(asked)
	}
	switch b := cmp.Or(t.Backend, v1alpha1.BackendAuto); {
	case b != v1alpha1.BackendAuto:
		r.Backend = agentconfig.Backend(b)
	case r.Mover == kvlayout.MoverAgent:
		r.Backend = agentconfig.TCP
	default:
		r.Backend = agentconfig.RDMA
	}
}

// resolveMover is kvlayout's answer, but for what this version can't run: vLLM
// with the agent as mover. There Auto takes the engine's own connector where
// nothing is known against it.
func (r *Resolved) resolveMover(asked kvlayout.Mover) (kvlayout.Mover, string) {
	pair := r.Pair()
	mover, reason := kvlayout.ResolveMover(pair)
	if asked != kvlayout.MoverAuto || r.Engine != kvlayout.VLLM || mover != kvlayout.MoverAgent {
		return mover, reason
	}
	pair.Mover = kvlayout.MoverEngine
	if kvlayout.Refused(kvlayout.Compatible(pair)) {
		return mover, reason
	}
	return kvlayout.MoverEngine, fmt.Sprintf("%s, but nothing is known against it and this version has no other", reason)
}

func router(s v1alpha1.RouterSpec, d Defaults) Router {
	return Router{
		Builtin:   cmp.Or(s.Mode, v1alpha1.RouterBuiltin) == v1alpha1.RouterBuiltin,
		Replicas:  int(cmp.Or(s.Replicas, defaultRouters)),
		Image:     cmp.Or(s.Image, d.RouterImage),
		Resources: given(s.Resources, routerResources),
	}
}

// given are the resources that a spec asks for, else the default ones.
func given(spec *corev1.ResourceRequirements, other corev1.ResourceRequirements) corev1.ResourceRequirements {
	if spec != nil {
		return *spec
	}
	return other
}

// mergeEnv appends lists of variables; a later one of a name takes the place of
// the earlier.
func mergeEnv(lists ...[]corev1.EnvVar) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range slices.Concat(lists...) {
		same := func(o corev1.EnvVar) bool { return o.Name == e.Name }
		if i := slices.IndexFunc(out, same); i >= 0 {
			out[i] = e
			continue
		}
		out = append(out, e)
	}
	return out
}
