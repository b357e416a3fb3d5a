package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

var _ = Describe("What a pool needs and does not have", func() {
	s := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "TCP"}

	It("is named in its condition when somebody else's Service has its name, and it serves when that is gone", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		clash := &corev1.Service{ObjectMeta: meta(namespace, "pool-router"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(k8s.Create(ctx, clash)).To(Succeed())
		Expect(k8s.Apply(ctx, namespace, s.manifest("pool"))).To(Succeed())
		condition(ctx, namespace, "pool", v1alpha1.ConditionReady, "pool-router")
		Expect(k8s.Get(ctx, types.NamespacedName{Namespace: namespace, Name: clash.Name}, clash)).To(Succeed())
		Expect(clash.Spec.Ports[0].Port).To(Equal(int32(1)), "it is left as it was")
		Expect(k8s.Delete(ctx, clash)).To(Succeed())
		Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
		pool{setup: s, namespace: namespace, name: "pool"}.serves(ctx, smallMLA.answer, 0)
	})

	It("is made anew when its Secret is deleted, with the pods that come next", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		p := s.start(ctx, namespace, "pool")
		secret := &corev1.Secret{}
		key := types.NamespacedName{Namespace: namespace, Name: "pool-key"}
		Expect(k8s.Get(ctx, key, secret)).To(Succeed())
		old := secret.UID
		Expect(k8s.Delete(ctx, secret)).To(Succeed())
		for _, role := range []string{v1alpha1.RolePrefill, v1alpha1.RoleDecode} {
			pod, _ := p.pod(ctx, role)
			Expect(k8s.Delete(ctx, &pod)).To(Succeed())
			Expect(k8s.WaitGone(ctx, &pod, goneWithin)).To(Succeed())
		}
		Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
		Expect(k8s.Get(ctx, key, secret)).To(Succeed())
		Expect(secret.UID).NotTo(Equal(old))
		p.serves(ctx, smallMLA.answer, 0)
	})

	It("is named in its condition when its Secret has no key", func(ctx context.Context) {
		namespace := newNamespace(ctx)
		Expect(k8s.Create(ctx, &corev1.Secret{ObjectMeta: meta(namespace, "pool-key"), StringData: map[string]string{"other": "things"}})).To(Succeed())
		Expect(k8s.Apply(ctx, namespace, s.manifest("pool"))).To(Succeed())
		condition(ctx, namespace, "pool", v1alpha1.ConditionReady, "transfer-agent: pool secret: ")
		seen, err := k8s.Pool(ctx, namespace, "pool")
		Expect(err).NotTo(HaveOccurred())
		for _, c := range seen.Status.Conditions {
			AddReportEntry("a Secret without key", c.Type+": "+c.Reason+": "+c.Message, ReportEntryVisibilityAlways)
		}
	})
})
