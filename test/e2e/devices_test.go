package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// verdictWithin is how long what the status tells of devices may take to follow them: two
// minutes since it was written last, and the pause in which changes of nodes are gathered.
const verdictWithin = 150 * time.Second

// Labels of AMD's that tell how a node's devices are partitioned, and modes of it.
const (
	partitionLabel = "amd.com/gpu.compute-memory-partition"
	whole, parts   = "spx_nps1", "cpx_nps4"
)

var _ = Describe("The devices of a pool", func() {
	It("are counted as they come and go, and the command line counts the same", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		unlabelled := func(n *corev1.Node) { delete(n.Labels, partitionLabel) }
		for _, node := range nodes {
			edited(ctx, node, func(n *corev1.Node) { n.Labels[partitionLabel] = whole }, unlabelled)
		}
		// Pods would hold what they have; none comes up while the namespace may have none.
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-devices"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.amd.com/gpu": resource.MustParse("0")}},
		}
		Expect(k8s.Create(ctx, quota)).To(Succeed())
		p := pool{
			setup:     setup{model: smallMLA, prefill: tp(4), decode: tp(4), backend: "TCP", anywhere: true, replicas: 3, partition: whole},
			namespace: namespace, name: "pool",
		}
		first, last := nodes[0], nodes[1]
		full := fmt.Sprintf("another decode replica takes 4 amd.com/gpu, and of 2 nodes with AMD GPUs 2 have too few free (%s: 0 of 8 amd.com/gpu)", first)
		beside := func(what string) string {
			return fmt.Sprintf("another prefill replica takes 4 amd.com/gpu, and of 2 nodes with AMD GPUs 1 %s, 1 has too few free (%s: 0 of 8 amd.com/gpu)", what, first)
		}
		small := beside(fmt.Sprintf("has fewer that work (%s: 3 of 8)", last))
		p.lacks(ctx, 2, full, ofCluster, ofNodes)

		for _, c := range p.troubles(ctx, last) {
			By(c.told)
			undo := c.make()
			p.lacks(ctx, 1, beside(c.told), ofCluster, ofNodes)
			undo()
			p.lacks(ctx, 2, full, ofCluster)
		}

		By("pods that run beside broken devices")
		undo := broken(ctx, last, 5)
		p.replicas = 2
		// The scheduler knows of them before it sees a pod, else a kubelet has to reject it.
		p.lacks(ctx, 1, small, ofNodes)
		Expect(k8s.Delete(ctx, quota)).To(Succeed())
		Eventually(func(g Gomega, ctx context.Context) {
			now, err := k8s.Pool(ctx, namespace, p.name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(apimeta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.ConditionAvailable)).To(BeTrue())
		}).WithContext(ctx).Should(Succeed())
		p.lacks(ctx, 1, small, ofCluster)

		By("devices that come back, without a change of the pool")
		undo()
		Eventually(func(g Gomega, ctx context.Context) {
			c, err := p.devices(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.Status).To(Equal(metav1.ConditionTrue), c.Message)
			g.Expect(c.Message).To(Equal("the nodes have devices for 2 of 2 prefill replicas and 2 of 2 decode replicas"))
		}).WithContext(ctx).WithTimeout(verdictWithin).Should(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, p.name, readyWithin)).To(Succeed())
		p.agrees(ctx, ofCluster)
		p.right(ctx, 2)

		By("another pool beside it")
		other := p
		other.name, other.replicas = "other", 1
		other.lacks(ctx, 0, full, ofCluster)
	}, NodeTimeout(15*time.Minute))
})

// trouble is what keeps a pool's pods off a node, and how the status tells it.
type trouble struct {
	make func() (undo func())
	told string
}

func (p *pool) troubles(ctx context.Context, node string) []trouble {
	const taint = "amd-gpu-unhealthy"
	edit := func(do, undo func(*corev1.Node)) func() func() {
		return func() func() { return edited(ctx, node, do, undo) }
	}
	return []trouble{
		{func() func() { return broken(ctx, node, 5) }, fmt.Sprintf("has fewer that work (%s: 3 of 8)", node)},
		{
			edit(func(n *corev1.Node) { n.Spec.Unschedulable = true }, func(n *corev1.Node) { n.Spec.Unschedulable = false }),
			fmt.Sprintf("is cordoned (%s)", node),
		},
		{
			edit(func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: taint, Effect: corev1.TaintEffectNoSchedule})
			}, func(n *corev1.Node) {
				n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taint })
			}),
			fmt.Sprintf("has a taint that is not tolerated (%s: %s:NoSchedule)", node, taint),
		},
		{
			edit(func(n *corev1.Node) { n.Labels[partitionLabel] = parts }, func(n *corev1.Node) { n.Labels[partitionLabel] = whole }),
			fmt.Sprintf("is partitioned otherwise (%s: %s)", node, parts),
		},
	}
}

// edited changes a node, and changes it back when it is called or the spec has ended.
func edited(ctx context.Context, node string, do, undo func(*corev1.Node)) func() {
	GinkgoHelper()
	change := func(ctx context.Context, edit func(*corev1.Node)) {
		GinkgoHelper()
		n := &corev1.Node{}
		Expect(k8s.Get(ctx, types.NamespacedName{Name: node}, n)).To(Succeed())
		patch := client.MergeFrom(n.DeepCopy())
		edit(n)
		Expect(k8s.Patch(ctx, n, patch)).To(Succeed())
	}
	change(ctx, do)
	DeferCleanup(func(ctx context.Context) { change(ctx, undo) })
	return func() { change(ctx, undo) }
}

// broken makes devices of a node unhealthy, as their plugin tells the kubelet, until it
// is called or the spec has ended.
func broken(ctx context.Context, node string, devices int) func() {
	GinkgoHelper()
	arguments := []string{"gpu-unhealthy", node}
	for i := range devices {
		arguments = append(arguments, fmt.Sprintf("gpu%d", i))
	}
	_, err := machine.Run(ctx, arguments...)
	Expect(err).NotTo(HaveOccurred())
	heal := func(ctx context.Context) {
		GinkgoHelper()
		_, err := machine.Run(ctx, "gpu-healthy", node)
		Expect(err).NotTo(HaveOccurred())
	}
	DeferCleanup(heal)
	return func() { heal(ctx) }
}

// devices is what the status tells of them, for the spec as it is.
func (p *pool) devices(ctx context.Context) (metav1.Condition, error) {
	now, err := k8s.Pool(ctx, p.namespace, p.name)
	if err != nil {
		return metav1.Condition{}, err
	}
	c := apimeta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionGPUsAvailable)
	if c == nil || c.ObservedGeneration != now.Generation {
		return metav1.Condition{}, fmt.Errorf("generation %d of pool %s is not observed", now.Generation, p.name)
	}
	return *c, nil
}

// lacks waits until the status says that so many of the wanted replicas of each role have
// devices, and why not more; the command line has to say the same when it is asked so.
// The pool is changed at each look, as the status follows a change at once, and nodes
// only after two minutes.
func (p *pool) lacks(ctx context.Context, fits int, why string, asked ...string) {
	GinkgoHelper()
	heads := fmt.Sprintf("the nodes have devices for %[1]d of %[2]d prefill replicas and %[1]d of %[2]d decode replicas; ", fits, p.replicas)
	Eventually(func(g Gomega, ctx context.Context) {
		p.setup.routers = p.setup.routers%2 + 1
		g.Expect(k8s.Apply(ctx, p.namespace, p.manifest(p.name))).To(Succeed())
		var c metav1.Condition
		g.Eventually(func() (err error) {
			c, err = p.devices(ctx)
			return err
		}).WithContext(ctx).WithTimeout(soon).Should(Succeed())
		g.Expect(c.Message).To(And(HavePrefix(heads), ContainSubstring(why)))
		g.Expect(c.Status).To(Equal(metav1.ConditionFalse))
		g.Expect(c.Reason).To(Equal(v1alpha1.ReasonDevicesLack))
	}).WithContext(ctx).WithPolling(time.Second).Should(Succeed())
	p.agrees(ctx, asked...)
}

// agrees holds that the command line says of the pool's manifest what the status says.
func (p *pool) agrees(ctx context.Context, asked ...string) {
	GinkgoHelper()
	want, err := p.devices(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, source := range asked {
		var report struct {
			Pools []struct {
				GPUs struct {
					Available bool
					Message   string
				}
			}
		}
		Expect(json.Unmarshal(p.check(ctx, source), &report)).To(Succeed())
		Expect(report.Pools).To(HaveLen(1))
		Expect(report.Pools[0].GPUs.Message).To(Equal(want.Message), source)
		Expect(report.Pools[0].GPUs.Available).To(Equal(want.Status == metav1.ConditionTrue), source)
	}
}

// The two ways to ask the command line for devices.
const (
	ofCluster = "--cluster"
	ofNodes   = "--nodes"
)

// check runs kubectl pdpool check on the pool's manifest, which names no namespace: the
// context does.
func (p *pool) check(ctx context.Context, source string) []byte {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	manifest, kubeconfig, list := filepath.Join(folder, "pool.json"), filepath.Join(folder, "kubeconfig"), filepath.Join(folder, "nodes.yaml")
	Expect(os.WriteFile(manifest, []byte(p.manifest(p.name)), 0o600)).To(Succeed())
	arguments := []string{"check", "-f", manifest, "-o", "json"}
	assets, err := machine.Run(ctx, "assets")
	Expect(err).NotTo(HaveOccurred())
	tools := strings.TrimSpace(assets)
	if source == ofNodes {
		text, err := machine.Run(ctx, "kubectl", "get", "nodes", "-o", "yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(list, []byte(text), 0o600)).To(Succeed())
		arguments = append(arguments, source, list)
	} else {
		text, err := os.ReadFile(os.Getenv("E2E_KUBECONFIG"))
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(kubeconfig, text, 0o600)).To(Succeed())
		said, err := exec.CommandContext(ctx, filepath.Join(tools, "kubectl"), "--kubeconfig", kubeconfig, "config", "set-context", "--current", "--namespace", p.namespace).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(said))
		arguments = append(arguments, source, "--kubeconfig", kubeconfig)
	}
	command := exec.CommandContext(ctx, "bin/kubectl-pdpool", arguments...)
	command.Env = append(os.Environ(), "PATH="+tools+string(os.PathListSeparator)+os.Getenv("PATH"))
	out, err := command.Output()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return out
}
