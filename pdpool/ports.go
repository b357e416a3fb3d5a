package pdpool

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// PortRange is where replicas get their ports from: blocks of BlockPorts from
// First on, none beyond Last.
type PortRange struct {
	First, Last int
}

// DefaultPorts lies below the ports that nodes use for NodePorts (from 30000) and
// for outgoing connections (from 32768).
var DefaultPorts = PortRange{First: 20000, Last: 29999}

// BlockPorts is the number of ports of one replica.
const BlockPorts = 64

// PortBlock is the first port of the block that an engine pod holds; false for a
// pod that says none.
func PortBlock(pod *corev1.Pod) (int, bool) {
	var p agentconfig.Ports
	if err := json.Unmarshal([]byte(pod.Annotations[v1alpha1.AnnotationPorts]), &p); err != nil || p.HTTP == 0 {
		return 0, false
	}
	return p.HTTP, true
}
