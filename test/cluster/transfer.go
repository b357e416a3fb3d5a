package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/transferagent/agentconfig"
)

// Flow is what one writer moved to one reader.
type Flow struct {
	WriterTP int
	ReaderTP int
	State    string
	Bytes    int64
	Ended    time.Time
}

// Bytes is what each writer moved to each reader, by {writer, reader}.
func Bytes(flows []Flow) map[[2]int]int64 {
	out := map[[2]int]int64{}
	for _, f := range flows {
		out[[2]int{f.WriterTP, f.ReaderTP}] += f.Bytes
	}
	return out
}

// Transfer is an agent's answer about a transfer: Flows as the writers count them,
// Received as this agent's own mover does.
type Transfer struct {
	State    string
	Rule     string
	Text     string
	Started  time.Time
	Ended    time.Time
	Flows    []Flow
	Received []Flow
}

// Ports reads a pod's ports.
func Ports(pod *corev1.Pod) (agentconfig.Ports, error) {
	ports, err := agentconfig.ParsePorts(pod.Annotations[v1alpha1.AnnotationPorts])
	if err != nil {
		return ports, fmt.Errorf("ports of pod %s: %w", pod.Name, err)
	}
	return ports, nil
}

// Transfer asks the agent of a pod about a transfer.
func (c *Cluster) Transfer(ctx context.Context, pod *corev1.Pod, id string) (Transfer, error) {
	var t Transfer
	ports, err := Ports(pod)
	if err != nil {
		return t, err
	}
	return t, c.GetJSON(ctx, pod.Namespace, pod.Name, ports.Agent, "/transfers/"+id, &t)
}
