package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pdpool/pdpool/api/v1alpha1"
)

// helm runs helm on the cluster.
func helm(ctx context.Context, arguments ...string) error {
	arguments = append([]string{"--kubeconfig", os.Getenv("E2E_KUBECONFIG"), "--kube-context", os.Getenv("E2E_CONTEXT"), "--namespace", operatorNamespace}, arguments...)
	out, err := exec.CommandContext(ctx, os.Getenv("E2E_HELM"), arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("helm %.200q: %w: %s", arguments, err, bytes.TrimSpace(out))
	}
	return nil
}

// install is what a user is told to run; chart is in the folder of the repository.
func install(ctx context.Context, more ...string) error {
	return helm(ctx, append([]string{
		"upgrade", "--install", "pdpool", os.Getenv("E2E_CHART"), "--create-namespace", "--wait", "--timeout", "3m",
		"--set", "image.repository=" + os.Getenv("E2E_IMAGES"), "--set-string", "image.tag=" + os.Getenv("E2E_TAG"),
	}, more...)...)
}

// needHelm skips a spec where the chart can't be installed by the suite.
func needHelm() {
	GinkgoHelper()
	if os.Getenv("E2E_HELM") == "" {
		Skip("E2E_HELM names no helm")
	}
}

// installAfterwards puts the operator back when the spec has ended.
func installAfterwards() {
	DeferCleanup(func(ctx context.Context) {
		Expect(install(ctx)).To(Succeed())
		Expect(operatorReady(ctx)).To(Succeed())
	}, NodeTimeout(5*time.Minute))
}

// Ways to take it away.
const (
	operatorAlone   = "operator alone, the pool goes on"
	poolsFirst      = "pools first"
	operatorFirst   = "operator first"
	definitionFirst = "definition first"
	namespaceFirst  = "the operator's namespace first"
)

func definition() *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("pdpools.pdpool.dev")
	return crd
}

// uninstall removes pools, operator and definition in an order, and waits until
// nothing of them is left.
func uninstall(ctx context.Context, namespace, order string) {
	GinkgoHelper()
	operator := func() { Expect(helm(ctx, "uninstall", "pdpool", "--wait", "--ignore-not-found")).To(Succeed()) }
	crd := func() { Expect(client.IgnoreNotFound(k8s.Delete(ctx, definition()))).To(Succeed()) }
	switch order {
	case operatorAlone:
		operator()
		return
	case poolsFirst:
		removePools(ctx, namespace)
		operator()
		crd()
	case operatorFirst:
		operator()
		removePools(ctx, namespace)
		crd()
	case definitionFirst:
		collected(ctx, namespace)
		crd()
		operator()
	case namespaceFirst:
		Expect(k8s.Delete(ctx, &corev1.Namespace{ObjectMeta: meta("", operatorNamespace)})).To(Succeed())
		Expect(k8s.WaitGone(ctx, &corev1.Namespace{ObjectMeta: meta("", operatorNamespace)}, goneWithin)).To(Succeed())
		removePools(ctx, namespace)
		crd()
	}
	Expect(k8s.WaitGone(ctx, definition(), goneWithin)).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		pods := &corev1.PodList{}
		g.Expect(k8s.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
		var left []string
		for _, pod := range pods.Items {
			left = append(left, pod.Name)
		}
		g.Expect(left).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(goneWithin).Should(Succeed())
	if order != namespaceFirst {
		err := k8s.Get(ctx, client.ObjectKey{Name: "pdpool"}, &admissionv1.ValidatingWebhookConfiguration{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the webhook went with the operator: %v", err)
	}
}

// removePools deletes pools as docs/operating.md says: each goes when its children have.
func removePools(ctx context.Context, namespace string) {
	GinkgoHelper()
	pools := &v1alpha1.PDPoolList{}
	Expect(k8s.List(ctx, pools, client.InNamespace(namespace))).To(Succeed())
	for i := range pools.Items {
		Expect(k8s.Delete(ctx, &pools.Items[i], client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
	}
	for i := range pools.Items {
		Expect(k8s.WaitGone(ctx, &pools.Items[i], goneWithin)).To(Succeed())
	}
}

// collected waits until Kubernetes' garbage collector knows the kind PDPool, half a
// minute after its definition at the most: what belongs to no pool goes then.
func collected(ctx context.Context, namespace string) {
	GinkgoHelper()
	orphan := &corev1.ConfigMap{ObjectMeta: meta(namespace, "orphan")}
	orphan.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PDPool", Name: "nobody", UID: "d0e5f8d4-0000-4000-8000-000000000000",
	}}
	Expect(k8s.Create(ctx, orphan)).To(Succeed())
	Expect(k8s.WaitGone(ctx, orphan, goneWithin)).To(Succeed())
}

var _ = Describe("The chart", func() {
	It("is installed and obeyed at once, ten times in a row, and leaves nothing stuck whatever goes first", func(ctx context.Context) {
		needMachine()
		needHelm()
		namespace := newNamespace(ctx)
		installAfterwards()
		orders := []string{
			poolsFirst, operatorAlone, operatorFirst, operatorAlone, definitionFirst, operatorAlone,
			namespaceFirst, operatorAlone, operatorAlone, operatorAlone,
		}
		s := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "SharedMemory"}
		broken := setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 48), backend: "TCP"}
		p := s.start(ctx, namespace, "pool")
		for round, order := range orders {
			before := p.everything(ctx)
			began := time.Now()
			uninstall(ctx, namespace, order)
			gone := time.Since(began)
			began = time.Now()
			Expect(install(ctx)).To(Succeed())
			installed := time.Since(began)
			// At once: neither is retried.
			Expect(k8s.Apply(ctx, namespace, s.manifest("pool"))).To(Succeed(), "round %d", round)
			err := k8s.Apply(ctx, namespace, broken.manifest("broken"))
			Expect(err).To(HaveOccurred(), "round %d", round)
			Expect(err.Error()).To(ContainSubstring("interleave-block"), "round %d", round)
			Expect(k8s.WaitReady(ctx, namespace, "pool", readyWithin)).To(Succeed())
			if order == operatorAlone {
				for uid, pod := range before {
					Expect(p.everything(ctx)).To(HaveKey(uid), pod.Name+" went on")
				}
			}
			AddReportEntry(strings.Join([]string{"round", itoa(round)}, " "), fmt.Sprintf("%s: gone after %.1f s, installed after %.1f s, a pool ready after %.1f s",
				order, gone.Seconds(), installed.Seconds(), (time.Since(began)-installed).Seconds()), ReportEntryVisibilityAlways)
		}
		p.serves(ctx, smallMLA.answer, 0)
	})

	It("leaves pools that serve when it has gone, through routers that start anew", func(ctx context.Context) {
		needMachine()
		needHelm()
		namespace := newNamespace(ctx)
		installAfterwards()
		p := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "SharedMemory"}.start(ctx, namespace, "pool")
		uninstall(ctx, namespace, operatorAlone)
		old := p.routers(ctx)
		Expect(old).To(HaveLen(1))
		Expect(k8s.Delete(ctx, &old[0])).To(Succeed())
		Expect(k8s.WaitGone(ctx, &old[0], goneWithin)).To(Succeed())
		p.right(ctx, 1)
	})
})
