package pdpool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/engine"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// Volumes of an engine pod and where they are mounted.
const (
	volumeShm    = "shm"
	volumeDoor   = "kv-socket"
	volumeShared = "shared-memory"
	volumeKey    = "pool-key"

	pathShm    = "/dev/shm"
	pathDoor   = "/run/pdpool"
	pathShared = "/run/pdpool-shared"
	pathKey    = "/etc/pdpool/key"
	kvSocket   = pathDoor + "/kv.sock"
)

// enginePort is the name of the engine's port for requests.
const enginePort = "http"

// nonRoot is the user and group of PDPool's own images, and the group of the
// volumes that containers of a pod share.
const nonRoot int64 = 65532

// engineStop is how long an engine may take to end once nothing is in flight.
const engineStop = 30 * time.Second

// graceMargin is what the grace period has beyond what it is made of.
const graceMargin = 10 * time.Second

// How often probes ask.
const (
	startupPeriod  = 2 * time.Second
	probePeriod    = 5 * time.Second
	livenessPeriod = 30 * time.Second
)

// lostNode is how long a pod stays on a node that is not ready or unreachable.
const lostNode int64 = 30

// shmPerGPU is the shared memory that the collectives of one GPU's process may use.
const shmPerGPU = 4 << 30

// podTemplate renders the pods of a role, but for what differs from pod to pod:
// that is in marks.
func (r *Resolved) podTemplate(pool *v1alpha1.PDPool, role kvlayout.Role, d Defaults, m marks) (corev1.PodTemplateSpec, error) {
	s := r.Side(role)
	container, err := r.engineContainer(role, m)
	if err != nil {
		return corev1.PodTemplateSpec{}, err
	}
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		Subdomain:                     membersName(pool.Name),
		EnableServiceLinks:            new(false),
		AutomountServiceAccountToken:  new(false),
		TerminationGracePeriodSeconds: new(r.grace()),
		SecurityContext:               r.podSecurity(),
		Tolerations:                   tolerations(),
		InitContainers:                []corev1.Container{r.agentContainer(d.AgentImage, m)},
		Containers:                    []corev1.Container{container},
		Volumes:                       r.volumes(pool, s),
	}
	if r.oneHost() {
		spec.Affinity = sameHost(pool.Name, r.pairing)
	}
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
				v1alpha1.LabelComponent: v1alpha1.ComponentEngine,
				v1alpha1.LabelPool:      pool.Name,
				v1alpha1.LabelRole:      string(role),
				v1alpha1.LabelRevision:  r.roleRevision(&pool.Spec, role),
				v1alpha1.LabelPairing:   r.pairing,
			},
			Annotations: map[string]string{"kubectl.kubernetes.io/default-container": v1alpha1.ContainerEngine},
		},
		Spec: spec,
	}
	t, err = mergeTemplate(t, s.Template)
	onDevices(&t.Spec, pool.Spec.GPU)
	return t, err
}

func (r *Resolved) grace() int64 {
	return int64(r.Timeouts.Drain) + int64((engineStop + graceMargin).Seconds())
}

// oneHost says that the backend moves bytes within one host only.
func (r *Resolved) oneHost() bool {
	return r.Backend == agentconfig.SharedMemory || r.Backend == agentconfig.XGMI
}

func (r *Resolved) engineContainer(role kvlayout.Role, m marks) (corev1.Container, error) {
	s := r.Side(role)
	ports := portsAt(m.ports())
	in := engine.Input{
		Kind: r.Engine, Role: role, Model: r.Model, Served: r.Served, Geometry: r.Geometry, Layout: s.Layout,
		BlockSize: s.BlockSize, KVType: s.KVType, KVMemory: r.KVMemory, MaxLength: s.MaxLength,
		Mover: r.Mover, Mode: r.Mode, Backend: engine.Backend(r.Backend),
		Timeouts: engine.Timeouts{Transfer: r.Timeouts.Transfer, Defer: r.Timeouts.Defer, ReceiveAbort: r.Timeouts.ReceiveAbort},
		Ports: engine.Ports{
			HTTP: ports.HTTP, Ping: ports.Ping, RPC: ports.RPC, VLLM: ports.VLLM,
			Handshake: ports.EngineHandshake, Notify: ports.EngineNotify,
		},
		Pods: s.Pods, DPStart: m.dpStart(), Leader: m.leader(), Args: s.Args, KVSocket: kvSocket,
	}
	cmd, err := engine.Render(in)
	if err != nil {
		return corev1.Container{}, fmt.Errorf("render the engine of %s: %w", role, err)
	}
	return corev1.Container{
		Name:         v1alpha1.ContainerEngine,
		Image:        s.Image,
		Command:      cmd.Command,
		Args:         cmd.Args,
		Env:          mergeEnv(environment(cmd.Env), s.Env),
		Ports:        []corev1.ContainerPort{port(enginePort, ports.HTTP)},
		Resources:    withGPUs(s.Resources, r.GPUResource, s.GPUs),
		VolumeMounts: r.engineMounts(),
		// Its last words reach the status: a failed pod is removed, and its log with it.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		StartupProbe:             startup(ports.HTTP, engine.HealthPath, engine.StartupBudget(r.Engine)),
		ReadinessProbe:           probe(ports.HTTP, engine.HealthPath, probePeriod, 3),
		LivenessProbe:            probe(ports.HTTP, engine.HealthPath, livenessPeriod, 6),
		Lifecycle:                &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: drain(ports.Agent, m.drain())}},
		SecurityContext:          r.engineSecurity(),
	}, nil
}

func (r *Resolved) engineMounts() []corev1.VolumeMount {
	mounts := []corev1.VolumeMount{{Name: volumeShm, MountPath: pathShm}}
	if r.Mover == kvlayout.MoverAgent {
		mounts = append(mounts, corev1.VolumeMount{Name: volumeDoor, MountPath: pathDoor})
	}
	return mounts
}

// environment spells the engine's variables for Kubernetes.
func environment(env []engine.EnvVar) []corev1.EnvVar {
	out := make([]corev1.EnvVar, 0, len(env))
	for _, e := range env {
		if e.Field != "" {
			out = append(out, fromField(e.Name, e.Field))
			continue
		}
		out = append(out, corev1.EnvVar{Name: e.Name, Value: e.Value})
	}
	return out
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// withGPUs adds the devices to what the user asked for.
func withGPUs(user corev1.ResourceRequirements, name string, gpus int) corev1.ResourceRequirements {
	out := *user.DeepCopy()
	n := *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	for _, list := range []*corev1.ResourceList{&out.Limits, &out.Requests} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[corev1.ResourceName(name)] = n
	}
	return out
}

func (r *Resolved) volumes(pool *v1alpha1.PDPool, s *Side) []corev1.Volume {
	shm := resource.NewQuantity(int64(s.GPUs)*shmPerGPU, resource.BinarySI)
	volumes := []corev1.Volume{{
		Name:         volumeShm,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: shm}},
	}, keyVolume(pool)}
	if r.Mover == kvlayout.MoverAgent {
		volumes = append(volumes, corev1.Volume{
			Name:         volumeDoor,
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		})
	}
	if r.Backend == agentconfig.SharedMemory {
		path := "/run/pdpool/" + pool.Namespace + "/" + string(pool.UID)
		volumes = append(volumes, corev1.Volume{
			Name: volumeShared,
			VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectoryOrCreate)},
			},
		})
	}
	return volumes
}

// sameHost keeps all instances of a pairing key on one host. The term selects the
// pod itself too, without which the scheduler would never place the first one.
func sameHost(pool, pairing string) *corev1.Affinity {
	return &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			TopologyKey: corev1.LabelHostname,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
				v1alpha1.LabelPool: pool, v1alpha1.LabelPairing: pairing,
			}},
		}},
	}}
}

func tolerations() []corev1.Toleration {
	stay := func(key string) corev1.Toleration {
		return corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(lostNode),
		}
	}
	return []corev1.Toleration{stay(corev1.TaintNodeNotReady), stay(corev1.TaintNodeUnreachable)}
}

func port(name string, n int) corev1.ContainerPort {
	return corev1.ContainerPort{Name: name, ContainerPort: int32(n), Protocol: corev1.ProtocolTCP}
}

func get(port int, path string) *corev1.HTTPGetAction {
	return &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port)), Scheme: corev1.URISchemeHTTP}
}

// drain asks the agent to let transfers end, with the token that it wants.
func drain(port int, token string) *corev1.HTTPGetAction {
	g := get(port, "/drain")
	g.HTTPHeaders = []corev1.HTTPHeader{{Name: agentconfig.DrainHeader, Value: token}}
	return g
}

// probe asks every period; so many failures in a row count. All fields are set, so
// that what the server stores is what was rendered.
func probe(port int, path string, period time.Duration, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: get(port, path)},
		PeriodSeconds:    int32(period.Seconds()),
		TimeoutSeconds:   5,
		SuccessThreshold: 1,
		FailureThreshold: failures,
	}
}

// startup asks often, so that a pod is ready soon after it can be, for as long as
// the budget says.
func startup(port int, path string, budget time.Duration) *corev1.Probe {
	return probe(port, path, startupPeriod, int32(budget/startupPeriod))
}
