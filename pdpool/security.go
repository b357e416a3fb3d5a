package pdpool

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// What each container may do:
//
//	                  user      root file system  capabilities
//	router            nonRoot   read-only         none
//	agent             nonRoot   read-only         none
//	agent, Shared-    root      read-only         none     (the folder on the host is root's)
//	Simulator         nonRoot   read-only         none
//	vLLM              image's   writable          IPC_LOCK (pinned memory for RDMA and xGMI)
//
// All have no way to more privileges and the runtime's default seccomp profile.

func (r *Resolved) podSecurity() *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		FSGroup:        new(nonRoot),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// restricted is what Pod Security's level of that name asks for, and more.
func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsNonRoot:             new(true),
		RunAsUser:                new(nonRoot),
		RunAsGroup:               new(nonRoot),
		ReadOnlyRootFilesystem:   new(true),
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func (r *Resolved) agentSecurity() *corev1.SecurityContext {
	s := restricted()
	if r.Backend == agentconfig.SharedMemory {
		s.RunAsNonRoot, s.RunAsUser, s.RunAsGroup = new(false), new(int64(0)), new(nonRoot)
	}
	return s
}

func (r *Resolved) engineSecurity() *corev1.SecurityContext {
	if r.Engine == kvlayout.Simulator {
		return restricted()
	}
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		Capabilities:             &corev1.Capabilities{Add: []corev1.Capability{"IPC_LOCK"}},
	}
}
