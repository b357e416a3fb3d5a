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

// Ways to take it all away.
const (
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
	pools := func() {
		err := k8s.DeleteAllOf(ctx, &v1alpha1.PDPool{}, client.InNamespace(namespace))
		if !apierrors.IsNotFound(err) {
			Expect(err).NotTo(HaveOccurred())
		}
	}
	operator := func() { Expect(helm(ctx, "uninstall", "pdpool", "--wait", "--ignore-not-found")).To(Succeed()) }
	crd := func() { Expect(client.IgnoreNotFound(k8s.Delete(ctx, definition()))).To(Succeed()) }
	switch order {
	case poolsFirst:
		pools()
		operator()
		crd()
	case operatorFirst:
		operator()
		pools()
		crd()
	case definitionFirst:
		crd()
		operator()
	case namespaceFirst:
		Expect(k8s.Delete(ctx, &corev1.Namespace{ObjectMeta: meta("", operatorNamespace)})).To(Succeed())
		Expect(k8s.WaitGone(ctx, &corev1.Namespace{ObjectMeta: meta("", operatorNamespace)}, goneWithin)).To(Succeed())
		pools()
		crd()
	}
	Expect(k8s.WaitGone(ctx, definition(), goneWithin)).To(Succeed())
	Eventually(func(g Gomega, ctx context.Context) {
		pods := &corev1.PodList{}
		g.Expect(k8s.List(ctx, pods, client.InNamespace(namespace))).To(Succeed())
		g.Expect(pods.Items).To(BeEmpty())
	}).WithContext(ctx).WithTimeout(goneWithin).Should(Succeed())
	if order != namespaceFirst {
		err := k8s.Get(ctx, client.ObjectKey{Name: "pdpool"}, &admissionv1.ValidatingWebhookConfiguration{})
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the webhook went with the operator: %v", err)
	}
}

var _ = Describe("The chart", func() {
	const rounds = 10

	It("is installed and obeyed at once, ten times in a row, and leaves nothing stuck whatever goes first", func(ctx context.Context) {
		needMachine()
		needHelm()
		namespace := newNamespace(ctx)
		DeferCleanup(func(ctx context.Context) {
			Expect(install(ctx)).To(Succeed())
			Expect(operatorReady(ctx)).To(Succeed())
		}, NodeTimeout(5*time.Minute))
		orders := []string{poolsFirst, operatorFirst, definitionFirst, namespaceFirst}
		s := setup{model: smallMLA, prefill: tp(1), decode: tp(1), backend: "SharedMemory"}
		broken := setup{model: smallMLA, prefill: tp(4), decode: dcp(4, 4, 48), backend: "TCP"}
		for round := range rounds {
			order := orders[round%len(orders)]
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
			AddReportEntry(strings.Join([]string{"round", itoa(round)}, " "), fmt.Sprintf("%s: gone after %.1f s, installed after %.1f s, a pool ready after %.1f s",
				order, gone.Seconds(), installed.Seconds(), (time.Since(began)-installed).Seconds()), ReportEntryVisibilityAlways)
		}
		pool{setup: s, namespace: namespace, name: "pool"}.serves(ctx, smallMLA.answer, 0)
	})
})
