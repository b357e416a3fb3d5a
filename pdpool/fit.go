package pdpool

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// Fit says how many replicas of a pool the devices of a cluster hold.
type Fit struct {
	// Nodes is the number of nodes that have AMD GPUs or offer the pool's devices.
	Nodes   int     `json:"nodes"`
	Prefill RoleFit `json:"prefill"`
	Decode  RoleFit `json:"decode"`
}

// RoleFit says how many replicas of one role there are devices for. What the pool's
// own pods hold counts as free, and what all other known pods hold does not.
type RoleFit struct {
	// Wanted is the replicas that the spec asks for, Fits those of them that fit
	// beside the other role's, a pair at a time.
	Wanted int `json:"wanted"`
	Fits   int `json:"fits"`
	// Most is how many replicas of the role would fit beside those of the other that do.
	Most int `json:"most"`
	// Pods is the pods of a replica, GPUs the devices of a pod.
	Pods int `json:"pods"`
	GPUs int `json:"gpus"`
	// Reason says, in one sentence with figures, why not more than Most fit.
	Reason string `json:"reason"`
}

// All says whether all replicas that the spec asks for fit.
func (f Fit) All() bool {
	return f.Prefill.Fits == f.Prefill.Wanted && f.Decode.Fits == f.Decode.Wanted
}

// Fit places the replicas of a pool on the devices of the cluster: pairs in turn, first of
// each the role that alone holds devices already, each pod on the node with the fewest
// free devices that has enough. It decides on nothing,
// and of several programs that want the same devices the scheduler chooses.
func (inv *Inventory) Fit(pool *v1alpha1.PDPool) Fit {
	r := resolveBare(pool)
	p := packing{order: [2]int{0, 1}, oneHost: r.oneHost()}
	for i, role := range []kvlayout.Role{kvlayout.Prefill, kvlayout.Decode} {
		p.roles[i] = r.demand(&pool.Spec, role)
	}
	p.resources = resourcesOf(p.roles[:])
	for i := range p.roles {
		for _, name := range p.resources {
			p.need[i] = append(p.need[i], p.roles[i].need[name])
		}
	}
	if device := p.roles[1].device; inv.holds(pool, kvlayout.Decode, device) && !inv.holds(pool, kvlayout.Prefill, device) {
		p.order = [2]int{1, 0}
	}
	for i := range inv.nodes {
		if p.counts(inv.nodes[i].node) {
			p.nodes = append(p.nodes, p.room(inv, &inv.nodes[i], pool))
		}
	}
	p.pack()
	out := Fit{Nodes: len(p.nodes)}
	for i, f := range []*RoleFit{&out.Prefill, &out.Decode} {
		d := &p.roles[i]
		more := p.slots(i) / max(d.pods, 1)
		if p.oneHost {
			more = 0 // what is placed fixes the node
		}
		*f = RoleFit{
			Wanted: d.replicas, Fits: p.fits[i], Most: p.fits[i] + more,
			Pods: d.pods, GPUs: int(d.need[d.device]), Reason: p.reason(i),
		}
	}
	return out
}

// packing is one placing of replicas on nodes.
type packing struct {
	roles     [2]demand
	order     [2]int // of the roles of a pair
	resources []corev1.ResourceName
	need      [2][]int64 // of a pod of each role, by the index of resources
	oneHost   bool
	nodes     []nodeRoom
	fits      [2]int
}

// nodeRoom is what one node has left for the pool.
type nodeRoom struct {
	node *corev1.Node
	// free is by the index of packing.resources.
	free []int64
	// barred says by role why pods don't go there; the zero value says that they may.
	barred [2]bar
}

// counts says whether a node is among those that a sentence counts.
func (p *packing) counts(n *corev1.Node) bool {
	return capacity(n, p.roles[0].device) > 0 || amdNode(n)
}

// room is what a node has left. A node that takes no new pods, or is not of the kind
// that the pool asks for, has what the pool's own pods hold there.
func (p *packing) room(inv *Inventory, n *deviceNode, me *v1alpha1.PDPool) nodeRoom {
	out := nodeRoom{node: n.node, free: make([]int64, len(p.resources))}
	holds := false
	for i, name := range p.resources {
		own, others := n.heldBy(me, name)
		holds = holds || own > 0
		out.free[i] = max(own, usable(n.node, name)-others)
	}
	for i := range p.roles {
		out.barred[i] = inv.barrier(&p.roles[i], n.node)
	}
	if closed := out.barred[0].kind != open && out.barred[1].kind != open; closed && holds {
		for i, name := range p.resources {
			out.free[i], _ = n.heldBy(me, name)
		}
		out.barred = [2]bar{}
	}
	return out
}

// takes is how many pods of a role go on a node.
func (p *packing) takes(role int, n *nodeRoom) int64 {
	if n.barred[role].kind != open {
		return 0
	}
	most := int64(maxTaken)
	for i, need := range p.need[role] {
		if need > 0 {
			most = min(most, n.free[i]/need)
		}
	}
	return max(most, 0)
}

// maxTaken bounds the pods of a role that asks for no device at all.
const maxTaken = 1 << 20

// slots is how many pods of a role go on all nodes together.
func (p *packing) slots(role int) int {
	sum := int64(0)
	for i := range p.nodes {
		sum += p.takes(role, &p.nodes[i])
	}
	return int(sum)
}

// pack places pairs in turn until nothing more fits.
func (p *packing) pack() {
	if !p.oneHost {
		p.fits = p.packOn(p.nodes)
		return
	}
	for i := range p.nodes {
		if fits := p.packOn([]nodeRoom{p.nodes[i].clone()}); fits[0]+fits[1] > p.fits[0]+p.fits[1] {
			p.fits = fits
		}
	}
}

// filled are the nodes once the role holds as many replicas as go on them.
func (p *packing) filled(role int) []nodeRoom {
	out := make([]nodeRoom, 0, len(p.nodes))
	left := int64(p.slots(role))
	left -= left % int64(max(p.roles[role].pods, 1))
	for i := range p.nodes {
		n := p.nodes[i].clone()
		pods := min(p.takes(role, &n), left)
		p.take(role, &n, pods)
		left -= pods
		out = append(out, n)
	}
	return out
}

// packOn places replicas on the given nodes, and takes from them what these hold.
func (p *packing) packOn(nodes []nodeRoom) (fits [2]int) {
	full := [2]bool{}
	for turn := 0; ; turn++ {
		done := true
		for _, i := range p.order {
			if full[i] || turn >= p.roles[i].replicas {
				continue
			}
			done = false
			if !p.replica(i, nodes) {
				full[i] = true
				continue
			}
			fits[i]++
		}
		if done {
			return fits
		}
	}
}

// replica places the pods of one replica, or none of them.
func (p *packing) replica(role int, nodes []nodeRoom) bool {
	taken := make([]int, 0, p.roles[role].pods)
	for range p.roles[role].pods {
		at := p.closest(role, nodes)
		if at < 0 {
			for _, i := range taken {
				p.take(role, &nodes[i], -1)
			}
			return false
		}
		p.take(role, &nodes[at], 1)
		taken = append(taken, at)
	}
	return true
}

// closest is the node that has the fewest free devices of those with enough.
func (p *packing) closest(role int, nodes []nodeRoom) int {
	best := -1
	for i := range nodes {
		// The fewest first: of thousands of nodes, most are told by one number.
		if (best < 0 || nodes[i].free[0] < nodes[best].free[0]) && nodes[i].free[0] >= p.need[role][0] && p.takes(role, &nodes[i]) > 0 {
			best = i
		}
	}
	return best
}

func (p *packing) take(role int, n *nodeRoom, pods int64) {
	for i, need := range p.need[role] {
		n.free[i] -= pods * need
	}
}

func (n *nodeRoom) clone() nodeRoom {
	out := *n
	out.free = append([]int64(nil), n.free...)
	return out
}

// resourcesOf are all resources that roles ask for, devices first.
func resourcesOf(roles []demand) []corev1.ResourceName {
	out := []corev1.ResourceName{roles[0].device}
	seen := map[corev1.ResourceName]bool{out[0]: true}
	for i := range roles {
		for name := range roles[i].need {
			if !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}
