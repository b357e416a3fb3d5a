package pdpool

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

// lostAfter is how long a node may be not ready before its devices count as lost, so
// that one that flaps changes nothing.
const lostAfter = 2 * time.Minute

// Inventory is the devices of a cluster, as its nodes offer and its pods hold them.
// Of resources it counts the extended ones; CPU and memory are the scheduler's.
type Inventory struct {
	now   time.Time
	nodes []deviceNode // by name
}

// deviceNode is a node that has AMD GPUs, or offers extended resources.
type deviceNode struct {
	node *corev1.Node
	held map[holder]map[corev1.ResourceName]int64 // what pods hold
}

// NewInventory takes the nodes of a cluster and the pods that may hold devices; those
// that have ended, or have no node, hold none. Neither is copied or changed. With the
// pods of pools alone, as the operator sees them, devices of others count as free.
func NewInventory(nodes []corev1.Node, pods []corev1.Pod, now time.Time) Inventory {
	inv := Inventory{now: now}
	for i := range nodes {
		if n := &nodes[i]; hasDevices(n) {
			inv.nodes = append(inv.nodes, deviceNode{node: n, held: map[holder]map[corev1.ResourceName]int64{}})
		}
	}
	slices.SortFunc(inv.nodes, func(a, b deviceNode) int { return cmp.Compare(a.node.Name, b.node.Name) })
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		at, ok := inv.find(pod.Spec.NodeName)
		if !ok {
			continue
		}
		inv.nodes[at].hold(holderOf(pod), extended(&pod.Spec))
	}
	return inv
}

// At is the inventory as it is at another time, when a node may have come to count as
// lost. They share what they hold, which nobody changes, so that several goroutines may
// use them at once.
func (inv Inventory) At(now time.Time) Inventory { //nolint:gocritic // three words
	inv.now = now
	return inv
}

// holder is who holds devices: a role of a pool, or the zero one for all others.
type holder struct{ namespace, pool, role string }

func holderOf(pod *corev1.Pod) holder {
	if pool := pod.Labels[v1alpha1.LabelPool]; pool != "" {
		return holder{pod.Namespace, pool, pod.Labels[v1alpha1.LabelRole]}
	}
	return holder{}
}

func (n *deviceNode) hold(who holder, what map[corev1.ResourceName]int64) {
	if len(what) == 0 {
		return
	}
	if n.held[who] == nil {
		n.held[who] = map[corev1.ResourceName]int64{}
	}
	for name, count := range what {
		n.held[who][name] += count
	}
}

// heldBy is what a pool's pods hold of a resource, and what all others do.
func (n *deviceNode) heldBy(pool *v1alpha1.PDPool, name corev1.ResourceName) (own, others int64) {
	for who, what := range n.held {
		if who.namespace == pool.Namespace && who.pool == pool.Name {
			own += what[name]
		} else {
			others += what[name]
		}
	}
	return own, others
}

// holds says whether a role of a pool holds some of a resource.
func (inv *Inventory) holds(pool *v1alpha1.PDPool, role kvlayout.Role, name corev1.ResourceName) bool {
	me := holder{pool.Namespace, pool.Name, string(role)}
	return slices.ContainsFunc(inv.nodes, func(n deviceNode) bool { return n.held[me][name] > 0 })
}

// takes says whether a node takes pods of a role once it has devices free. A node that
// is not known may.
func (inv *Inventory) takes(d *demand, node string) bool {
	at, ok := inv.find(node)
	return !ok || inv.barrier(d, inv.nodes[at].node).kind == open
}

func (inv *Inventory) find(node string) (int, bool) {
	return slices.BinarySearchFunc(inv.nodes, node, func(n deviceNode, name string) int { return cmp.Compare(n.node.Name, name) })
}

// settles is how long it takes until the next node that is not ready counts as lost;
// 0 if there is none.
func (inv *Inventory) settles() time.Duration {
	first := time.Duration(0)
	for i := range inv.nodes {
		since, down := notReady(inv.nodes[i].node)
		if left := since.Add(lostAfter).Sub(inv.now); down && left > 0 && (first == 0 || left < first) {
			first = left
		}
	}
	return first
}

// notReady says since when a node is not ready. One that says nothing about it, as
// in a file written by hand, is taken for ready.
func notReady(n *corev1.Node) (since time.Time, down bool) {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time, c.Status != corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// Spellings of AMD's labels. The labeller writes all keys twice, and its documents
// spell the partition's in a third way.
var (
	deviceIDLabels  = []string{"amd.com/gpu.device-id", "beta.amd.com/gpu.device-id"}
	partitionLabels = []string{"amd.com/gpu.compute-memory-partition", "beta.amd.com/gpu.compute-memory-partition", "amd.com/compute-memory-partition"}
)

// labelsOfGPUs are keys, and prefixes of keys, of nodes that have AMD GPUs.
const (
	labelGPU        = "amd.com/gpu."
	labelBetaGPU    = "beta.amd.com/gpu."
	labelFeatureGPU = "feature.node.kubernetes.io/amd-gpu"
)

// A device whose state this label tells is broken, whatever the plugin still offers.
const (
	labelStatePrefix = "metricsexporter.amd.com.gpu."
	labelStateSuffix = ".state"
	stateUnhealthy   = "unhealthy"
)

// amdNode says whether a node's labels tell of AMD GPUs.
func amdNode(n *corev1.Node) bool {
	for key, value := range n.Labels {
		if strings.HasPrefix(key, labelGPU) || strings.HasPrefix(key, labelBetaGPU) || key == labelFeatureGPU && value == "true" {
			return true
		}
	}
	return false
}

func hasDevices(n *corev1.Node) bool {
	for name := range n.Status.Capacity {
		if isExtended(name) {
			return true
		}
	}
	return amdNode(n)
}

// unhealthy counts the devices that labels tell to be broken.
func unhealthy(n *corev1.Node) int64 {
	count := int64(0)
	for key, value := range n.Labels {
		if value == stateUnhealthy && strings.HasPrefix(key, labelStatePrefix) && strings.HasSuffix(key, labelStateSuffix) {
			count++
		}
	}
	return count
}

// usable is what a node has of a resource for pods. A plugin that looks after the
// health of its devices lowers what is allocatable, and one that does not leaves it
// to the label.
func usable(n *corev1.Node, name corev1.ResourceName) int64 {
	all, offered := capacity(n, name), int64(0)
	if q, ok := n.Status.Allocatable[name]; ok {
		offered = q.Value()
	}
	if broken := unhealthy(n); broken > 0 && amdGPU.MatchString(string(name)) {
		offered = min(offered, all-broken)
	}
	return max(offered, 0)
}

func capacity(n *corev1.Node, name corev1.ResourceName) int64 {
	q, ok := n.Status.Capacity[name]
	if !ok {
		return 0
	}
	return q.Value()
}

// labelled is the value of the first of several spellings of a label.
func labelled(n *corev1.Node, spellings []string) (string, bool) {
	for _, key := range spellings {
		if v, ok := n.Labels[key]; ok {
			return v, true
		}
	}
	return "", false
}

// isExtended says whether a resource is neither CPU, memory nor another of
// Kubernetes' own.
func isExtended(name corev1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// extended is what a pod holds of extended resources: its containers and sidecars
// together, or one init container if that asks for more.
func extended(spec *corev1.PodSpec) map[corev1.ResourceName]int64 {
	var out map[corev1.ResourceName]int64
	look := func(c *corev1.Container, take func(have, more int64) int64) {
		for name, q := range c.Resources.Limits {
			if !isExtended(name) || q.IsZero() {
				continue
			}
			if out == nil {
				out = map[corev1.ResourceName]int64{}
			}
			out[name] = take(out[name], q.Value())
		}
	}
	sum := func(have, more int64) int64 { return have + more }
	most := func(have, more int64) int64 { return max(have, more) }
	for i := range spec.Containers {
		look(&spec.Containers[i], sum)
	}
	var before []*corev1.Container
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			look(c, sum)
		} else {
			before = append(before, c)
		}
	}
	for _, c := range before {
		look(c, most)
	}
	return out
}

// TrimNode leaves of a node what an Inventory looks at, so that a cache of thousands
// stays small and a heartbeat changes nothing: name, labels, taints, extended
// resources and the condition Ready; of a node without devices the name alone.
func TrimNode(n *corev1.Node) *corev1.Node {
	out := &corev1.Node{}
	out.Name, out.UID, out.ResourceVersion = n.Name, n.UID, n.ResourceVersion
	if !hasDevices(n) {
		return out
	}
	out.Labels = make(map[string]string, len(n.Labels))
	for key, value := range n.Labels { // most are the same on thousands of nodes
		out.Labels[unique.Make(key).Value()] = unique.Make(value).Value()
	}
	out.Spec.Taints, out.Spec.Unschedulable = n.Spec.Taints, n.Spec.Unschedulable
	out.Status.Capacity, out.Status.Allocatable = extendedOf(n.Status.Capacity), extendedOf(n.Status.Allocatable)
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	return out
}

func extendedOf(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		if isExtended(name) {
			out[corev1.ResourceName(unique.Make(string(name)).Value())] = *resource.NewQuantity(q.Value(), resource.DecimalSI)
		}
	}
	return out
}
