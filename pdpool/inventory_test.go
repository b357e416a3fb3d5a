package pdpool

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
)

var inventoryTime = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// gpuNode is a node with so many whole devices of MI300X, and changes.
func gpuNode(name string, devices int64, changes ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"amd.com/gpu.device-id": "74a1", "beta.amd.com/gpu.device-id": "74a1", corev1.LabelHostname: name,
	}}}
	has(v1alpha1.DefaultGPUResource, devices, devices)(&n)
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(inventoryTime.Add(-time.Hour)),
	}}
	for _, change := range changes {
		change(&n)
	}
	return n
}

func has(name corev1.ResourceName, capacity, allocatable int64) func(*corev1.Node) {
	return func(n *corev1.Node) {
		if n.Status.Capacity == nil {
			n.Status.Capacity, n.Status.Allocatable = corev1.ResourceList{}, corev1.ResourceList{}
		}
		n.Status.Capacity[name] = *resource.NewQuantity(capacity, resource.DecimalSI)
		n.Status.Allocatable[name] = *resource.NewQuantity(allocatable, resource.DecimalSI)
	}
}

func roleOf(role string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[v1alpha1.LabelRole] = role }
}

func hasNone(n *corev1.Node) {
	delete(n.Status.Capacity, v1alpha1.DefaultGPUResource)
	delete(n.Status.Allocatable, v1alpha1.DefaultGPUResource)
}

func nodeLabel(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[key] = value }
}

func noNodeLabel(keys ...string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		for _, key := range keys {
			delete(n.Labels, key)
		}
	}
}

func tainted(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func cordoned(n *corev1.Node) {
	n.Spec.Unschedulable = true
	tainted(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)(n)
}

func lostFor(d time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(inventoryTime.Add(-d))
		tainted(corev1.TaintNodeUnreachable, "", corev1.TaintEffectNoSchedule)(n)
	}
}

// holding is a pod of a pool, or of none, that holds devices on a node.
func holding(pool, node string, name corev1.ResourceName, devices int64, changes ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "serving"},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{name: *resource.NewQuantity(devices, resource.DecimalSI)},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if pool != "" {
		p.Labels = map[string]string{v1alpha1.LabelPool: pool}
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

// sized is the demo's pool with so many devices per pod and replicas.
func sized(t testing.TB, prefill, prefills, decode, decodes int32, changes ...func(*v1alpha1.PDPool)) *v1alpha1.PDPool {
	return simulatorPool(t, append([]func(*v1alpha1.PDPool){
		layouts(v1alpha1.LayoutSpec{TP: prefill}, v1alpha1.LayoutSpec{TP: decode}), replicas(prefills, decodes),
	}, changes...)...)
}

func TestFit(t *testing.T) {
	const gpu = v1alpha1.DefaultGPUResource
	two := func(changes ...func(*corev1.Node)) []corev1.Node {
		return []corev1.Node{gpuNode("n1", 8), gpuNode("n2", 8, changes...)}
	}
	mixed := []func(*corev1.Node){
		noNodeLabel("amd.com/gpu.device-id", "beta.amd.com/gpu.device-id"),
		nodeLabel("amd.com/gpu.device-id.74a1", "4"), nodeLabel("amd.com/gpu.device-id.75a3", "4"),
	}
	ids := spec(func(s *v1alpha1.PDPoolSpec) { s.GPU.DeviceIDs = []string{"75a3"} })
	cpx := spec(func(s *v1alpha1.PDPoolSpec) {
		s.GPU.ResourceName, s.GPU.DevicesPerNode, s.GPU.Partition = "amd.com/cpx_nps4", 64, "cpx_nps4"
	})
	sharedMemory := spec(func(s *v1alpha1.PDPoolSpec) { s.Transfer.Backend = v1alpha1.BackendSharedMemory })
	for name, c := range map[string]struct {
		pool            *v1alpha1.PDPool
		nodes           []corev1.Node
		pods            []corev1.Pod
		prefill, decode int // that fit
		most            int // of decode
		why             string
	}{
		"all fit":                        {sized(t, 8, 1, 8, 1), two(), nil, 1, 1, 1, "2 have too few free (n1: 0 of 8 amd.com/gpu)"},
		"room for more":                  {sized(t, 4, 1, 2, 1), two(), nil, 1, 1, 6, "another decode replica takes 2 amd.com/gpu"},
		"a pair at a time":               {sized(t, 8, 2, 8, 2), two(), nil, 1, 1, 1, "too few free"},
		"no node":                        {sized(t, 8, 1, 8, 1), nil, nil, 0, 0, 0, "no node has amd.com/gpu"},
		"nodes without GPUs only":        {sized(t, 8, 1, 8, 1), []corev1.Node{{}}, nil, 0, 0, 0, "no node has amd.com/gpu"},
		"held by another pool":           {sized(t, 8, 1, 8, 1), two(), []corev1.Pod{holding("other", "n1", gpu, 1)}, 1, 0, 0, "2 have too few free (n1: 7 of 8 amd.com/gpu)"},
		"held by somebody":               {sized(t, 8, 1, 8, 1), two(), []corev1.Pod{holding("", "n1", gpu, 1)}, 1, 0, 0, "too few free"},
		"held by itself":                 {sized(t, 8, 1, 8, 1), two(), []corev1.Pod{holding("r1", "n1", gpu, 8)}, 1, 1, 1, ""},
		"decode holds what there is":     {sized(t, 8, 1, 8, 1), two(has(gpu, 8, 0)), []corev1.Pod{holding("r1", "n1", gpu, 8, roleOf(v1alpha1.RoleDecode))}, 0, 1, 1, ""},
		"prefill holds what there is":    {sized(t, 8, 1, 8, 1), two(has(gpu, 8, 0)), []corev1.Pod{holding("r1", "n1", gpu, 8, roleOf(v1alpha1.RolePrefill))}, 1, 0, 0, ""},
		"held by a pool of that name":    {sized(t, 8, 1, 8, 1), two(), []corev1.Pod{holding("r1", "n1", gpu, 8, func(p *corev1.Pod) { p.Namespace = "else" })}, 1, 0, 0, ""},
		"given back by a pod that ended": {sized(t, 8, 1, 8, 1), two(), []corev1.Pod{holding("other", "n1", gpu, 8, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, 1, 1, 1, ""},
		"cordoned":                       {sized(t, 8, 1, 8, 1), two(cordoned), nil, 1, 0, 0, "1 is cordoned (n2)"},
		"cordoned with its own pod":      {sized(t, 8, 1, 8, 1), two(cordoned), []corev1.Pod{holding("r1", "n2", gpu, 8)}, 1, 1, 1, ""},
		"cordoned, own pod on a part":    {sized(t, 4, 2, 4, 2), two(cordoned), []corev1.Pod{holding("r1", "n2", gpu, 4)}, 2, 1, 1, ""},
		"flaps":                          {sized(t, 8, 1, 8, 1), two(lostFor(time.Minute)), nil, 1, 1, 1, ""},
		"lost":                           {sized(t, 8, 1, 8, 1), two(lostFor(lostAfter)), nil, 1, 0, 0, "1 is not ready (n2)"},
		"broken, as the plugin says":     {sized(t, 8, 1, 8, 1), two(has(gpu, 8, 7)), nil, 1, 0, 0, "1 has fewer that work (n2: 7 of 8)"},
		"broken, as the label says":      {sized(t, 8, 1, 8, 1), two(nodeLabel("metricsexporter.amd.com.gpu.3.state", "unhealthy")), nil, 1, 0, 0, "1 has fewer that work (n2: 7 of 8)"},
		"broken, as both say":            {sized(t, 8, 1, 7, 1), two(has(gpu, 8, 7), nodeLabel("metricsexporter.amd.com.gpu.3.state", "unhealthy")), nil, 1, 1, 1, ""},
		"remediated":                     {sized(t, 8, 1, 8, 1), two(tainted("amd-gpu-unhealthy", "", corev1.TaintEffectNoSchedule)), nil, 1, 0, 0, "1 has a taint that is not tolerated (n2: amd-gpu-unhealthy:NoSchedule)"},
		"being partitioned":              {sized(t, 8, 1, 8, 1), two(tainted("amd-dcm", "up", corev1.TaintEffectNoExecute)), nil, 1, 0, 0, "n2: amd-dcm=up:NoExecute"},
		"a taint that is tolerated": {
			sized(t, 8, 1, 8, 1, decodeTemplate(`{"spec":{"tolerations":[{"key":"team","operator":"Exists"}]}}`)),
			two(tainted("team", "a", corev1.TaintEffectNoSchedule)), nil, 1, 1, 1, "",
		},
		"a DRA driver's": {sized(t, 8, 1, 8, 1), two(hasNone), nil, 1, 0, 0, "1 offers none, though its labels tell of AMD GPUs: a DRA driver has them, or no device plugin runs (n2)"},
		"partitions where whole ones are asked for": {sized(t, 8, 1, 8, 1), two(hasNone, has("amd.com/cpx_nps4", 64, 64)), nil, 1, 0, 0, "1 offers no such device (n2: 64 amd.com/cpx_nps4)"},
		"partitions": {
			sized(t, 8, 2, 16, 3, cpx), two(hasNone, has("amd.com/cpx_nps4", 64, 64), nodeLabel("amd.com/gpu.compute-memory-partition", "cpx_nps4")),
			nil, 2, 3, 3, "1 offers no such device (n1: 8 amd.com/gpu)",
		},
		"partitions in the documents' spelling": {
			sized(t, 8, 1, 16, 1, cpx), two(hasNone, has("amd.com/cpx_nps4", 64, 64), nodeLabel("amd.com/compute-memory-partition", "cpx_nps4")),
			nil, 1, 1, 3, "",
		},
		"partitions without a label":      {sized(t, 8, 1, 16, 1, cpx), two(hasNone, has("amd.com/cpx_nps4", 64, 64)), nil, 0, 0, 0, "1 is partitioned otherwise (n2: no label of it)"},
		"another model":                   {sized(t, 8, 1, 8, 1, ids), two(), nil, 0, 0, 0, "2 have another device id (n1: 74a1)"},
		"the model, with the beta label":  {sized(t, 4, 1, 4, 1, ids), two(noNodeLabel("amd.com/gpu.device-id"), nodeLabel("beta.amd.com/gpu.device-id", "75a3")), nil, 1, 1, 1, "1 has another device id (n1: 74a1)"},
		"models side by side in one node": {sized(t, 4, 1, 4, 1, ids), two(mixed...), nil, 0, 0, 0, "2 have another device id"},
		"not selected":                    {sized(t, 8, 1, 8, 1, decodeTemplate(`{"spec":{"nodeSelector":{"zone":"a"}}}`)), two(), nil, 1, 0, 0, "2 are not selected by the template (n1)"},
		"an RDMA resource": {
			sized(t, 4, 1, 4, 1, decodeTemplate(`{"spec":{"containers":[{"name":"engine","resources":{"limits":{"amd.com/vnic":"4"}}}]}}`)),
			two(has("amd.com/vnic", 8, 8)), nil, 1, 1, 2, "another decode replica takes 4 amd.com/gpu and 4 amd.com/vnic",
		},
		"an RDMA resource that lacks": {
			sized(t, 8, 1, 8, 1, decodeTemplate(`{"spec":{"containers":[{"name":"engine","resources":{"limits":{"rdma/hca":"1"}}}]}}`)),
			two(), nil, 1, 0, 0, "2 lack another resource (n1: 0 rdma/hca)",
		},
		"several pods": {
			sized(t, 8, 1, 8, 1, spec(func(s *v1alpha1.PDPoolSpec) { s.Decode.Layout.DP, s.Decode.Layout.DPLocal = 2, 1 })), two(), nil, 1, 0, 0,
			"another decode replica takes 2 pods with 8 amd.com/gpu each, and of 2 nodes with AMD GPUs 1 has too few free (n1: 0 of 8 amd.com/gpu), 1 has room for a part (n2: 1 of 2 pods)",
		},
		"one host":           {sized(t, 4, 1, 4, 1, sharedMemory), two(), nil, 1, 1, 1, ""},
		"one host, too full": {sized(t, 4, 1, 4, 1, sharedMemory), two(), []corev1.Pod{holding("x", "n1", gpu, 1), holding("x", "n2", gpu, 2)}, 1, 0, 0, "all instances are kept on one node, where a pair takes 8 amd.com/gpu, and of 2 nodes with AMD GPUs 2 have too few free (n1: 7 of 8 amd.com/gpu)"},
		"none wanted":        {sized(t, 8, 0, 8, 0), two(), nil, 0, 0, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inv := NewInventory(c.nodes, c.pods, inventoryTime)
			fit := inv.Fit(c.pool)
			if fit.Prefill.Fits != c.prefill || fit.Decode.Fits != c.decode || fit.Decode.Most != c.most {
				t.Errorf("%d prefill and %d decode replicas fit, %d decode at most; want %d, %d and %d: %s",
					fit.Prefill.Fits, fit.Decode.Fits, fit.Decode.Most, c.prefill, c.decode, c.most, fit.Decode.Reason)
			}
			if !strings.Contains(fit.Decode.Reason, c.why) {
				t.Errorf("the reason is %q, want %q in it", fit.Decode.Reason, c.why)
			}
			if fit.All() != (fit.Prefill.Fits == fit.Prefill.Wanted && fit.Decode.Fits == fit.Decode.Wanted) || fit.All() == strings.Contains(fit.String(), ";") {
				t.Errorf("all fit: %v, and the sentence is %q", fit.All(), fit)
			}
		})
	}
}

// TestFitGrows holds that what fits wholly does so with a node more or a pod of others
// less, and that what fits never takes more devices than there are.
func TestFitGrows(t *testing.T) {
	for seed := range 300 {
		n := func(of int) int { seed = (seed*1103515245 + 12345) & (1<<31 - 1); return seed >> 8 % 31 % of }
		var nodes []corev1.Node
		devices := int64(0)
		for i := range 1 + n(5) {
			nodes = append(nodes, gpuNode(fmt.Sprintf("n%d", i), 8))
			devices += 8
		}
		tp := []int32{1, 2, 4, 8}
		pool := sized(t, tp[n(4)], int32(n(4)), tp[n(4)], int32(n(4)))
		pods := []corev1.Pod{holding("x", "n0", v1alpha1.DefaultGPUResource, int64(n(9)))}
		inv := NewInventory(nodes, pods, inventoryTime)
		fit := inv.Fit(pool)
		if used := int64(fit.Prefill.Fits*fit.Prefill.GPUs + fit.Decode.Fits*fit.Decode.GPUs); used > devices {
			t.Fatalf("%d devices are used of %d", used, devices)
		}
		more := NewInventory(append(nodes, gpuNode("n9", 8)), pods, inventoryTime)
		free := NewInventory(nodes, nil, inventoryTime)
		for _, other := range []Inventory{more, free} {
			if o := other.Fit(pool); fit.All() && !o.All() {
				t.Errorf("%s, and with more devices %s", fit, o)
			}
		}
	}
}

// TestNodeAffinity holds that pods go only where the devices are that were asked for,
// in each spelling of the labels, and beside what the user's template asks for.
func TestNodeAffinity(t *testing.T) {
	pool := simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) {
		s.GPU.DeviceIDs, s.GPU.Partition = []string{"75a3", "74a1"}, "spx_nps1"
	}), decodeTemplate(`{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
		{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]},{"matchFields":[{"key":"metadata.name","operator":"In","values":["n9"]}]},{}]}}}}}`))
	for role, terms := range map[kvlayout.Role]int{kvlayout.Prefill: 6, kvlayout.Decode: 12} {
		r := Resolve(pool, testDefaults)
		template, err := r.podTemplate(pool, role, testDefaults, newMarks("x"))
		if err != nil {
			t.Fatal(err)
		}
		required := template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		if len(required.NodeSelectorTerms) != terms {
			t.Errorf("%s has %d terms, want %d", role, len(required.NodeSelectorTerms), terms)
		}
		for name, c := range map[string]struct {
			node            corev1.Node
			prefill, decode bool
		}{
			"the user's and ours":  {gpuNode("n1", 8, nodeLabel("zone", "a"), nodeLabel("amd.com/gpu.compute-memory-partition", "spx_nps1")), true, true},
			"ours alone":           {gpuNode("n1", 8, nodeLabel("amd.com/gpu.compute-memory-partition", "spx_nps1")), true, false},
			"the user's by name":   {gpuNode("n9", 8, nodeLabel("amd.com/compute-memory-partition", "spx_nps1")), true, true},
			"the user's alone":     {gpuNode("n9", 8, nodeLabel("zone", "a")), false, false},
			"another partitioning": {gpuNode("n9", 8, nodeLabel("amd.com/compute-memory-partition", "cpx_nps1")), false, false},
		} {
			want := c.prefill
			if role == kvlayout.Decode {
				want = c.decode
			}
			if got := selects(&template.Spec, &c.node); got != want {
				t.Errorf("%s of %s is selected: %v", name, role, got)
			}
		}
	}
}

// TestDeviceFieldsRoll holds that other devices are another revision that pairs with
// the old one, and that a pool without them keeps the revision that it had.
func TestDeviceFieldsRoll(t *testing.T) {
	plain := simulatorPool(t)
	chosen := simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.GPU.DeviceIDs = []string{"75a3", "74a1"} }))
	turned := simulatorPool(t, spec(func(s *v1alpha1.PDPoolSpec) { s.GPU.DeviceIDs = []string{"74a1", "75a3"} }))
	a, b, c := Resolve(plain, testDefaults), Resolve(chosen, testDefaults), Resolve(turned, testDefaults)
	if a.pairing != b.pairing {
		t.Error("other devices change the pairing key")
	}
	if a.roleRevision(&plain.Spec, kvlayout.Decode) == b.roleRevision(&chosen.Spec, kvlayout.Decode) {
		t.Error("other devices are no other revision")
	}
	if b.roleRevision(&chosen.Spec, kvlayout.Decode) != c.roleRevision(&turned.Spec, kvlayout.Decode) {
		t.Error("the order of device ids changes the revision")
	}
}

func TestHolds(t *testing.T) {
	for name, c := range map[string]struct {
		r    corev1.NodeSelectorRequirement
		want bool
	}{
		"in":             {corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpIn, Values: []string{"5"}}, true},
		"not in":         {corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"5"}}, false},
		"not in, unset":  {corev1.NodeSelectorRequirement{Key: "b", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"5"}}, true},
		"exists":         {corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpExists}, true},
		"exists not":     {corev1.NodeSelectorRequirement{Key: "b", Operator: corev1.NodeSelectorOpDoesNotExist}, true},
		"greater":        {corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}}, true},
		"less":           {corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpLt, Values: []string{"4"}}, false},
		"less than text": {corev1.NodeSelectorRequirement{Key: "a", Operator: corev1.NodeSelectorOpLt, Values: []string{"x"}}, false},
		"unknown":        {corev1.NodeSelectorRequirement{Key: "a", Operator: "Like"}, false},
	} {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "5"}}}
		if got := termSelects(&corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{c.r}}, &n); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// deviceLooks is a pool whose operator looks at nodes again and again.
type deviceLooks struct {
	t      *testing.T
	pool   *v1alpha1.PDPool
	now    time.Time
	writes int
	next   time.Duration // until the next look
}

// fits looks once, and returns what the status tells.
func (d *deviceLooks) fits(nodes ...corev1.Node) bool {
	d.t.Helper()
	seen := Observed{Now: d.now, Devices: NewInventory(nodes, nil, d.now)}
	plan := Compute(d.pool, seen, testDefaults)
	status := Status(d.pool, seen, plan, nil)
	i := slices.IndexFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionGPUsAvailable })
	if i < 0 {
		d.t.Fatal("the status does not tell of devices")
	}
	if string(encode(status)) != string(encode(d.pool.Status)) {
		d.writes++
	}
	d.pool.Status, d.next = status, plan.RequeueAfter
	return status.Conditions[i].Status == metav1.ConditionTrue
}

// later lets time pass.
func (d *deviceLooks) later(by time.Duration) { d.now, d.writes = d.now.Add(by), 0 }

// TestDevicesThatComeAndGo holds that a device plugin that restarts for ever makes a
// write every two minutes at most.
func TestDevicesThatComeAndGo(t *testing.T) {
	d := &deviceLooks{t: t, pool: sized(t, 8, 1, 8, 1), now: inventoryTime}
	if !d.fits(gpuNode("n1", 8), gpuNode("n2", 8)) {
		t.Error("devices for all, and the status denies it")
	}
	d.later(time.Hour)
	for i := range 59 {
		d.now = d.now.Add(2 * time.Second)
		n2 := gpuNode("n2", 8)
		if i%2 == 0 {
			has(v1alpha1.DefaultGPUResource, 8, 0)(&n2)
		}
		d.fits(gpuNode("n1", 8), n2)
	}
	if d.writes != 1 {
		t.Errorf("%d writes in two minutes of devices that come and go", d.writes)
	}
	if d.later(gpuPause); !d.fits(gpuNode("n1", 8), gpuNode("n2", 8)) {
		t.Error("the devices are back, and the status denies it")
	}
}

// TestNodeThatFlaps holds that a node which is not ready for less than two minutes
// each time makes no write, and that one which stays away is missed.
func TestNodeThatFlaps(t *testing.T) {
	d := &deviceLooks{t: t, pool: sized(t, 8, 1, 8, 1), now: inventoryTime}
	d.fits(gpuNode("n1", 8), gpuNode("n2", 8))
	d.later(time.Hour)
	n2 := gpuNode("n2", 8)
	for i := range 60 {
		d.now = d.now.Add(2 * time.Second)
		n2 = gpuNode("n2", 8)
		if n2.Status.Conditions[0].LastTransitionTime = metav1.NewTime(d.now); i%2 == 1 {
			n2.Status.Conditions[0].Status = corev1.ConditionUnknown
		}
		if !d.fits(gpuNode("n1", 8), n2) || i%2 == 1 && d.next > lostAfter {
			t.Fatalf("it is missed at once, or the next look comes after %s", d.next)
		}
	}
	if d.writes > 0 {
		t.Errorf("%d writes for a node that flaps", d.writes)
	}
	if d.later(lostAfter); d.fits(gpuNode("n1", 8), n2) || d.next == 0 || d.next > gpuLook {
		t.Errorf("a node that stays away is not missed, or the next look comes after %s", d.next)
	}
	d.pool.Spec.Decode.Replicas = new(int32(0))
	if d.pool.Generation++; !d.fits(gpuNode("n1", 8), n2) {
		t.Error("a new spec has to wait for its verdict")
	}
}

// TestInventoryMemory bounds what five thousand nodes take: of each, what the cache
// keeps of it.
func TestInventoryMemory(t *testing.T) {
	const nodes, most = 5000, 32 << 20
	data, err := json.Marshal(bigNode())
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := make([]*corev1.Node, 0, nodes)
	for i := range nodes {
		var n corev1.Node
		if err := json.Unmarshal(data, &n); err != nil {
			t.Fatal(err)
		}
		n.Name = fmt.Sprintf("node-%d", i)
		kept = append(kept, TrimNode(&n))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d nodes of %d bytes take %d KiB", nodes, len(data), took>>10)
	if took > most {
		t.Errorf("%d nodes take %d bytes, allowed are %d", nodes, took, most)
	}
	runtime.KeepAlive(kept)
}

// bigNode is a node as large ones are: images, annotations, many labels.
func bigNode() corev1.Node {
	n := gpuNode("node", 8, has(corev1.ResourceCPU, 256, 250), has("rdma/hca", 8, 8))
	n.Annotations = map[string]string{}
	for i := range 50 {
		n.Labels[fmt.Sprintf("feature.node.kubernetes.io/cpu-feature-%d", i)] = "true"
		n.Annotations[fmt.Sprintf("example.com/annotation-%d", i)] = strings.Repeat("x", 100)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{strings.Repeat("image", 20), strings.Repeat("image", 15)}, SizeBytes: 1})
	}
	return n
}

// TestTrimNode holds that a trimmed node is the same to an inventory, and that a
// heartbeat leaves it equal.
func TestTrimNode(t *testing.T) {
	pool := sized(t, 8, 1, 8, 1)
	n := gpuNode("n1", 8, has("rdma/hca", 8, 8), tainted("amd-dcm", "up", corev1.TaintEffectNoExecute))
	whole, trimmed := NewInventory([]corev1.Node{n}, nil, inventoryTime), NewInventory([]corev1.Node{*TrimNode(&n)}, nil, inventoryTime)
	if a, b := whole.Fit(pool), trimmed.Fit(pool); a != b {
		t.Errorf("whole: %+v\ntrimmed: %+v", a, b)
	}
	beat := n.DeepCopy()
	beat.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	beat.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
	if a, b := TrimNode(&n), TrimNode(beat); string(encode(a)) != string(encode(b)) {
		t.Error("a heartbeat changes what is kept")
	}
	plain := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu", Labels: map[string]string{"a": "b"}}}
	if got := TrimNode(&plain); len(got.Labels) > 0 || got.Name != "cpu" {
		t.Errorf("of a node without devices is kept %+v", got)
	}
}

// BenchmarkFit is a look at five thousand nodes.
func BenchmarkFit(b *testing.B) {
	nodes := make([]corev1.Node, 0, 5000)
	for i := range 5000 {
		nodes = append(nodes, gpuNode(fmt.Sprintf("node-%d", i), 8))
	}
	pool := sized(b, 8, 16, 8, 16)
	for b.Loop() {
		inv := NewInventory(nodes, nil, inventoryTime)
		if fit := inv.Fit(pool); !fit.All() {
			b.Fatal(fit)
		}
	}
}
