package pdpool

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/memlimit"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// agentStartup is how long an agent may take to have its listeners up.
const agentStartup = time.Minute

// How a frozen agent is found and ended. The kubelet restarts it alone, and soon:
// it does not hear the signal that would let it end in order.
const (
	agentLivenessPeriod         = 10 * time.Second
	agentLivenessFailures int32 = 3
	frozenGrace           int64 = 5 // seconds
)

func agentLiveness(port int) *corev1.Probe {
	p := probe(port, "/healthz", agentLivenessPeriod, agentLivenessFailures)
	p.TerminationGracePeriodSeconds = new(frozenGrace)
	return p
}

// memoryLimit tells a container its memory limit, the node's memory where it has none.
func memoryLimit(container string) corev1.EnvVar {
	return corev1.EnvVar{Name: memlimit.Env, ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
		ContainerName: container, Resource: "limits.memory", Divisor: resource.MustParse("1"),
	}}}
}

// agentResources are what an agent has when the spec says nothing. Nobody changes them.
var agentResources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
}

// agentPort is the name of the agent's port for probes, metrics and questions.
const agentPort = "agent"

// agentContainer is the transfer agent as a native sidecar: it starts before the
// engine and ends after it.
func (r *Resolved) agentContainer(image string, m marks) corev1.Container {
	ports := portsAt(m.ports())
	c := corev1.Container{
		Name:          v1alpha1.ContainerAgent,
		Image:         image,
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Env: []corev1.EnvVar{
			{Name: agentconfig.Env}, // filled in for each pod
			fromField(agentconfig.EnvPodIP, "status.podIP"),
			fromField(agentconfig.EnvNode, "spec.nodeName"),
			fromField(agentconfig.EnvPod, "metadata.name"),
			memoryLimit(v1alpha1.ContainerAgent),
		},
		Ports:          []corev1.ContainerPort{port(agentPort, ports.Agent)},
		Resources:      r.AgentResources,
		VolumeMounts:   []corev1.VolumeMount{{Name: volumeKey, MountPath: pathKey, ReadOnly: true}},
		StartupProbe:   startup(ports.Agent, "/healthz", agentStartup),
		ReadinessProbe: probe(ports.Agent, "/readyz", probePeriod, 2),
		LivenessProbe:  agentLiveness(ports.Agent),
		// Why it does not start reaches the status.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		SecurityContext:          r.agentSecurity(),
	}
	if r.Mover == kvlayout.MoverAgent {
		c.Ports = append(c.Ports, port("handshake", ports.Handshake), port("notify", ports.Notify))
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeDoor, MountPath: pathDoor})
	}
	switch r.Backend {
	case agentconfig.TCP:
		c.Ports = append(c.Ports, port("data", ports.Data))
	case agentconfig.SharedMemory:
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeShared, MountPath: pathShared})
	case agentconfig.RDMA, agentconfig.XGMI: // the engine's
	}
	return c
}

// agentConfig is the configuration of a role's agents, but for what differs from
// pod to pod.
func (r *Resolved) agentConfig(pool *v1alpha1.PDPool, role kvlayout.Role) agentconfig.Config {
	s := r.Side(role)
	c := agentconfig.Config{
		Version: agentconfig.Version, Namespace: pool.Namespace, Pool: pool.Name, PoolUID: string(pool.UID),
		Revision: r.roleRevision(&pool.Spec, role), Pods: s.Pods, Role: role, Pairing: r.pairing,
		Engine: r.Engine, EngineVersion: r.Version, Mover: r.Mover, Mode: r.Mode, Backend: r.Backend, Model: r.Model, Served: r.Served,
		Layout: s.Layout, Block: s.BlockSize, KVType: s.KVType, KV: r.Geometry, Timeouts: r.Timeouts,
		KeyDir: pathKey,
	}
	if r.Mover == kvlayout.MoverAgent {
		c.KVSocket = kvSocket
	} else if r.Router.Builtin {
		c.Routers = []string{fmt.Sprintf("%s.%s.svc:%d", routersName(pool.Name), pool.Namespace, routerRegistrations)}
	}
	if r.Backend == agentconfig.SharedMemory {
		c.SharedDir = pathShared
	}
	return c
}
