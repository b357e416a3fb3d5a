package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

var _ = Describe("A node that is lost", func() {
	It("has its replica served from another node while the old pod is still ending", func(ctx context.Context) {
		needMachine()
		namespace := newNamespace(ctx)
		s := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP", routers: 2, anywhere: true, prefer: nodes[1]}
		p := s.start(ctx, namespace, "pool")
		old, _ := p.pod(ctx, v1alpha1.RoleDecode)
		Expect(old.Spec.NodeName).To(Equal(nodes[1]), "the node that is about to go; the specs look from the other")
		p.right(ctx, 1)
		Expect(machine.StopNode(ctx, nodes[1])).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(machine.StartNode(ctx, nodes[1])).To(Succeed())
			// What was on it ends, and the next spec begins on two whole nodes.
			Eventually(func(g Gomega, ctx context.Context) {
				ending := &corev1.PodList{}
				g.Expect(k8s.List(ctx, ending, client.MatchingFields{"spec.nodeName": nodes[1]})).To(Succeed())
				for _, pod := range ending.Items {
					g.Expect(pod.DeletionTimestamp).To(BeNil(), pod.Name)
				}
			}).WithContext(ctx).WithTimeout(goneWithin).Should(Succeed())
			Expect(operatorReady(ctx)).To(Succeed())
		}, NodeTimeout(4*time.Minute))

		Eventually(func(g Gomega, ctx context.Context) {
			pods, err := k8s.Pods(ctx, namespace, p.name, v1alpha1.RoleDecode)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pods).To(HaveLen(1))
			g.Expect(pods[0].UID).NotTo(Equal(old.UID))
			g.Expect(pods[0].Spec.NodeName).To(Equal(nodes[0]))
		}).WithContext(ctx).WithTimeout(3 * time.Minute).Should(Succeed())
		p.right(ctx, 2)
		ending := &corev1.Pod{}
		Expect(k8s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: old.Name}, ending)).To(Succeed())
		Expect(ending.UID).To(Equal(old.UID))
		Expect(ending.DeletionTimestamp).NotTo(BeNil(), "nobody can say yet that it has ended")
	})
})
