package e2e

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
	"github.com/pdpool/pdpool/test/cluster"
)

var _ = Describe("An operator with other default images", func() {
	It("writes no pod of a running pool", func(ctx context.Context) {
		needMachine()
		needHelm()
		namespace := newNamespace(ctx)
		p := setup{model: smallMLA, prefill: tp(2), decode: tp(2), backend: "TCP"}.start(ctx, namespace, "pool")
		p.settled(ctx)
		before := p.everything(ctx)
		audit, err := cluster.AuditFrom(auditLog())
		Expect(err).NotTo(HaveOccurred())
		leader := holder(ctx)

		imagesOf(ctx, func(arg string) string { return arg[:strings.LastIndex(arg, ":")] + ":of-another-day" })
		Eventually(holder).WithContext(ctx).ShouldNot(Equal(leader), "another manager leads")
		// It has looked at the pool when it has done what it is asked.
		scaled := p
		scaled.replicas = 2
		Expect(k8s.Apply(ctx, namespace, scaled.manifest(p.name))).To(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, p.name, readyWithin)).To(Succeed())
		p.settled(ctx)

		pods, err := k8s.Pods(ctx, namespace, p.name, "")
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(4))
		now := p.everything(ctx)
		for uid, pod := range before {
			Expect(now).To(HaveKey(uid), pod.Name+" is still there")
			Expect(now[uid].Spec).To(Equal(pod.Spec), pod.Name)
			Expect(now[uid].Labels).To(Equal(pod.Labels), pod.Name)
			Expect(now[uid].Annotations).To(Equal(pod.Annotations), pod.Name)
		}
		writes, err := audit.Writes(operatorUser)
		Expect(err).NotTo(HaveOccurred())
		for _, w := range writes {
			if w.Namespace != namespace || w.Resource == "events" || w.Code >= 300 {
				continue
			}
			Expect(w.Verb+" "+w.Resource+"/"+w.Subresource).To(BeElementOf("create pods/", "update pdpools/status"), w.String())
		}
		p.right(ctx, 1)
	})
})

// everything is all pods of the pool, routers too.
func (p pool) everything(ctx context.Context) map[types.UID]corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(k8s.List(ctx, list, client.InNamespace(p.namespace), client.MatchingLabels{v1alpha1.LabelPool: p.name})).To(Succeed())
	out := map[types.UID]corev1.Pod{}
	for _, pod := range list.Items {
		out[pod.UID] = pod
	}
	return out
}

// settled waits until the operator has written nothing about the pool's namespace for some seconds.
func (p pool) settled(ctx context.Context) {
	GinkgoHelper()
	audit, err := cluster.AuditFrom(auditLog())
	Expect(err).NotTo(HaveOccurred())
	last := time.Now()
	Eventually(func(g Gomega) {
		writes, err := audit.Writes(operatorUser)
		g.Expect(err).NotTo(HaveOccurred())
		for _, w := range writes {
			if w.Namespace == p.namespace {
				last = time.Now()
			}
		}
		g.Expect(time.Since(last)).To(BeNumerically(">", 5*time.Second))
	}).WithContext(ctx).Should(Succeed())
}

// holder is who has the lease of the operator.
func holder(ctx context.Context) string {
	lease := &coordinationv1.Lease{}
	if err := k8s.Get(ctx, types.NamespacedName{Namespace: operatorNamespace, Name: operatorName}, lease); err != nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// imagesOf changes the images that the managers are told, until the spec has ended.
func imagesOf(ctx context.Context, change func(string) string) {
	GinkgoHelper()
	key := types.NamespacedName{Namespace: operatorNamespace, Name: operatorName}
	d := &appsv1.Deployment{}
	Expect(k8s.Get(ctx, key, d)).To(Succeed())
	var after []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		if strings.Contains(arg, "-image=") {
			arg = change(arg)
		}
		after = append(after, arg)
	}
	d.Spec.Template.Spec.Containers[0].Args = after
	DeferCleanup(func(ctx context.Context) {
		// The chart has its fields back.
		Expect(install(ctx, "--force-conflicts")).To(Succeed())
		Expect(operatorReady(ctx)).To(Succeed())
	}, NodeTimeout(3*time.Minute))
	Expect(k8s.Update(ctx, d)).To(Succeed())
	Expect(operatorReady(ctx)).To(Succeed())
}
