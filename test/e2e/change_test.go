package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/kvlayout"
	"github.com/pdpool/pdpool/test/cluster"
)

// census counts the ready instances of both roles by pairing key, again and again.
type census struct {
	stop    context.CancelFunc
	ended   sync.WaitGroup
	looks   int
	fewest  int // pairs of one key that were ready at once
	most    int // engine pods that existed at once
	problem error
}

func (p pool) count(ctx context.Context) *census {
	ctx, cancel := context.WithCancel(ctx)
	c := &census{stop: cancel, fewest: 1 << 30}
	DeferCleanup(cancel)
	c.ended.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			var list corev1.PodList
			err := k8s.List(ctx, &list, client.InNamespace(p.namespace), client.MatchingLabels{v1alpha1.LabelPool: p.name})
			if err != nil && !errors.Is(err, context.Canceled) {
				c.problem = err
				return
			}
			if err == nil {
				c.look(list.Items)
			}
		}
	})
	return c
}

func (c *census) look(pods []corev1.Pod) {
	ready, engines := map[string]map[string]int{}, 0
	for _, pod := range pods {
		key, role := pod.Labels[v1alpha1.LabelPairing], pod.Labels[v1alpha1.LabelRole]
		if role == v1alpha1.RoleRouter || pod.DeletionTimestamp != nil {
			continue
		}
		engines++
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				if ready[key] == nil {
					ready[key] = map[string]int{}
				}
				ready[key][role]++
			}
		}
	}
	pairs := 0
	for _, roles := range ready {
		pairs += min(roles[v1alpha1.RolePrefill], roles[v1alpha1.RoleDecode])
	}
	c.looks++
	c.fewest, c.most = min(c.fewest, pairs), max(c.most, engines)
}

func (c *census) end() *census {
	GinkgoHelper()
	c.stop()
	c.ended.Wait()
	Expect(c.problem).NotTo(HaveOccurred())
	Expect(c.looks).To(BeNumerically(">", 10))
	return c
}

// changed applies another layout of the pool, under which old and new can't pair.
func (p pool) changed(ctx context.Context, decode kvlayout.Layout) pool {
	GinkgoHelper()
	p.decode, p.blockSize = decode, 32
	Expect(k8s.Apply(ctx, p.namespace, p.manifest(p.name))).To(Succeed())
	return p
}

// onlyNew checks that all engine pods have one pairing key, which is not the old one.
func (p pool) onlyNew(ctx context.Context, old string, replicas int) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		pods, err := k8s.Pods(ctx, p.namespace, p.name, "")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(2 * replicas))
		for _, pod := range pods {
			g.Expect(pod.Labels[v1alpha1.LabelPairing]).NotTo(Equal(old))
			g.Expect(pod.Labels[v1alpha1.LabelPairing]).To(Equal(pods[0].Labels[v1alpha1.LabelPairing]))
		}
	}).WithContext(ctx).Should(Succeed())
}

// noneAcross checks that no request met two pairing keys: by its own text, and by the
// refusals that the agents of the pods that are there have counted.
func (p pool) noneAcross(ctx context.Context, outcomes []outcome) {
	GinkgoHelper()
	for _, o := range outcomes {
		Expect(o.wrong()).To(BeFalse(), o.String())
		Expect(o.Error).NotTo(ContainSubstring("pairing-differs"), o.String())
	}
	pods, err := k8s.Pods(ctx, p.namespace, p.name, "")
	Expect(err).NotTo(HaveOccurred())
	for _, pod := range pods {
		ports, err := cluster.Ports(&pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(series(ctx, &pod, ports.Agent)[`pdpool_agent_refusals_total{rule="pairing-differs"}`]).To(BeZero(), pod.Name)
	}
}

var _ = Describe("A change of layout under a request loop", func() {
	shape := loadShape{clients: 3, prompt: 200, tokens: 4, patience: time.Minute}
	slow := []string{"--sim-prefill-ms-per-layer=20"}

	It("fails no request while GPUs are free, and pairs nothing across pairing keys", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", prefillArgs: slow}.start(ctx, namespace, "pool")
		old, _ := p.pod(ctx, v1alpha1.RolePrefill)
		l, c := p.load(ctx, shape), p.count(ctx)
		l.served(ctx, 10)
		p = p.changed(ctx, tp(2))
		Expect(k8s.WaitReady(ctx, namespace, p.name, readyWithin)).To(Succeed())
		Expect(k8s.WaitGone(ctx, &old, goneWithin)).To(Succeed())
		p.onlyNew(ctx, old.Labels[v1alpha1.LabelPairing], 1)
		l.served(ctx, 10)
		outcomes := l.end()
		show("change with GPUs free", outcomes)
		p.noneAcross(ctx, outcomes)
		for _, o := range outcomes {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		Expect(c.end().fewest).To(BeNumerically(">=", 1), "pairs that were ready at every time")
		p.quiet(ctx)
	})

	It("replaces one pair at a time where no GPU is free, and serves all the while", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{
			model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 16), backend: "TCP", prefillArgs: slow, anywhere: true, replicas: 2,
		}.start(ctx, namespace, "pool")
		old, _ := p.pod(ctx, v1alpha1.RolePrefill)
		l, c := p.load(ctx, shape), p.count(ctx)
		l.served(ctx, 10)
		p = p.changed(ctx, tp(4))
		Expect(k8s.WaitReady(ctx, namespace, p.name, 2*readyWithin)).To(Succeed())
		p.onlyNew(ctx, old.Labels[v1alpha1.LabelPairing], 2)
		l.served(ctx, 10)
		outcomes := l.end()
		show("change without free GPUs", outcomes)
		p.noneAcross(ctx, outcomes)
		for _, o := range outcomes {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		Expect(c.end().fewest).To(BeNumerically(">=", 1), "pairs that were ready at every time")
	})

	It("goes on when the leading manager is killed after each of its writes", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", prefillArgs: slow}.start(ctx, namespace, "pool")
		old, _ := p.pod(ctx, v1alpha1.RolePrefill)
		l, c := p.load(ctx, shape), p.count(ctx)
		l.served(ctx, 10)
		audit, err := cluster.AuditFrom(auditLog())
		Expect(err).NotTo(HaveOccurred())
		killing, stop := context.WithCancel(ctx)
		defer stop()
		var steps []string
		var killer sync.WaitGroup
		killer.Go(func() {
			defer GinkgoRecover()
			steps = killAfterWrites(killing, audit, namespace)
		})
		p = p.changed(ctx, tp(2))
		p.onlyNew(ctx, old.Labels[v1alpha1.LabelPairing], 1)
		Expect(k8s.WaitGone(ctx, &old, goneWithin)).To(Succeed())
		stop()
		killer.Wait()
		Expect(operatorReady(ctx)).To(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, p.name, readyWithin)).To(Succeed())
		l.served(ctx, 10)
		outcomes := l.end()
		for _, step := range steps {
			AddReportEntry("the manager was killed after", step, ReportEntryVisibilityAlways)
		}
		show("change while the manager is killed", outcomes)
		p.noneAcross(ctx, outcomes)
		for _, o := range outcomes {
			Expect(o.good()).To(BeTrue(), o.String())
		}
		count := c.end()
		Expect(count.fewest).To(BeNumerically(">=", 1))
		Expect(count.most).To(BeNumerically("<=", 4), "nothing was made twice")
		Expect(steps).To(ContainElement(ContainSubstring("create controllerrevisions")))
		Expect(steps).To(ContainElement(ContainSubstring("create pods")))
		Expect(steps).To(ContainElement(ContainSubstring("delete pods")))
		Expect(steps).To(ContainElement(ContainSubstring("update pdpools/status")))
		p.quiet(ctx)
	})
})

// killAfterWrites kills the leading manager whenever it has written something in a
// namespace, takes its lease so that the other one needn't wait for its end, and
// returns after which writes it was done.
func killAfterWrites(ctx context.Context, audit *cluster.Audit, namespace string) []string {
	var steps, step []string // step are writes that nobody was killed after yet
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return steps
		case <-tick.C:
		}
		writes, err := audit.Writes(operatorUser)
		Expect(err).NotTo(HaveOccurred())
		for _, w := range writes {
			if w.Namespace == namespace && w.Code < 300 && w.Resource != "events" {
				step = append(step, fmt.Sprintf("%s %s %s", w.Verb, strings.Trim(w.Resource+"/"+w.Subresource, "/"), w.Name))
			}
		}
		if len(step) == 0 {
			continue
		}
		lease := &coordinationv1.Lease{}
		key := types.NamespacedName{Namespace: operatorNamespace, Name: operatorName}
		if err := k8s.Get(ctx, key, lease); err != nil || lease.Spec.HolderIdentity == nil {
			continue
		}
		name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
		leader := &corev1.Pod{}
		if err := k8s.Get(ctx, types.NamespacedName{Namespace: operatorNamespace, Name: name}, leader); err != nil {
			continue
		}
		if machine.Signal(leader, "manager", syscall.SIGKILL) == nil {
			_ = k8s.Delete(ctx, lease)
			steps, step = append(steps, strings.Join(step, ", ")), nil
		}
	}
}
