package pdpool

import (
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

// ranksPerPod is how many ports in a row a stock engine's ranks may bind or dial
// from each of its two bases.
const ranksPerPod = 16

// portsAt are the ports of a pod whose block begins at base.
func portsAt(base int) agentconfig.Ports {
	return agentconfig.Ports{
		HTTP:      base,
		Agent:     base + 1,
		Handshake: base + 2,
		Notify:    base + 3,
		Data:      base + 4,
		Ping:      base + 5,
		Metrics:   base + 6,
		Master:    base + 7,
		RPC:       base + 8,
		// From here on the engine looks for free ports: it has those below the next base.
		VLLM:            base + 16,
		EngineHandshake: base + 32,
		EngineNotify:    base + 32 + ranksPerPod,
	}
}

// PortBlock is the first port of the block that an engine pod holds; false for a
// pod that says none.
func PortBlock(pod *corev1.Pod) (int, bool) {
	p, err := agentconfig.ParsePorts(pod.Annotations[v1alpha1.AnnotationPorts])
	return p.HTTP, err == nil
}

// blocks hands out port blocks.
type blocks struct {
	span  PortRange
	taken map[int]int // pods per block
}

func newBlocks(span PortRange, taken []int) *blocks {
	if span == (PortRange{}) {
		span = DefaultPorts
	}
	b := &blocks{span: span, taken: map[int]int{}}
	for _, t := range taken {
		b.taken[t]++
	}
	return b
}

// take returns the first block that nobody holds. When none is left it is the one
// that the fewest hold: pods have a network of their own, so that sharing costs
// nothing but the ease of telling replicas apart by port.
func (b *blocks) take() int {
	best := b.span.First
	for base := b.span.First; base+BlockPorts-1 <= b.span.Last; base += BlockPorts {
		if b.taken[base] < b.taken[best] {
			best = base
		}
		if b.taken[best] == 0 {
			break
		}
	}
	b.taken[best]++
	return best
}
