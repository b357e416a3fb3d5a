package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/test/cluster"
)

var _ = Describe("Pools that have come to rest", func() {
	It("make no API write for a minute, while somebody annotates their pods and a node flaps", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", anywhere: true, prefer: nodes[0]}.start(ctx, namespace, "pool")
		q := setup{model: smallGQA, prefill: tp(1), decode: tp(1), backend: "SharedMemory", anywhere: true, prefer: nodes[0]}.start(ctx, namespace, "other")
		p.settled(ctx)
		// Nothing of them may run on the node that flaps, or there is something to write.
		for _, pool := range []pool{p, q} {
			for _, pod := range pool.everything(ctx) {
				if pod.Spec.NodeName == nodes[1] {
					cordoned(ctx, nodes[1])
					Expect(k8s.Delete(ctx, &pod)).To(Succeed())
				}
			}
			Expect(k8s.WaitReady(ctx, namespace, pool.name, readyWithin)).To(Succeed())
		}
		Eventually(func(g Gomega, ctx context.Context) {
			for _, pool := range []pool{p, q} {
				for _, pod := range pool.everything(ctx) {
					g.Expect(pod.Spec.NodeName).To(Equal(nodes[0]))
				}
			}
		}).WithContext(ctx).Should(Succeed())
		p.settled(ctx)

		audit, err := cluster.AuditFrom(auditLog())
		Expect(err).NotTo(HaveOccurred())
		minute, stop := context.WithTimeout(ctx, time.Minute)
		defer stop()
		var others sync.WaitGroup
		annotated, flaps := 0, 0
		others.Go(func() {
			defer GinkgoRecover()
			annotated = annotate(minute, p, q)
		})
		others.Go(func() {
			defer GinkgoRecover()
			flaps = flap(minute, nodes[1])
		})
		others.Wait()
		AddReportEntry("an idle minute", fmt.Sprintf("%d annotations, %d flaps of the node's readiness", annotated, flaps), ReportEntryVisibilityAlways)
		Expect(annotated).To(BeNumerically(">", 20))
		Expect(flaps).To(BeNumerically(">", 1))
		writes, err := audit.Writes(operatorUser)
		Expect(err).NotTo(HaveOccurred())
		for _, w := range writes {
			Expect(w.Resource).To(Equal("leases"), w.String())
		}
		Expect(writes).NotTo(BeEmpty(), "the lease is renewed, so the log is the right one")
	})
})

// cordoned keeps new pods off a node until the spec has ended.
func cordoned(ctx context.Context, node string) {
	GinkgoHelper()
	set := func(ctx context.Context, off bool) error {
		return cluster.Poll(ctx, soon, func(ctx context.Context) error {
			n := &corev1.Node{}
			if err := k8s.Get(ctx, types.NamespacedName{Name: node}, n); err != nil {
				return err
			}
			patch := client.MergeFrom(n.DeepCopy())
			n.Spec.Unschedulable = off
			return k8s.Patch(ctx, n, patch)
		})
	}
	Expect(set(ctx, true)).To(Succeed())
	DeferCleanup(func(ctx context.Context) { Expect(set(ctx, false)).To(Succeed()) })
}

// annotate changes an annotation of every pod of the pools until ctx ends, and returns how often.
func annotate(ctx context.Context, pools ...pool) int {
	n := 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for _, p := range pools {
			list := &corev1.PodList{}
			if err := k8s.List(ctx, list, client.InNamespace(p.namespace)); err != nil {
				return n
			}
			for _, pod := range list.Items {
				patch := client.MergeFrom(pod.DeepCopy())
				if pod.Annotations == nil {
					pod.Annotations = map[string]string{}
				}
				pod.Annotations["example.com/seen"] = fmt.Sprint(n)
				if k8s.Patch(ctx, &pod, patch) == nil {
					n++
				}
			}
		}
		select {
		case <-ctx.Done():
			return n
		case <-tick.C:
		}
	}
}

// flap sets a node's readiness to False and back, as its controller does when the
// kubelet is late, until ctx ends, and returns how often it was seen to change.
func flap(ctx context.Context, node string) int {
	flaps := 0
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		n := &corev1.Node{}
		if err := k8s.Get(ctx, types.NamespacedName{Name: node}, n); err != nil {
			return flaps
		}
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
				if c.Status == corev1.ConditionTrue {
					c.Status = corev1.ConditionFalse
				} else {
					c.Status = corev1.ConditionTrue
				}
				c.Reason = "Flapping"
			}
		}
		if k8s.Status().Update(ctx, n) == nil {
			flaps++
		}
		select {
		case <-ctx.Done():
			return flaps
		case <-tick.C:
		}
	}
}
