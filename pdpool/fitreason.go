package pdpool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pdpool/pdpool/kvlayout"
)

// barKind is why pods of a role don't go on a node.
type barKind int

const (
	open barKind = iota
	barredNoDevice
	barredNoPlugin
	barredModel
	barredPartition
	barredSelector
	barredCordoned
	barredLost
	barredTaint
	barredSmall
	barredResource
	barredHeld
	barredPart // takes some pods of a replica, and not all
)

// bar is why pods of a role don't go on a node, with the node's figure.
type bar struct {
	kind barKind
	what string
}

// barText is what a sentence says of nodes, for one and for several of them.
var barText = map[barKind][2]string{
	barredNoDevice:  {"offers no such device", "offer no such device"},
	barredNoPlugin:  {"offers none, though its labels tell of AMD GPUs: a DRA driver has them, or no device plugin runs", "offer none, though their labels tell of AMD GPUs: a DRA driver has them, or no device plugin runs"},
	barredModel:     {"has another device id", "have another device id"},
	barredPartition: {"is partitioned otherwise", "are partitioned otherwise"},
	barredSelector:  {"is not selected by the template", "are not selected by the template"},
	barredCordoned:  {"is cordoned", "are cordoned"},
	barredLost:      {"is not ready", "are not ready"},
	barredTaint:     {"has a taint that is not tolerated", "have a taint that is not tolerated"},
	barredSmall:     {"has fewer that work", "have fewer that work"},
	barredResource:  {"lacks another resource", "lack another resource"},
	barredHeld:      {"has too few free", "have too few free"},
	barredPart:      {"has room for a part", "have room for a part"},
}

// barrier tells why a node takes no pod of a role, whatever is free there.
func (inv *Inventory) barrier(d *demand, n *corev1.Node) bar {
	for _, check := range []func(*demand, *corev1.Node) bar{kindBar, inv.stateBar, sizeBar} {
		if b := check(d, n); b.kind != open {
			return b
		}
	}
	return bar{}
}

// kindBar tells of a node with other devices than those that were asked for.
func kindBar(d *demand, n *corev1.Node) bar {
	if capacity(n, d.device) == 0 {
		return noDevice(n)
	}
	if id, ok := labelled(n, deviceIDLabels); len(d.gpu.DeviceIDs) > 0 && !slices.Contains(d.gpu.DeviceIDs, id) {
		return bar{barredModel, or(ok, id, "no label of one")}
	}
	if mode, ok := labelled(n, partitionLabels); d.gpu.Partition != "" && mode != d.gpu.Partition {
		return bar{barredPartition, or(ok, mode, "no label of it")}
	}
	if !selects(&d.place, n) {
		return bar{kind: barredSelector}
	}
	return bar{}
}

// stateBar tells of a node that takes no pods for now.
func (inv *Inventory) stateBar(d *demand, n *corev1.Node) bar {
	if n.Spec.Unschedulable {
		return bar{kind: barredCordoned}
	}
	if since, down := notReady(n); down && inv.now.Sub(since) >= lostAfter {
		return bar{kind: barredLost}
	}
	if taint, ok := untolerated(&d.place, n); ok {
		return bar{barredTaint, taint}
	}
	return bar{}
}

// sizeBar tells of a node that has less than a pod takes even when it is empty.
func sizeBar(d *demand, n *corev1.Node) bar {
	if has := usable(n, d.device); has < d.need[d.device] {
		return bar{barredSmall, fmt.Sprintf("%d of %d", has, capacity(n, d.device))}
	}
	for _, name := range slices.Sorted(maps.Keys(d.need)) {
		if has := usable(n, name); has < d.need[name] {
			return bar{barredResource, fmt.Sprintf("%d %s", has, name)}
		}
	}
	return bar{}
}

func or(ok bool, text, other string) string {
	if ok {
		return text
	}
	return other
}

// noDevice tells what a node has in place of the devices.
func noDevice(n *corev1.Node) bar {
	for _, name := range slices.Sorted(maps.Keys(n.Status.Capacity)) {
		if count := capacity(n, name); amdGPU.MatchString(string(name)) && count > 0 {
			return bar{barredNoDevice, fmt.Sprintf("%d %s", count, name)}
		}
	}
	return bar{kind: barredNoPlugin}
}

// reason says why one replica of a role more does not fit, by the nodes' figures.
func (p *packing) reason(role int) string {
	d := &p.roles[role]
	head, nodes := fmt.Sprintf("another %s replica takes %s", d.role, d), p.nodes
	if p.oneHost {
		head = fmt.Sprintf("all instances are kept on one node, where a pair takes %d %s", p.pair(), d.device)
	} else {
		nodes = p.filled(role)
	}
	if len(p.nodes) == 0 {
		return fmt.Sprintf("%s, and no node has %s", head, d.device)
	}
	counts, first := map[barKind]int{}, map[barKind]string{}
	for i := range nodes {
		b := p.bar(role, &nodes[i])
		if counts[b.kind]++; counts[b.kind] == 1 {
			first[b.kind] = nodes[i].node.Name
			if b.what != "" {
				first[b.kind] += ": " + b.what
			}
		}
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		n, text := counts[kind], barText[kind][0]
		if n > 1 {
			text = barText[kind][1]
		}
		parts = append(parts, fmt.Sprintf("%d %s (%s)", n, text, first[kind]))
	}
	of := fmt.Sprintf("of %d nodes", len(nodes))
	if len(nodes) == 1 {
		of = "of 1 node"
	}
	return fmt.Sprintf("%s, and %s with AMD GPUs %s", head, of, strings.Join(parts, ", "))
}

// bar is why a node takes no replica more.
func (p *packing) bar(role int, n *nodeRoom) bar {
	d := &p.roles[role]
	if n.barred[role].kind != open {
		return n.barred[role]
	}
	if p.oneHost {
		return bar{barredHeld, fmt.Sprintf("%d of %d %s", max(n.free[0], 0), usable(n.node, d.device), d.device)}
	}
	if pods := p.takes(role, n); pods > 0 {
		return bar{barredPart, fmt.Sprintf("%d of %d pods", min(pods, int64(d.pods)), d.pods)}
	}
	for i, name := range p.resources {
		if n.free[i] < d.need[name] {
			return bar{barredHeld, fmt.Sprintf("%d of %d %s", max(n.free[i], 0), usable(n.node, name), name)}
		}
	}
	return bar{kind: barredHeld}
}

// pair is the devices of a prefill and a decode replica.
func (p *packing) pair() int64 {
	sum := int64(0)
	for i := range p.roles {
		sum += int64(p.roles[i].pods) * p.roles[i].need[p.roles[i].device]
	}
	return sum
}

// line tells how many replicas fit, such as "2 of 2 prefill replicas".
func (f RoleFit) line(role kvlayout.Role) string {
	return fmt.Sprintf("%d of %d %s replicas", f.Fits, f.Wanted, role)
}

// String is one sentence with the figures: how many replicas fit, and of a role that
// lacks devices why.
func (f Fit) String() string {
	parts := []string{"the nodes have devices for " + f.Prefill.line(kvlayout.Prefill) + " and " + f.Decode.line(kvlayout.Decode)}
	for _, r := range []RoleFit{f.Prefill, f.Decode} {
		if r.Fits < r.Wanted {
			parts = append(parts, r.Reason)
		}
	}
	return strings.Join(parts, "; ")
}
