// Package router is the HTTP server in front of a pool: it takes OpenAI requests,
// chooses a prefill and a decode instance whose KV caches fit together, sends each
// its leg of the request, and passes decode's answer to the client byte for byte.
//
// Where instances come from is not decided here: sources publish them to a
// Registry (router/discovery from Kubernetes, router/registration from MoRIIO's
// heartbeats, router/static from a file).
package router

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/pdpool/pdpool/kvlayout"
)

// Instance is one engine instance: all pods of one replica and attempt.
type Instance struct {
	Namespace string        `json:"namespace,omitempty"`
	Pool      string        `json:"pool,omitempty"`
	Role      kvlayout.Role `json:"role"`
	Replica   int           `json:"replica"`
	Attempt   int           `json:"attempt,omitempty"`
	Revision  string        `json:"revision,omitempty"`
	// Pairing is the pairing key: only equal keys form a pair. It is empty for a
	// stock engine outside of a pool, which pairs by its mode alone.
	Pairing string            `json:"pairing,omitempty"`
	Layout  kvlayout.Layout   `json:"layout"`
	Block   int               `json:"blockSize,omitempty"`
	KVType  kvlayout.KVType   `json:"kvType,omitempty"`
	KV      kvlayout.Geometry `json:"geometry,omitzero"` // zero when unknown
	Engine  kvlayout.Engine   `json:"engine"`
	Version string            `json:"engineVersion,omitempty"` // of the engine; empty when unknown
	Mover   kvlayout.Mover    `json:"mover"`
	Mode    kvlayout.Mode     `json:"mode"`
	// OneHost says that its backend moves bytes within one node only.
	OneHost bool `json:"oneHost,omitempty"`
	// Model is the name that clients use; empty when the instance has not told it,
	// then it is offered every model.
	Model string `json:"model,omitempty"`
	Pods  []Pod  `json:"pods"` // by index

	// Ready says that all pods are there and ready; Draining that it gets nothing new.
	Ready    bool `json:"ready"`
	Draining bool `json:"draining,omitempty"`
}

// Pod is one process of an instance with an HTTP server.
type Pod struct {
	Name    string `json:"name,omitempty"`
	Index   int    `json:"index,omitempty"` // in the instance
	Node    string `json:"node,omitempty"`
	Host    string `json:"host"` // IP address or name, IPv6 without brackets
	HTTP    int    `json:"http"`
	Agent   int    `json:"agent,omitempty"` // 0 when there is no agent to ask
	DPStart int    `json:"dpStart,omitempty"`
	// Handshake and Notify are the control ports that a peer is told: the agent's
	// with mover Agent, the engine's bases with mover Engine.
	Handshake int `json:"handshake"`
	Notify    int `json:"notify"`
	// Control is where these ports are, when that is not Host.
	Control string `json:"control,omitempty"`
}

// control is the host that a peer is told.
func (p *Pod) control() string { return cmp.Or(p.Control, p.Host) }

// address is where the pod's engine listens; it tells pods of all sources apart.
func (p *Pod) address() string { return joinPort(p.Host, p.HTTP) }

// joinPort is net.JoinHostPort for a numeric port.
func joinPort(host string, port int) string {
	for i := range len(host) {
		if host[i] == ':' {
			return "[" + host + "]:" + strconv.Itoa(port)
		}
	}
	return host + ":" + strconv.Itoa(port)
}

// clone is a copy that shares no pod with i, with every degree set and pods by index.
func (i *Instance) clone() *Instance {
	c := *i
	c.Layout = i.Layout.Defaulted()
	c.Pods = slices.Clone(i.Pods)
	slices.SortStableFunc(c.Pods, func(a, b Pod) int { return cmp.Compare(a.Index, b.Index) })
	return &c
}

// routable says whether the instance may get something new.
func (i *Instance) routable() bool { return i.Ready && !i.Draining }

// slot is one data parallel rank of an instance: what a leg is sent to.
type slot struct {
	*load
	kin      []*slot // the first of each pod of the instance that is sent legs
	instance *Instance
	pod      *Pod
	rank     int // global
	local    int // index within the pod, what its engine calls it
}

// slots lists the ranks of an instance. Of several pods that hold the same rank the
// first serves HTTP.
func (i *Instance) slots(loadOf func(pod *Pod, rank int) *load) []*slot {
	taken := map[int]bool{}
	var out []*slot
	var kin []*slot
	for p := range i.Pods {
		pod := &i.Pods[p]
		for local := range i.Layout.DPLocal {
			rank := pod.DPStart + local
			if rank < i.Layout.DP && !taken[rank] {
				taken[rank] = true
				s := &slot{load: loadOf(pod, rank), instance: i, pod: pod, rank: rank, local: local}
				if n := len(out); n == 0 || out[n-1].pod != pod {
					kin = append(kin, s)
				}
				out = append(out, s)
			}
		}
	}
	for _, s := range out {
		s.kin = kin
	}
	return out
}
