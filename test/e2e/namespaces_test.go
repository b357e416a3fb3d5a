package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// condition waits until a condition of a pool is not True and its message has all words.
func condition(ctx context.Context, namespace, name, kind string, words ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		pool, err := k8s.Pool(ctx, namespace, name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pool.Status.ObservedGeneration).To(Equal(pool.Generation))
		found := false
		for _, c := range pool.Status.Conditions {
			if c.Type != kind {
				continue
			}
			found = true
			g.Expect(string(c.Status)).NotTo(Equal("True"), c.Message)
			for _, word := range words {
				g.Expect(c.Message).To(ContainSubstring(word))
			}
		}
		g.Expect(found).To(BeTrue(), "condition "+kind)
	}).WithContext(ctx).Should(Succeed())
}

func label(ctx context.Context, namespace, key, value string) {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(k8s.Get(ctx, types.NamespacedName{Name: namespace}, ns)).To(Succeed())
	patch := client.MergeFrom(ns.DeepCopy())
	ns.Labels[key] = value
	Expect(k8s.Patch(ctx, ns, patch)).To(Succeed())
}

var _ = Describe("A namespace", func() {
	const level = "pod-security.kubernetes.io/enforce"

	It("with a quota tells the server's sentence in the pool's condition, and serves when there is room", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		quota := &corev1.ResourceQuota{
			ObjectMeta: meta(namespace, "few-pods"),
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}},
		}
		Expect(k8s.Create(ctx, quota)).To(Succeed())
		// A quota counts only once the controller has seen it.
		Eventually(func(g Gomega, ctx context.Context) {
			g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(quota), quota)).To(Succeed())
			g.Expect(quota.Status.Used).NotTo(BeEmpty())
		}).WithContext(ctx).Should(Succeed())
		s := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "TCP"}
		Expect(k8s.Apply(ctx, namespace, s.manifest("pool"))).To(Succeed())
		condition(ctx, namespace, "pool", v1alpha1.ConditionReady, "exceeded quota: few-pods")
		Expect(k8s.Delete(ctx, quota)).To(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
		pool{setup: s, namespace: namespace, name: "pool"}.serves(ctx, smallMLA.answer, 0)
	})

	It("of level restricted runs a pool of the Simulator over TCP", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		label(ctx, namespace, level, "restricted")
		p := setup{model: smallMLA, prefill: tp(2), decode: dcp(2, 2, 16), backend: "TCP"}.start(ctx, namespace, "pool")
		p.serves(ctx, smallMLA.answer, 0)
	})

	It("of level restricted tells the server's sentence about shared memory", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		label(ctx, namespace, level, "restricted")
		s := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "SharedMemory"}
		Expect(k8s.Apply(ctx, namespace, s.manifest("pool"))).To(Succeed())
		condition(ctx, namespace, "pool", v1alpha1.ConditionReady, `violates PodSecurity "restricted:latest"`, "hostPath")
		label(ctx, namespace, level, "privileged")
		Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
		pool{setup: s, namespace: namespace, name: "pool"}.serves(ctx, smallMLA.answer, 0)
	})
})
